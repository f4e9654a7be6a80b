//! What helm makes of the chart, without a cluster and on a real one.

mod bench;
mod installing;
mod rendering;
mod token;
mod values;
