//! Owns the real components that tests of artifacts run against: two registries on loopback, and cosign, oras and wkg;
//! and helm and kustomize, for tests of the chart.
//! Leaves installing and building them to `cargo xtask test --only external`, which says in the environment where they
//! are, and what is tested to the tests.
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
