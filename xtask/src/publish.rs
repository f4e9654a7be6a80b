//! Publishes the crates of this repository, checked as packages, in the order of their dependencies. Cargo packs and
//! uploads. docs/versions.md describes the procedure.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::cargo;

/// Options of `cargo xtask publish`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PublishOptions {
    /// Check and pack the crates as for the registry, and upload nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: compile each package from what is in it, which takes as long as the workspace takes.
    #[arg(long, requires = "dry_run")]
    pub verify: bool,
    /// Pack files that are not committed, too.
    #[arg(long)]
    pub allow_dirty: bool,
}

/// Packs the crates, and uploads them unless this is a dry run. A version that the registry has already is not uploaded
/// again, so that a release that failed half-way continues where it stopped.
pub fn run(options: &PublishOptions) -> Result<()> {
    let crates = published()?;
    let missing: Vec<_> = if options.dry_run {
        crates
    } else {
        crates.into_iter().filter(|it| !is_in_registry(it)).collect()
    };
    if missing.is_empty() {
        println!("the registry has this version of all crates");
        return Ok(());
    }
    let status = cargo()
        .args(arguments(options, &missing))
        .status()
        .context("run cargo")?;
    ensure!(status.success(), "the crates cannot be published: cargo says why above");
    let names: Vec<_> = missing.iter().map(|it| it.name.as_str()).collect();
    println!("{} crates: {}", names.len(), names.join(", "));
    Ok(())
}

/// Returns cargo's arguments. Cargo uploads the crates in order, and waits for each until the registry has it.
fn arguments(options: &PublishOptions, crates: &[PublishedCrate]) -> Vec<String> {
    let PublishOptions {
        dry_run,
        verify,
        allow_dirty,
    } = *options;
    let mut arguments = vec!["publish", "--locked"];
    if dry_run {
        arguments.push("--dry-run");
        if !verify {
            arguments.push("--no-verify");
        }
    }
    if allow_dirty {
        arguments.push("--allow-dirty");
    }
    for PublishedCrate { name, .. } in crates {
        arguments.extend(["--package", name]);
    }
    arguments.into_iter().map(str::to_owned).collect()
}

/// Returns `true` if crates.io has this version. Where that is not known, for example without a network, cargo tries to
/// publish it and reports the error.
fn is_in_registry(published: &PublishedCrate) -> bool {
    let PublishedCrate { name, version } = published;
    let version = format!("{name}@{version}");
    let found = cargo()
        .args(["info", "--quiet", "--registry", "crates-io", &version])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let is_there = found.is_ok_and(|status| status.success());
    if is_there {
        println!("{version} is in the registry already");
    }
    is_there
}

/// A crate that is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedCrate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The crates that are published, in the order of their names.
pub fn published() -> Result<Vec<PublishedCrate>> {
    let output = cargo()
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit())
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata ended with {}", output.status);
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("read what cargo metadata says")?;
    let mut crates: Vec<_> = metadata
        .packages
        .into_iter()
        .filter(|it| it.publish.as_ref().is_none_or(|it| !it.is_empty()))
        .map(|MetadataPackage { name, version, .. }| PublishedCrate { name, version })
        .collect();
    crates.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(crates)
}

/// The parts of cargo's metadata that are looked at.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    name: String,
    version: String,
    /// The registries to which it may go; without it, all of them.
    publish: Option<Vec<String>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dry_run_is_cargos_own_and_uploads_nothing() {
        let crates = ["a", "b"].map(|name| PublishedCrate {
            name: name.to_owned(),
            version: "0.1.0".to_owned(),
        });
        let told = |options: &PublishOptions| arguments(options, &crates).join(" ");
        let mut options = PublishOptions::default();
        assert_eq!(told(&options), "publish --locked --package a --package b");
        options.dry_run = true;
        let expected = "publish --locked --dry-run --no-verify --package a --package b";
        assert_eq!(told(&options), expected);
        (options.verify, options.allow_dirty) = (true, true);
        let expected = "publish --locked --dry-run --allow-dirty --package a --package b";
        assert_eq!(told(&options), expected);
    }
}
