//! Tests of plugins' reads and of the changes that requeue their objects: the guest `reader`, installed once or twice,
//! on a simulated cluster.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod simulated;
mod stage;
