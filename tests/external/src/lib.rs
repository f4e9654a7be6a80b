//! Real components for the tests of artifacts: two registries on loopback, and cosign, oras and wkg; and helm and
//! kustomize, for tests of the chart. `cargo xtask test --only external` installs and builds them, and names them in
//! the environment.
//!
//! No program reaches more than loopback: see [`command`].
#![forbid(unsafe_code)]

mod authority;
pub mod command;
pub mod cosign;
pub mod helm;
pub mod oras;
pub mod programs;
pub mod registry;
pub mod wkg;
