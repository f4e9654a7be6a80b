//! The program of the image: the host, with the options of `pilothouse run` and without the commands for people.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use pilothouse_host::{CompileCommand, ended, run};

/// Help below the options.
const EXAMPLES: &str = "\
Examples:
  pilothouse-host --install-crds                                  # the plugins of the cluster's Plugin resources
  pilothouse-host --plugin-dir /plugins                           # the same, with components from this folder
  pilothouse-host --leader-election --namespace pilothouse-system # one of several replicas

SIGTERM and Ctrl-C end the host in order: running reconciles have the time of --grace.

Exit code: 0 after a signal, 1 if the host cannot start or cannot go on, 2 if the command line is wrong.";

/// Run the host of Pilothouse, which reconciles a cluster with plugins. The program `pilothouse` has the same as
/// `pilothouse run`, and the commands for people.
#[derive(Parser)]
#[command(
    name = "pilothouse-host",
    version,
    after_help = EXAMPLES,
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_help_has_examples_of_this_program_and_exit_codes() {
        let help = Arguments::command().render_long_help().to_string();
        assert!(help.contains("\nExamples:\n  pilothouse-host "), "{help}");
        assert!(help.contains("\nExit code: 0"), "{help}");
        assert!(!help.contains("  pilothouse run "), "{help}");
    }
}
