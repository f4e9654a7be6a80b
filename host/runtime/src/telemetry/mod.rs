//! Records events for people: traces, recordings of calls, the log of failures, and each plugin's usage.

pub mod failure_log;
pub mod recording;
pub mod traces;
pub mod usage;
