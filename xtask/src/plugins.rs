//! Builds the plugins of this repository: each folder of `plugins/` (but the SDK) and of `tests/guests/` becomes the
//! component `target/plugins/NAME.wasm`. `pilothouse_build` builds one plugin.
//!
//! [`build`] may be called from tests. The nested cargo has a target directory of its own, so it waits for no lock of the
//! cargo that runs the tests.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use pilothouse_build::compile::Compilation;
use pilothouse_build::package::Package;
use pilothouse_build::toolchain::Toolchain;
pub use pilothouse_build::toolchain::ToolchainChoice;
use pilothouse_build::{component, write_if_changed};

use crate::root;

/// The folders of which each subfolder with a Cargo.toml is a plugin.
const PLUGIN_FOLDERS: [&str; 2] = ["plugins", "tests/guests"];

/// Folder of `plugins/` that is no plugin: the SDK.
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

/// A component in `target/plugins`.
#[derive(Clone, Debug)]
pub struct Built {
    /// The package's name, which is the plugin's too.
    pub name: String,
    /// The component.
    pub path: PathBuf,
    /// Its size.
    pub bytes: usize,
    /// Set if it differs from the component before.
    pub changed: bool,
}

/// Builds the plugins and prints the result.
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

/// Builds the named plugins, all when none is named. Where nothing has changed this takes a second.
pub fn build(options: &PluginsOptions) -> Result<Vec<Built>> {
    let toolchain = Toolchain::find(options.toolchain)?;
    let packages = packages(toolchain)?;
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
        .map(|package| build_one(toolchain, package).with_context(|| format!("building plugin {}", package.name)))
        .collect()
}

/// Folder of the components: `target/plugins` of the workspace.
pub fn directory() -> PathBuf {
    root().join("target/plugins")
}

/// The plugins among the workspace's packages, in the order of their names.
fn packages(toolchain: Toolchain) -> Result<Vec<Package>> {
    Package::of_workspace(toolchain, &root(), is_of_plugin)
}

/// Returns `true` if a plugin's crate is in this folder.
fn is_of_plugin(folder: &Path) -> bool {
    let Ok(folder) = folder.strip_prefix(root()) else {
        return false;
    };
    let is_inside = |parent: &Path| PLUGIN_FOLDERS.iter().any(|it| parent == Path::new(it));
    folder.parent().is_some_and(is_inside) && folder != Path::new(SDK)
}

/// Compiles one plugin and wraps it.
fn build_one(toolchain: Toolchain, package: &Package) -> Result<Built> {
    let module = Compilation {
        toolchain,
        package,
        target_directory: &root().join("target/guests"),
        profile: None,
        arguments: &["--quiet".into()],
    }
    .run()?;
    let component = component::wrap(&module)?;
    let path = directory().join(format!("{}.wasm", package.name));
    let changed = write_if_changed(&path, &component)?;
    Ok(Built {
        name: package.name.clone(),
        path,
        bytes: component.len(),
        changed,
    })
}
