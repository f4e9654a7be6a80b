//! Owns the command line of the chores; what each does is in the module of its name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// The project's chores.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Measures.
    #[command(subcommand)]
    Bench(xtask::bench::BenchOptions),
    /// Checks everything that must hold before a change goes in.
    Ci(xtask::ci::CiOptions),
    /// Runs the control plane of the tests until it is interrupted.
    Controlplane(xtask::controlplane::ControlPlaneOptions),
    /// Shows the host at work on a simulated cluster.
    Demo(xtask::demo::DemoOptions),
    /// Gives those who read what comes from outside whatever a fuzzer can think of.
    Fuzz(xtask::fuzz::FuzzOptions),
    /// Plays every scenario under faults.
    Faults(xtask::faults::FaultsOptions),
    /// Makes generated files anew.
    Generate(xtask::generate::GenerateOptions),
    /// Builds the plugins and the guests of the tests as components.
    Plugins(xtask::plugins::PluginsOptions),
    /// Runs the tests, part by part.
    Test(xtask::test::TestOptions),
}

fn main() -> ExitCode {
    if let Some(ended) = xtask::fuzz::as_rustc() {
        return match ended {
            Ok(status) => status
                .code()
                .and_then(|code| u8::try_from(code).ok())
                .map_or(ExitCode::FAILURE, ExitCode::from),
            Err(error) => {
                eprintln!("xtask: {error:#}");
                ExitCode::FAILURE
            }
        };
    }
    let done = match Command::parse() {
        Command::Bench(options) => xtask::bench::run(&options),
        Command::Ci(options) => xtask::ci::run(&options),
        Command::Controlplane(options) => xtask::controlplane::run(&options),
        Command::Demo(options) => xtask::demo::run(&options),
        Command::Fuzz(options) => xtask::fuzz::run(&options),
        Command::Faults(options) => xtask::faults::run(&options),
        Command::Generate(options) => xtask::generate::run(&options),
        Command::Plugins(options) => xtask::plugins::run(&options),
        Command::Test(options) => xtask::test::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
