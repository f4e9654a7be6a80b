//! Sends the requests of a reconcile that write children.

pub mod collision;
pub mod create;
pub mod empty;
pub mod requests;
pub mod takeover;
pub mod terminating;
