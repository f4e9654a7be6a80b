//! Metrics of the process, under the names that all client libraries of Prometheus use:
//! <https://prometheus.io/docs/instrumenting/writing_clientlibs/#process-metrics>.

use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// The process, as the operating system sees it.
#[derive(Clone, Debug, Default)]
pub struct ProcessFigures {
    /// Processor time so far, of user and system, in seconds.
    pub cpu_seconds: f64,
    /// Physical memory, in bytes.
    pub resident_bytes: u64,
    /// Virtual memory, in bytes.
    pub virtual_bytes: u64,
    /// Open file descriptors.
    pub open_descriptors: u64,
    /// The most file descriptors; none without a limit.
    pub max_descriptors: Option<u64>,
    /// Start, in seconds since the epoch.
    pub started: f64,
}

impl ProcessFigures {
    pub(crate) fn registry(&self) -> Registry {
        let Self {
            cpu_seconds,
            resident_bytes,
            virtual_bytes,
            open_descriptors,
            max_descriptors,
            started,
        } = self;
        let mut registry = Registry::with_prefix("process");
        registry.register(
            "cpu_seconds",
            "Total user and system CPU time spent in seconds",
            ConstCounter::new(*cpu_seconds),
        );
        registry.register(
            "start_time_seconds",
            "Start time of the process since unix epoch in seconds",
            ConstGauge::new(*started),
        );
        for (name, help, value) in [
            (
                "resident_memory_bytes",
                "Resident memory size in bytes",
                Some(*resident_bytes),
            ),
            (
                "virtual_memory_bytes",
                "Virtual memory size in bytes",
                Some(*virtual_bytes),
            ),
            ("open_fds", "Number of open file descriptors", Some(*open_descriptors)),
            ("max_fds", "Maximum number of open file descriptors", *max_descriptors),
        ] {
            if let Some(value) = value {
                registry.register(name, help, ConstGauge::new(value));
            }
        }
        registry
    }
}
