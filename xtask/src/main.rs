//! Owns the command line of the chores; what each does is in the module of its name.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;

/// Development tasks of the project.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Command {
    /// Run the benchmarks.
    #[command(subcommand)]
    Bench(xtask::bench::BenchOptions),
    /// Build the documentation as a book, with mdBook.
    Book(xtask::book::BookOptions),
    /// Run all checks that a change must pass before it is merged.
    Ci(xtask::ci::CiOptions),
    /// Run the control plane of the tests until it is interrupted.
    Controlplane(xtask::controlplane::ControlPlaneOptions),
    /// Demonstrate the host on a simulated cluster.
    Demo(xtask::demo::DemoOptions),
    /// Fuzz the code that reads untrusted input.
    Fuzz(xtask::fuzz::FuzzOptions),
    /// Play every scenario under injected faults.
    Faults(xtask::faults::FaultsOptions),
    /// Regenerate the generated files.
    Generate(xtask::generate::GenerateOptions),
    /// Build the image of the host.
    Image(xtask::image::ImageOptions),
    /// Build the plugins and the test guests as components.
    Plugins(xtask::plugins::PluginsOptions),
    /// Publish the crates, or check that they can be.
    Publish(xtask::publish::PublishOptions),
    /// Run the tests, part by part.
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
        Command::Book(options) => xtask::book::run(&options),
        Command::Ci(options) => xtask::ci::run(&options),
        Command::Controlplane(options) => xtask::controlplane::run(&options),
        Command::Demo(options) => xtask::demo::run(&options),
        Command::Fuzz(options) => xtask::fuzz::run(&options),
        Command::Faults(options) => xtask::faults::run(&options),
        Command::Generate(options) => xtask::generate::run(&options),
        Command::Image(options) => xtask::image::run(&options),
        Command::Plugins(options) => xtask::plugins::run(&options),
        Command::Publish(options) => xtask::publish::run(&options),
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
