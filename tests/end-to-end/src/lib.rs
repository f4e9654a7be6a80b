//! Host within a test's process, for scenarios and for tests of bad input. The test kit has the host as a process of
//! its own.
#![forbid(unsafe_code)]

pub mod components;
pub mod fleet;
pub mod host;
pub mod log;
pub mod program;
pub mod scrape;
pub mod stage;
pub mod variants;
pub mod webhooks;
