//! Owns the exit codes of the program: 0 is fine, 1 an error, 2 a wrong command line, and 3 says that a plugin was run and
//! something is not as expected.

use std::process::ExitCode;

use pilothouse_core::text::printable::printable_lines;

/// The exit code where something is not as expected.
const NOT_AS_EXPECTED: u8 = 3;

/// A plugin was run, and something is not as expected. What it is has been printed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotAsExpected(pub String);

/// How a command's result ends the program.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.is::<NotAsExpected>() => {
            eprintln!("{}", printable_lines(&error.to_string()));
            ExitCode::from(NOT_AS_EXPECTED)
        }
        other => pilothouse_host::ended(other),
    }
}
