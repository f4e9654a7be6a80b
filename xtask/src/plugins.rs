//! Owns building plugins: each folder of `plugins/` (but the SDK) and of `tests/guests/` becomes the component
//! `target/plugins/NAME.wasm`.
//!
//! [`build`] may be called from tests. The nested cargo has a target directory of its own, so it waits for no lock of the
//! cargo that runs the tests.

mod component;
mod toolchain;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use self::toolchain::Toolchain;
pub use self::toolchain::ToolchainChoice;

/// What guests are compiled for: a target that has no system interface at all, so a component imports only what its
/// plugin was given.
const TARGET: &str = "wasm32-unknown-unknown";

/// The profile of the workspace that plugins are built with.
const PROFILE: &str = "plugin";

/// The folders of which each subfolder with a Cargo.toml is a plugin.
const PLUGIN_FOLDERS: [&str; 2] = ["plugins", "tests/guests"];

/// The folder that is none: what plugins are written with.
const SDK: &str = "plugins/sdk";

/// Which plugins to build, and with which compiler.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct PluginsOptions {
    /// Build only this plugin; may be repeated.
    #[arg(long, value_name = "NAME")]
    pub only: Vec<String>,
    /// The compiler that builds the plugins.
    #[arg(long, value_enum, default_value_t)]
    pub toolchain: ToolchainChoice,
}

/// A component that stands in `target/plugins`.
#[derive(Clone, Debug)]
pub struct Built {
    /// The package's name, which is the plugin's too.
    pub name: String,
    /// The component.
    pub path: PathBuf,
    /// Its size.
    pub bytes: usize,
    /// Whether it differs from what stood there before.
    pub changed: bool,
}

/// Builds and says what was built.
pub fn run(options: &PluginsOptions) -> Result<()> {
    for Built {
        name,
        path,
        bytes,
        changed,
    } in build(options)?
    {
        let path = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        println!(
            "{name:<20} {bytes:>9} bytes  {path}{}",
            if changed { "" } else { "  (unchanged)" }
        );
    }
    Ok(())
}

/// Builds the plugins that are asked for, all when none is named. Where nothing has changed this takes a second.
pub fn build(options: &PluginsOptions) -> Result<Vec<Built>> {
    let toolchain = Toolchain::find(options.toolchain)?;
    let packages = packages(&toolchain)?;
    for name in &options.only {
        let known = || {
            packages
                .iter()
                .map(|package| package.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        };
        ensure!(
            packages.iter().any(|package| package.name == *name),
            "no plugin is named {name}; there are {}",
            known()
        );
    }
    packages
        .iter()
        .filter(|package| options.only.is_empty() || options.only.contains(&package.name))
        .map(|package| build_one(&toolchain, package).with_context(|| format!("building plugin {}", package.name)))
        .collect()
}

/// Where components stand: `target/plugins` of the workspace.
pub fn directory() -> PathBuf {
    root().join("target/plugins")
}

/// The workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a folder of the workspace")
        .to_path_buf()
}

/// A plugin's package.
#[derive(Debug)]
struct Package {
    name: String,
    /// The name of its library, as rustc writes it.
    library: String,
}

/// The plugins among the workspace's packages, in the order of their names.
fn packages(toolchain: &Toolchain) -> Result<Vec<Package>> {
    let mut command = toolchain.cargo(&root());
    command
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .stderr(Stdio::inherit());
    let output = command.output().context("running cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", output.status);
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("reading what cargo metadata says")?;
    let mut packages = Vec::new();
    for MetadataPackage {
        name,
        manifest_path,
        targets,
    } in metadata.packages
    {
        let Some(folder) = manifest_path
            .parent()
            .and_then(|folder| folder.strip_prefix(root()).ok())
        else {
            continue;
        };
        let is_inside = folder
            .parent()
            .is_some_and(|parent| PLUGIN_FOLDERS.iter().any(|it| parent == Path::new(it)));
        if !is_inside || folder == Path::new(SDK) {
            continue;
        }
        let Some(library) = targets
            .into_iter()
            .find(|target| target.kind.iter().any(|kind| kind == "cdylib"))
        else {
            bail!("{name} is no plugin: its Cargo.toml needs [lib] crate-type = [\"cdylib\", \"rlib\"]");
        };
        packages.push(Package {
            name,
            library: library.name.replace('-', "_"),
        });
    }
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

/// The parts of cargo's metadata that are looked at.
#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<MetadataPackage>,
}

#[derive(Debug, Deserialize)]
struct MetadataPackage {
    name: String,
    manifest_path: PathBuf,
    targets: Vec<MetadataTarget>,
}

#[derive(Debug, Deserialize)]
struct MetadataTarget {
    name: String,
    kind: Vec<String>,
}

/// Compiles one plugin and wraps it. Each is compiled by itself, so that the features that one plugin asks of a shared
/// dependency do not change another one's bytes.
fn build_one(toolchain: &Toolchain, package: &Package) -> Result<Built> {
    let target_directory = root().join("target/guests");
    let status = toolchain
        .cargo(&root())
        .args([
            "rustc",
            "--quiet",
            "--lib",
            "--package",
            &package.name,
            "--profile",
            PROFILE,
            "--target",
            TARGET,
        ])
        // With an rlib beside it, rustc refuses link-time optimisation of the cdylib.
        .args(["--crate-type", "cdylib", "--target-dir"])
        .arg(&target_directory)
        .args(toolchain.build_arguments())
        .status()
        .context("running cargo")?;
    ensure!(status.success(), "cargo failed: {status}");
    let module = target_directory
        .join(TARGET)
        .join(PROFILE)
        .join(format!("{}.wasm", package.library));
    let module = fs::read(&module).with_context(|| format!("reading {}", module.display()))?;
    let component = component::wrap(&module)?;
    let path = directory().join(format!("{}.wasm", package.name));
    let changed = write_if_changed(&path, &component).with_context(|| format!("writing {}", path.display()))?;
    Ok(Built {
        name: package.name.clone(),
        path,
        bytes: component.len(),
        changed,
    })
}

/// Puts a file in place at once, so that nobody reads half of it, and only when it differs, so that whoever watches it
/// is not woken for nothing.
fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(false);
    }
    let folder = path.parent().context("the path has a folder")?;
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.persist(path)?;
    Ok(true)
}
