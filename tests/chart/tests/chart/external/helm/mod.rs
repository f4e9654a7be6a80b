//! What helm makes of the chart, without a cluster and on a real one.

pub mod bench;
mod installing;
mod policies;
mod rendering;
mod roles_only;
mod token;
mod uninstalling;
mod values;
mod walkthrough;
