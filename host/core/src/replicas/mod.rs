//! Decides how replicas choose a leader and divide the work.

pub mod lease;
pub mod shards;
