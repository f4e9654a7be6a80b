//! Tests of the chart with helm, without a cluster and on a real one.

mod accepted;
mod artifacts;
mod asking;
pub mod bench;
mod installing;
mod policies;
mod releases;
mod rendering;
mod roles_only;
mod shards_off;
mod token;
mod uninstalling;
mod values;
mod walkthrough;
