//! Decides how replicas choose a leader and divide the work.

pub mod lease;
pub mod member;
pub mod peers;
pub mod shards;
