//! The commands of whoever writes a plugin, called as a shell calls them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod build;
mod called_by_name;
mod cargo_component;
#[path = "../../../tests/end-to-end/tests/lifecycle/dice.rs"]
mod dice;
mod manifests;
mod manual;
mod new;
mod packages;
mod program;
mod published;
