//! `pilothouse rights`, `install` and `uninstall`: what they print for each plugin, what they make in a cluster and refuse to
//! make, and that a host works with the rights that are printed, and with no others.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod isolated;
mod real;
mod simulated;
mod support;
#[path = "../../../../author/tests/dev_command/terminal.rs"]
mod terminal;
