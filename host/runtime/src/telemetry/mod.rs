//! Records what happens for people: traces, recordings of calls, and what each plugin uses.

pub mod recording;
pub mod traces;
pub mod usage;
