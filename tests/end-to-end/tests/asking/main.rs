//! Asking a host: `pilothouse status`, `why` and `top`, and who is answered.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

#[allow(dead_code, reason = "the installation's tests need more of it")]
#[path = "../install/support.rs"]
mod support;

mod external;
mod real;
mod simulated;
