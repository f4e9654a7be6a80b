//! The binary: which command, and how its end becomes an exit code.
#![forbid(unsafe_code)]

mod inspect;
mod plugins;
mod release;
mod render;
mod run;
mod settings;
mod webhooks;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// One host process that steers many Kubernetes operators, each a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "pilothouse", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Steer a cluster with plugins.
    Run(run::Run),
    /// Print what a plugin is and what it touches.
    Inspect(inspect::Inspect),
    /// Print what has API servers ask a plugin, for who does not let the host make it.
    Webhooks(render::Webhooks),
    /// Free objects that wait for the finalizer of a plugin that was lost.
    Release(release::Release),
    /// Compile a component; the host runs itself with this command, so that the compiler's memory goes with the child.
    #[command(hide = true)]
    CompileComponent {
        /// The component.
        input: PathBuf,
        /// Where the machine code goes.
        output: PathBuf,
    },
}

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let result = match command {
        Command::Run(run) => run.execute(),
        Command::Inspect(inspect) => inspect.execute(),
        Command::Webhooks(webhooks) => webhooks.execute(),
        Command::Release(release) => release.execute(),
        Command::CompileComponent { input, output } => {
            pilothouse_sandbox::compile_file(&input, &output).map_err(anyhow::Error::from)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
