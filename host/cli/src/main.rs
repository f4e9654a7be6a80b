//! The program of the image: the host, with the options of `pilothouse run` and without the commands for people.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pilothouse_host::{CompileCommand, ended, run};

/// Run the host of Pilothouse, which reconciles a cluster with plugins. The program `pilothouse` has the same as
/// `pilothouse run`, and the commands for people.
#[derive(Parser)]
#[command(
    name = "pilothouse-host",
    version,
    args_conflicts_with_subcommands = true,
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(flatten)]
    run: run::RunCommand,

    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    #[command(hide = true)]
    CompileComponent(CompileCommand),
}

fn main() -> ExitCode {
    let Arguments { run, command } = Arguments::parse();
    ended(match command {
        None => run.execute(),
        Some(Command::CompileComponent(compile)) => compile.execute(),
    })
}
