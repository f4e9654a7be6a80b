//! The sandbox with plugins that cargo builds. A module's name says which part of the tests runs it (xtask/src/test.rs).
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod isolated;
#[path = "../support/mod.rs"]
mod support;
