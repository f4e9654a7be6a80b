//! Owns what cargo says of a plugin's crate: its name, its library, the folders that its build touches. Leaves building it to
//! `compile`.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use crate::toolchain::Toolchain;

/// The library that makes a crate a plugin.
const CDYLIB: &str = "cdylib";

/// What a crate needs to become one.
const CRATE_TYPE: &str = "its Cargo.toml needs\n\n[lib]\ncrate-type = [\"cdylib\", \"rlib\"]\n";

/// A plugin's crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The package's name, which is the plugin's too.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The folder with its Cargo.toml.
    pub folder: PathBuf,
    /// The name of its library, as rustc writes it.
    pub library: String,
    /// The root of the workspace that it is in; its own folder if it is in none.
    pub workspace: PathBuf,
    /// Where cargo builds.
    pub target_directory: PathBuf,
    /// The folders of crates outside of the workspace that it is built with, such as a checkout of the SDK, with the name of
    /// each.
    pub neighbours: Vec<(PathBuf, String)>,
}

impl Package {
    /// The plugin in a folder, with the arguments that cargo is to have, such as `--offline`.
    pub fn find(toolchain: Toolchain, folder: &Path, arguments: &[OsString]) -> Result<Self> {
        ensure!(
            folder.is_dir(),
            "{} is no folder; give the folder of the plugin's crate, or its component",
            folder.display()
        );
        let folder = fs::canonicalize(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let manifest = folder.join("Cargo.toml");
        ensure!(
            manifest.is_file(),
            "{} has no Cargo.toml; run the command in the folder of a plugin's crate, or make one with `pilothouse new`",
            folder.display()
        );
        let metadata = Metadata::of(toolchain, &folder, arguments)?;
        let Some(found) = metadata.packages.iter().find(|it| it.manifest_path == manifest) else {
            let plugins = metadata
                .packages
                .iter()
                .filter(|it| it.source.is_none() && it.library().is_some());
            let plugins: Vec<_> = plugins.map(|it| it.folder().display().to_string()).collect();
            bail!(
                "{} is a workspace and no crate; give the folder of a plugin{}{}",
                folder.display(),
                if plugins.is_empty() { "" } else { ": " },
                plugins.join(", ")
            );
        };
        metadata.package(found)
    }

    /// The plugins of a workspace whose folders fit, in the order of their names.
    pub fn of_workspace(toolchain: Toolchain, root: &Path, fits: impl Fn(&Path) -> bool) -> Result<Vec<Self>> {
        let metadata = Metadata::of(toolchain, root, &["--no-deps".into()])?;
        let fitting = metadata.packages.iter().filter(|it| fits(it.folder()));
        let mut packages: Vec<_> = fitting.map(|it| metadata.package(it)).collect::<Result<_>>()?;
        packages.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(packages)
    }
}

/// The parts of cargo's metadata that are looked at.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    name: String,
    version: String,
    manifest_path: PathBuf,
    source: Option<String>,
    targets: Vec<MetadataTarget>,
}

#[derive(Debug, Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
}

impl Metadata {
    fn of(toolchain: Toolchain, folder: &Path, arguments: &[OsString]) -> Result<Self> {
        let mut command = toolchain.cargo(folder);
        command
            .args(["metadata", "--format-version", "1"])
            .args(arguments)
            .stderr(Stdio::inherit());
        let output = command.output().context("running cargo metadata")?;
        ensure!(
            output.status.success(),
            "cargo cannot read {}: the reason is above",
            folder.join("Cargo.toml").display()
        );
        serde_json::from_slice(&output.stdout).context("reading what cargo metadata says")
    }

    fn package(&self, found: &MetadataPackage) -> Result<Package> {
        let Some(library) = found.library() else {
            bail!("{} is no plugin: {CRATE_TYPE}", found.name);
        };
        let is_outside = |it: &&MetadataPackage| it.source.is_none() && !it.folder().starts_with(&self.workspace_root);
        let neighbours = self.packages.iter().filter(is_outside);
        Ok(Package {
            name: found.name.clone(),
            version: found.version.clone(),
            folder: found.folder().to_path_buf(),
            library: library.name.replace('-', "_"),
            workspace: self.workspace_root.clone(),
            target_directory: self.target_directory.clone(),
            neighbours: neighbours
                .map(|it| (it.folder().to_path_buf(), it.name.clone()))
                .collect(),
        })
    }
}

impl MetadataPackage {
    fn folder(&self) -> &Path {
        self.manifest_path.parent().expect("a manifest is in a folder")
    }

    fn library(&self) -> Option<&MetadataTarget> {
        self.targets.iter().find(|it| it.kind.iter().any(|kind| kind == CDYLIB))
    }
}
