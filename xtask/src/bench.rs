//! Owns the benchmarks' command lines; what is measured is in the `benches/` of the crate that it is about.

use std::num::NonZeroUsize;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::plugins;

/// What to measure.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Options {
    /// One reconcile of app-service in the sandbox, on a fresh instance each, beside the same logic native.
    Call(CallOptions),
    /// The host with nothing to do, on a real control plane: memory, and the requests of a resync and of a restart.
    Idle,
}

/// How often.
#[derive(Clone, Debug, clap::Args)]
pub struct CallOptions {
    /// Calls of each side in one repetition.
    #[arg(long, value_name = "NUMBER", default_value = "20000")]
    pub calls: NonZeroUsize,
    /// Repetitions, of which the least, the middle and the largest are shown.
    #[arg(long, value_name = "NUMBER", default_value = "5")]
    pub repetitions: NonZeroUsize,
}

/// Builds what is measured, measures, and prints.
pub fn run(options: &Options) -> Result<()> {
    let only = vec!["app-service".to_owned()];
    plugins::build(&plugins::Options {
        only,
        ..plugins::Options::default()
    })?;
    match options {
        Options::Call(CallOptions { calls, repetitions }) => bench(
            "pilothouse-sandbox",
            "call",
            &[calls.to_string(), repetitions.to_string()],
        ),
        Options::Idle => idle(),
    }
}

/// The host as released, steered by a program whose own speed does not matter.
fn idle() -> Result<()> {
    let steps = [
        ["build", "--release", "--package", "pilothouse"].as_slice(),
        &[
            "run",
            "--quiet",
            "--package",
            "pilothouse-end-to-end",
            "--example",
            "idle",
        ],
    ];
    for arguments in steps {
        let status = crate::cargo().args(arguments).status().context("cannot start cargo")?;
        ensure!(status.success(), "cargo {} failed", arguments.join(" "));
    }
    Ok(())
}

/// One benchmark of a crate, built as released.
fn bench(package: &str, name: &str, arguments: &[String]) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask stands in a workspace")?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .current_dir(root)
        .args(["bench", "--quiet", "--package", package, "--bench", name, "--"])
        .args(arguments)
        .status()
        .context("cannot start cargo")?;
    ensure!(
        status.success(),
        "the benchmark {name} of {package} ended with {status}"
    );
    Ok(())
}
