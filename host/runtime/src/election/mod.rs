//! Elects the leader among replicas by a Lease.

pub mod leadership;
pub mod lease_task;
