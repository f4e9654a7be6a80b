//! Monitoring, as Prometheus' own program checks it.

mod promtool;
