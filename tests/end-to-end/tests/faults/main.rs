//! Faults that befall the host while it works: whatever goes wrong, and wherever it is killed, the cluster ends as it does
//! without, nothing is made or deleted more often, and then nothing is written any more.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod course;
mod outcome;
mod pages;
mod simulated;
