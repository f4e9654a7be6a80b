//! Starts the tests' control plane by hand, and decides whether one is available. `pilothouse-testkit` runs it in a
//! process of its own: linked in, it would make every chore wait for its dependencies.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::example;

/// The example that starts a control plane.
const EXAMPLE: &str = "controlplane";

/// Options of `cargo xtask controlplane`.
#[derive(Clone, Debug, clap::Args)]
pub struct ControlPlaneOptions {
    /// Only build the control plane's programs that are missing.
    #[arg(long, conflicts_with = "check")]
    build: bool,
    /// Only report whether a control plane is available.
    #[arg(long)]
    check: bool,
}

/// Starts a control plane and keeps it until it is interrupted.
pub fn run(options: &ControlPlaneOptions) -> Result<()> {
    let mut command = example(EXAMPLE)?;
    if options.build {
        command.arg("--build");
    } else if options.check {
        command.arg("--check");
    }
    let status = command.status().context("run the control plane's example")?;
    ensure!(status.success(), "the control plane failed ({status})");
    Ok(())
}

/// Returns the reason why there is no control plane; none when there is one or it can be built.
pub(crate) fn missing() -> Result<Option<String>> {
    let output = example(EXAMPLE)?.arg("--check").stderr(Stdio::piped()).output();
    let output = output.context("run the control plane's example")?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Ok((!output.status.success()).then_some(said))
}
