//! The binary: which command, and how its end becomes an exit code.
#![forbid(unsafe_code)]

mod artifact_store;
mod artifacts;
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
use pilothouse_cluster::error::chain;

/// Run many Kubernetes operators in one host process, each as a sandboxed WebAssembly component.
#[derive(Parser)]
#[command(name = "pilothouse", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the host, which reconciles a cluster with plugins.
    Run(run::RunCommand),
    /// Print a plugin's metadata and the kinds that it touches.
    Inspect(inspect::InspectCommand),
    /// Print a plugin's webhook configurations, for an installer to apply.
    Webhooks(render::WebhooksCommand),
    /// Remove the finalizer of a plugin that no longer exists from the objects that wait for it.
    Release(release::ReleaseCommand),
    /// Compile a component. The host runs this command as a child process, so that the compiler's memory is released.
    #[command(hide = true)]
    CompileComponent {
        /// The component to compile.
        input: PathBuf,
        /// The file to write the machine code to.
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
            eprintln!("error: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}
