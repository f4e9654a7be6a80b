//! Command line of the chores; the module of its name has each chore.

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser};

/// Development tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Run the benchmarks.
    #[command(subcommand)]
    Bench(crate::bench::BenchOptions),
    /// Build the documentation as a book, with mdBook.
    Book(crate::book::BookOptions),
    /// Run all checks that a change must pass before it is merged.
    Ci(crate::ci::CiOptions),
    /// Run the control plane of the tests until it is interrupted.
    Controlplane(crate::controlplane::ControlPlaneOptions),
    /// Demonstrate the host on a simulated cluster.
    Demo(crate::demo::DemoOptions),
    /// Fuzz the code that reads untrusted input.
    Fuzz(crate::fuzz::FuzzOptions),
    /// Play every scenario under injected faults.
    Faults(crate::faults::FaultsOptions),
    /// Regenerate the generated files.
    Generate(crate::generate::GenerateOptions),
    /// Build the image of the host.
    Image(crate::image::ImageOptions),
    /// Build the plugins and the test guests as components.
    Plugins(crate::plugins::PluginsOptions),
    /// Publish the crates, or check that they can be.
    Publish(crate::publish::PublishOptions),
    /// Draw what a command has printed, read from standard input, as a terminal.
    Screen(crate::recording::ScreenOptions),
    /// Run the tests, part by part.
    Test(crate::test::TestOptions),
}

/// The command line, as the test of the documentation's commands needs it.
pub fn command() -> clap::Command {
    Command::command()
}

/// Runs the chore that the command line names.
pub fn execute() -> ExitCode {
    let done = match Command::parse() {
        Command::Bench(options) => crate::bench::run(&options),
        Command::Book(options) => crate::book::run(&options),
        Command::Ci(options) => crate::ci::run(&options),
        Command::Controlplane(options) => crate::controlplane::run(&options),
        Command::Demo(options) => crate::demo::run(&options),
        Command::Fuzz(options) => crate::fuzz::run(&options),
        Command::Faults(options) => crate::faults::run(&options),
        Command::Generate(options) => crate::generate::run(&options),
        Command::Image(options) => crate::image::run(&options),
        Command::Plugins(options) => crate::plugins::run(&options),
        Command::Publish(options) => crate::publish::run(&options),
        Command::Screen(options) => crate::recording::screen(&options),
        Command::Test(options) => crate::test::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
