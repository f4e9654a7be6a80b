//! What the programs `pilothouse` and `pilothouse-host` are made of: a module for each command, and what commands share.
//! `main.rs` is the program for people, with all commands. `bin/pilothouse-host.rs` is what an image needs: the host alone.
#![forbid(unsafe_code)]

pub mod artifact;
mod election;
pub mod inspect;
pub mod install;
mod metrics;
pub mod plugins;
pub mod release;
pub mod render;
pub mod run;
mod settings;
pub mod webhooks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use pilothouse_cluster::error::chain;

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
    /// Compiles.
    pub fn execute(self) -> anyhow::Result<()> {
        let Self { input, output } = self;
        Ok(pilothouse_sandbox::compile_file(&input, &output)?)
    }
}

/// How a command's result ends a program: an error is told in one line.
pub fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}
