//! Exit codes of the program: 0 is success, 1 an error, 2 a wrong command line, 3 an unexpected result of a plugin.

use std::process::ExitCode;

use pilothouse_core::text::printable::printable_lines;

/// Exit code of an unexpected result.
const NOT_AS_EXPECTED: u8 = 3;

/// Error of a plugin that was run, and whose result is not as expected. The details have been printed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct NotAsExpected(pub String);

/// Turns a command's result into the program's exit code.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Err(error) if error.is::<NotAsExpected>() => {
            eprintln!("{}", printable_lines(&error.to_string()));
            ExitCode::from(NOT_AS_EXPECTED)
        }
        other => pilothouse_host::ended(other),
    }
}
