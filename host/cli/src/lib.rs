//! Library of the programs `pilothouse` and `pilothouse-host`: a module for each command, and their common parts.
//! `main.rs` is the program for people, with all commands. `bin/pilothouse-host.rs` is the image's: the host alone.
#![forbid(unsafe_code)]

#[macro_use]
pub mod output;
pub mod accepted;
pub mod artifact;
pub mod ask;
pub mod compiling;
pub mod inspect;
pub mod install;
pub mod migrate_storage;
pub mod options;
pub mod pause;
pub mod plugins;
pub mod primary;
pub mod reconcile;
pub mod release;
pub mod render;
pub mod run;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pilothouse_cluster::error::chain;
use pilothouse_core::ownership::consent::NotAccepted;
use pilothouse_core::text::printable::printable_lines;

/// `compile-component`: the host runs its own program with this command as a child process, so that the compiler's memory is
/// released.
#[derive(Args)]
pub struct CompileCommand {
    /// The component to compile
    input: PathBuf,
    /// The file to write the machine code to
    output: PathBuf,
}

impl CompileCommand {
    /// Compiles the component.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self { input, output } = self;
        Ok(pilothouse_sandbox::compile_file(&input, &output)?)
    }
}

/// Exit code of a wrong command line, like clap's.
const WRONG_COMMAND_LINE: u8 = 2;

/// Error of a command line whose options are well-formed but contradictory or incomplete.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct WrongCommandLine(pub String);

impl WrongCommandLine {
    /// Returns an error that only the options have caused.
    pub fn of(error: anyhow::Error) -> anyhow::Error {
        let error: Box<dyn std::error::Error + Send + Sync> = error.into();
        Self(chain(&*error)).into()
    }
}

/// Marks an error that the log has already.
#[derive(Debug, thiserror::Error)]
#[error("the host ends")]
pub struct Logged;

/// Exit code of `status --check` if the host is unhealthy. 1 is any error, and 2 a wrong command line.
const UNHEALTHY: u8 = 3;

/// Exit code of a preview that finds changes.
const WOULD_CHANGE: u8 = 3;

/// Exit code of a change that takes a consent that is not given.
const NOT_ACCEPTED: u8 = 4;

/// A preview has found changes, which have been printed.
#[derive(Debug, thiserror::Error)]
#[error("nothing was changed: this was a dry run")]
pub struct WouldChange;

/// Turns a command's result into the exit code; an error is printed in one line.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<WouldChange>() => {
            eprintln!("{error}");
            ExitCode::from(WOULD_CHANGE)
        }
        Err(error) => {
            if !error.is::<Logged>() {
                eprintln!("error: {}", printable_lines(&chain(&*error)));
            }
            if error.is::<ask::status::Unhealthy>() {
                return ExitCode::from(UNHEALTHY);
            }
            if error.is::<NotAccepted>() {
                return ExitCode::from(NOT_ACCEPTED);
            }
            if error.is::<WrongCommandLine>() {
                return ExitCode::from(WRONG_COMMAND_LINE);
            }
            ExitCode::FAILURE
        }
    }
}
