//! The Cargo package that a component was built from, and its metadata.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use serde_json::Value;

/// The Cargo package that a component was built from.
pub struct CargoPackage {
    /// The package's name.
    pub name: String,
    package: Value,
    directory: PathBuf,
}

impl CargoPackage {
    /// Returns the package in a directory.
    pub fn in_directory(directory: &Path) -> anyhow::Result<Self> {
        let manifest = directory.join("Cargo.toml");
        let manifest = manifest
            .canonicalize()
            .with_context(|| format!("{} is no Cargo package: it has no Cargo.toml", directory.display()))?;
        let listed = metadata(&manifest)?;
        let is_it = |package: &&Value| package["manifest_path"].as_str().map(Path::new) == Some(&manifest);
        let package = packages(&listed).iter().find(is_it);
        let package = package.with_context(|| {
            format!(
                "{} is a workspace without a package of its own; give the directory of the plugin's crate",
                directory.display()
            )
        })?;
        Self::of(package.clone())
    }

    /// Returns the package that a component was built from, if the file lies below Cargo's target directory and one
    /// library of that workspace has the file's name. None if there is no such package or more than one.
    pub fn of_component(file: &Path) -> anyhow::Result<Option<Self>> {
        let file = file.canonicalize()?;
        let Some(workspace) = workspace_of(&file) else {
            return Ok(None);
        };
        let listed = metadata(&workspace.join("Cargo.toml"))?;
        let is_below = listed["target_directory"]
            .as_str()
            .is_some_and(|directory| file.starts_with(directory));
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().replace('-', "_");
        let mut candidates = packages(&listed).iter().filter(|package| has_library(package, &stem));
        match (is_below, candidates.next(), candidates.next()) {
            (true, Some(package), None) => Self::of(package.clone()).map(Some),
            _ => Ok(None),
        }
    }

    fn of(package: Value) -> anyhow::Result<Self> {
        let text = |member: &str| package[member].as_str().map(str::to_owned);
        let (Some(name), Some(manifest)) = (text("name"), text("manifest_path")) else {
            bail!("cargo metadata lists a package without name or manifest_path; update Cargo");
        };
        let manifest = PathBuf::from(manifest);
        Ok(Self {
            name,
            directory: manifest.parent().unwrap_or(Path::new("")).to_owned(),
            package,
        })
    }

    /// Returns the URL of the source code.
    pub fn repository(&self) -> Option<&str> {
        self.package["repository"].as_str()
    }

    /// Returns the licence, an SPDX expression.
    pub fn license(&self) -> Option<&str> {
        self.package["license"].as_str()
    }

    /// Returns the directory with the package's Cargo.toml.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of the package's README.
    pub fn readme(&self) -> Option<PathBuf> {
        Some(self.directory.join(self.package["readme"].as_str()?))
    }
}

/// Returns the workspace's directory: the one whose `target` the file is below.
fn workspace_of(file: &Path) -> Option<&Path> {
    file.ancestors()
        .filter(|it| it.file_name().is_some_and(|name| name == "target"))
        .filter_map(Path::parent)
        .find(|it| it.join("Cargo.toml").is_file())
}

fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().map_or(&[], Vec::as_slice)
}

/// Reports whether a package builds a component with this name.
fn has_library(package: &Value, stem: &str) -> bool {
    let targets = package["targets"].as_array().map_or(&[][..], Vec::as_slice);
    targets.iter().any(|target| {
        let types = target["crate_types"].as_array().map_or(&[][..], Vec::as_slice);
        let name = target["name"].as_str().unwrap_or_default().replace('-', "_");
        name == stem && types.iter().any(|it| it == "cdylib")
    })
}

/// Runs `cargo metadata`, without network and without changing the lock file.
fn metadata(manifest: &Path) -> anyhow::Result<Value> {
    let output = Command::new("cargo")
        .args([
            "metadata",
            "--format-version=1",
            "--no-deps",
            "--frozen",
            "--manifest-path",
        ])
        .arg(manifest)
        .stdin(Stdio::null())
        .output()
        .context("cannot run cargo, which knows the plugin's crate; install Rust")?;
    if !output.status.success() {
        bail!(
            "cargo metadata fails for {}: {}",
            manifest.display(),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata does not print JSON; update Cargo")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_workspace_is_beside_the_target_directory() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let inner = root.join("target").join("x").join("target").join("release");
        std::fs::create_dir_all(&inner).unwrap();
        assert_eq!(workspace_of(&inner.join("a.wasm")), None);
        std::fs::write(root.join("Cargo.toml"), "").unwrap();
        assert_eq!(workspace_of(&inner.join("a.wasm")), Some(&*root));
        assert_eq!(workspace_of(&root.join("a.wasm")), None);
    }

    #[test]
    fn a_component_is_called_as_its_library() {
        let package = json!({"targets": [
            {"name": "app_service", "crate_types": ["cdylib", "rlib"]},
            {"name": "build-script-build", "crate_types": ["bin"]},
        ]});
        assert!(has_library(&package, "app_service"));
        assert!(!has_library(&package, "build_script_build") && !has_library(&package, "app"));
    }
}
