//! `cargo xtask faults`: builds the fault suite's inputs, then becomes the suite's program. `pilothouse-faults` is a
//! program of its own: linked in, the host and the cluster would make every chore wait for their dependencies.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::{cargo, plugins, root};

/// The crate of the suite, whose program has the same name.
const PROGRAM: &str = "pilothouse-faults";

/// Options that are passed to the fault suite.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(disable_help_flag = true)]
pub struct FaultsOptions {
    /// Options of the fault suite; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds the inputs and runs the suite. Returns only where that fails.
pub fn run(options: &FaultsOptions) -> Result<()> {
    let mut suite = build()?;
    suite.args(&options.arguments);
    Err(anyhow!(suite.exec()).context("run the fault suite"))
}

/// Builds the inputs and runs the suite as one check among others.
pub fn check(arguments: &[&str]) -> Result<()> {
    let status = build()?.args(arguments).status().context("run the fault suite")?;
    ensure!(
        status.success(),
        "the fault suite failed; it prints the commands that repeat the failures"
    );
    Ok(())
}

fn build() -> Result<Command> {
    plugins::build(&plugins::PluginsOptions::default())?;
    // With the features of the whole workspace, as the tests have them, so that no dependency is built twice.
    let built = cargo()
        .args([
            "build",
            "--quiet",
            "--workspace",
            "--bin",
            PROGRAM,
            "--bin",
            "pilothouse",
        ])
        .status()
        .context("run cargo build")?;
    ensure!(built.success(), "the fault suite can't be built");
    let mut suite = Command::new(program());
    suite.current_dir(root());
    Ok(suite)
}

fn program() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("debug").join(PROGRAM)
}
