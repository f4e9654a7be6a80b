//! What the program `pilothouse` has for whoever writes a plugin: a module for each command, and what commands share. Leaves
//! the commands of whoever runs a host to `pilothouse-host`.
#![forbid(unsafe_code)]

pub mod bench;
pub mod check;
pub mod plugin;
pub mod render;

use std::process::ExitCode;

use thiserror::Error;

/// The exit code where the plugin was run and something is not as expected. 1 is any error, and 2 a wrong command line.
const NOT_AS_EXPECTED: u8 = 3;

/// The plugin was run, and something is not as expected: a check that failed, a difference.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct NotAsExpected(pub String);

/// How a command's result ends the program: an error is told in one line.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.is::<NotAsExpected>() => {
            eprintln!("{error}");
            ExitCode::from(NOT_AS_EXPECTED)
        }
        other => pilothouse_host::ended(other),
    }
}
