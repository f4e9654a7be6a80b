//! Calls cargo for a plugin: with target, linker flags and profile, and without the folders of this machine. All of it
//! is given on the command line, so that a project needs no setting of its own.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::TARGET;
use crate::package::Package;
use crate::toolchain::{self, Toolchain};

/// Linker arguments of plugins: 2 MiB of memory from the start, so that a call seldom grows it (each growth costs the
/// host two mprotect calls under a lock that all threads share), and a stack of 128 KiB in place of 1 MiB, which leaves
/// that memory to the heap. A library can't pass link arguments on to the crates that are linked with it.
const LINK_ARGUMENTS: [&str; 2] = ["-Clink-arg=--initial-memory=2097152", "-Clink-arg=-zstack-size=131072"];

/// The profile that plugins are built with unless another one is named.
pub const PROFILE: &str = "plugin";

/// Settings of that profile: speed first, because opt-level z costs 2.5 times as much per call and saves little.
const PROFILE_SETTINGS: [&str; 6] = [
    "inherits=\"release\"",
    "opt-level=3",
    "lto=\"fat\"",
    "codegen-units=1",
    "panic=\"abort\"",
    "strip=true",
];

/// One call of cargo.
#[derive(Debug)]
pub struct Compilation<'a> {
    /// The compiler.
    pub toolchain: Toolchain,
    /// The crate.
    pub package: &'a Package,
    /// Cargo's target directory.
    pub target_directory: &'a Path,
    /// A profile of the project in place of [`PROFILE`].
    pub profile: Option<&'a str>,
    /// Further arguments of cargo, such as `--quiet` or `--offline`.
    pub arguments: &'a [OsString],
}

impl Compilation<'_> {
    /// Compiles the crate and returns the bytes of the module. Cargo's output goes to standard error.
    ///
    /// Each plugin is compiled by itself, so that features of a shared dependency do not change another plugin's bytes.
    pub fn run(&self) -> Result<Vec<u8>> {
        let Self {
            toolchain,
            package,
            target_directory,
            profile,
            arguments,
        } = self;
        let mut command = toolchain.cargo(&package.folder);
        command.args(["rustc", "--lib", "--package", &package.name, "--target", TARGET]);
        command.args(["--profile", profile.unwrap_or(PROFILE)]);
        if profile.is_none() {
            for setting in PROFILE_SETTINGS {
                command.args(["--config", &format!("profile.{PROFILE}.{setting}")]);
            }
        }
        let status = command
            // With an rlib beside it, rustc refuses link-time optimisation of the cdylib.
            .args(["--crate-type", "cdylib", "--target-dir"])
            .arg(target_directory)
            .args(["--config", &rustflags(package)])
            .args(toolchain.arguments())
            .args(*arguments)
            .arg("--")
            .args(remapped(own_folders(package)))
            .status()
            .context("running cargo")?;
        ensure!(
            status.success(),
            "{} cannot be compiled for {TARGET}: cargo says why above",
            package.name
        );
        let folder = profile_folder(profile.unwrap_or(PROFILE));
        let module = target_directory
            .join(TARGET)
            .join(folder)
            .join(format!("{}.wasm", package.library));
        fs::read(&module).with_context(|| format!("cannot read {}", module.display()))
    }
}

/// Returns the name of a profile's folder. Some of cargo's own profiles have a folder of another name.
fn profile_folder(profile: &str) -> &str {
    match profile {
        "dev" | "test" => "debug",
        "bench" => "release",
        named => named,
    }
}

/// Returns the flags of the linker, and the names that replace the folders of this machine in panic messages, so that
/// builds have the same bytes everywhere. The project's own folder is only among them if it has other crates: cargo
/// recompiles dependencies if the flags differ, and projects may share a target directory.
fn rustflags(package: &Package) -> String {
    let mut folders = folders(package);
    if package.has_members {
        folders.extend(own_folders(package));
    }
    let flags: Vec<_> = LINK_ARGUMENTS
        .into_iter()
        .map(str::to_owned)
        .chain(remapped(folders))
        .collect();
    // A TOML array of basic strings has the same syntax in JSON.
    format!("target.{TARGET}.rustflags={}", serde_json::json!(flags))
}

fn remapped(folders: Vec<(PathBuf, String)>) -> impl Iterator<Item = String> {
    let folders = folders.into_iter();
    folders.map(|(from, to)| format!("--remap-path-prefix={}={to}", from.display()))
}

/// Returns the folder of the project; only its own crates are compiled with it.
fn own_folders(package: &Package) -> Vec<(PathBuf, String)> {
    vec![(package.workspace.clone(), "plugin".to_owned())]
}

/// Returns the folders that projects share, with the replacement of each. rustc uses the last one that matches.
fn folders(package: &Package) -> Vec<(PathBuf, String)> {
    let mut folders: Vec<_> = toolchain::home()
        .map(|home| (home, "home".to_owned()))
        .into_iter()
        .collect();
    for kind in ["registry/src", "git/checkouts"] {
        let kept = toolchain::cargo_home().and_then(|home| fs::read_dir(home.join(kind)).ok());
        let mut kept: Vec<_> = kept.into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        kept.sort();
        folders.extend(kept.into_iter().map(|path| (path, "crates".to_owned())));
    }
    folders.extend(package.neighbours.iter().cloned());
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(has_members: bool) -> Package {
        Package {
            name: "website".to_owned(),
            version: "0.1.0".to_owned(),
            folder: "/home/ada/website".into(),
            library: "website".to_owned(),
            workspace: "/home/ada/website".into(),
            target_directory: "/home/ada/website/target".into(),
            neighbours: vec![("/sdk".into(), "pilothouse-plugin".to_owned())],
            has_members,
        }
    }

    #[test]
    fn the_flags_of_dependencies_do_not_name_the_project() {
        let flags = rustflags(&package(false));
        assert!(flags.contains("--remap-path-prefix=/sdk=pilothouse-plugin"), "{flags}");
        assert!(!flags.contains("/home/ada"), "{flags}");
        let own: Vec<String> = remapped(own_folders(&package(false))).collect();
        assert_eq!(own, ["--remap-path-prefix=/home/ada/website=plugin"]);
    }

    #[test]
    fn the_folder_of_a_workspace_wins_over_all_that_it_is_in() {
        let flags = rustflags(&package(true));
        assert!(
            flags.ends_with("\"--remap-path-prefix=/home/ada/website=plugin\"]"),
            "{flags}"
        );
    }
}
