//! Answers questions about the shared state under its lock, and changes nothing but what it says.

pub mod explain;
pub mod figures;
pub mod leftovers;
pub mod orphaned;
pub mod snapshot;
pub mod waits;
