//! Reads the shared state under its lock, without changing it except where stated.

pub mod explain;
pub mod figures;
pub mod leftovers;
pub mod orphaned;
pub mod previewed;
pub mod snapshot;
pub mod waits;
