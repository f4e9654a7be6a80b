//! Owns publishing the crates of this repository: which ones, checked as packages, in the order in which they depend on each
//! other. Leaves packing and uploading to cargo. docs/versions.md says when it is done.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cargo;

/// Options of `cargo xtask publish`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PublishOptions {
    /// Pack the crates and upload nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: compile each package from what is in it, which takes as long as the workspace takes.
    #[arg(long, requires = "dry_run")]
    pub verify: bool,
    /// Pack files that are not committed, too.
    #[arg(long)]
    pub allow_dirty: bool,
}

/// Packs the crates, and uploads them unless this is a dry run.
pub fn run(options: &PublishOptions) -> Result<()> {
    let crates = published()?;
    let mut command = cargo();
    if options.dry_run {
        command.args(["package", "--locked"]);
        if !options.verify {
            command.arg("--no-verify");
        }
    } else {
        // Cargo uploads them in order, and waits for each until the registry has it.
        command.args(["publish", "--locked"]);
    }
    if options.allow_dirty {
        command.arg("--allow-dirty");
    }
    for name in &crates {
        command.args(["--package", name]);
    }
    let status = command.status().context("run cargo")?;
    ensure!(status.success(), "the crates cannot be packed: cargo says why above");
    println!("{} crates: {}", crates.len(), crates.join(", "));
    Ok(())
}

/// The crates that are published, by name.
pub fn published() -> Result<Vec<String>> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read what cargo metadata says")?;
    let published = metadata
        .packages
        .into_iter()
        .filter(|it| it.publish.as_ref().is_none_or(|it| !it.is_empty()));
    let mut names: Vec<_> = published.map(|it| it.name).collect();
    names.sort();
    Ok(names)
}

/// The parts of cargo's metadata that are looked at.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    name: String,
    /// The registries to which it may go; without it, all of them.
    publish: Option<Vec<String>>,
}
