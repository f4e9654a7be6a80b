//! Test kit for operators: a real control plane without containers, one type for the simulated and the real cluster,
//! scenario files that run on both, and plugins run in isolation. `pilothouse-simulator` is the simulation.
#![forbid(unsafe_code)]

pub mod cluster;
pub mod controlplane;
pub mod diff;
pub mod documents;
mod environment;
pub mod fate;
pub mod host;
pub mod isolation;
pub mod properties;
pub mod recording;
pub mod requests;
pub mod scenario;
pub mod store;
pub mod workloads;

pub use pilothouse_core::status::kstatus;

/// The code of the README is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
