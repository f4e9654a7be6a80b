//! What helm makes of the chart, without a cluster and on a real one.

pub mod bench;
mod installing;
mod rendering;
mod token;
mod values;
mod walkthrough;
