//! The command line, as documentation, completion and manual pages need it.
#![forbid(unsafe_code)]

#[allow(dead_code, reason = "the program's entry and its dispatch are for the program")]
#[path = "main.rs"]
mod program;

pub use program::command;
