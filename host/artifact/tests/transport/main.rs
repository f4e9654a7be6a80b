//! Tests of the transport against registries in this process: good ones, broken ones and hostile ones.
#![allow(
    clippy::unwrap_used,
    reason = "if a registry of the tests cannot be set up, the test has failed"
)]

mod authorization;
mod copying;
mod fetching;
mod hostile;
mod pulling;
mod pushing;
mod replicas;
mod signatures;
