//! Records events for people: traces, recordings of calls, and each plugin's usage.

pub mod recording;
pub mod traces;
pub mod usage;
