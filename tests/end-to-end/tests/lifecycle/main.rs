//! Plugins as resources: they come, change, are exchanged, suspended and deleted while the host runs, and each says how it
//! fares.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod admission;
mod claims;
mod contributions;
mod course;
mod crash;
mod declared;
mod definitions;
mod drift;
mod finish;
mod fleet;
mod former;
mod liveness;
mod ownership;
mod refused;
mod rights;
mod selection;
mod statuses;
mod swap;
