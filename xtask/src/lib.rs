//! The project's chores, one module each, callable from tests too. `cargo xtask --help` lists them.

#![forbid(unsafe_code)]

pub mod author_bench;
pub mod bench;
pub mod book;
pub mod builders;
mod cargo_tool;
pub mod ci;
pub mod command_line;
pub mod controlplane;
mod debian;
pub mod demo;
mod faketime;
pub mod faults;
pub mod fuzz;
pub mod generate;
pub mod image;
pub mod languages;
mod nginx;
pub mod plugins;
mod programs;
pub mod publish;
mod recording;
pub mod test;

use std::{env, ffi::OsStr, path::PathBuf, process::Command, time::Duration};

use anyhow::{Context as _, ensure};

/// A time for people.
fn minutes(duration: Duration) -> f64 {
    duration.as_secs_f64() / 60.0
}

/// The workspace.
fn root() -> PathBuf {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("xtask is a folder of the workspace").to_owned()
}

/// The cargo that runs this chore, in the workspace.
fn cargo() -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_this_chore(name)) {
        command.env_remove(name);
    }
    command
}

/// An example, which has to be in one crate only. It is built with the whole workspace's choice of features, as the tests are: by
/// itself it would build its dependencies again.
fn example(name: &str) -> anyhow::Result<Command> {
    let mut build = cargo();
    build.args(["build", "--quiet", "--workspace", "--example", name]);
    ensure!(
        build.status().context("run cargo")?.success(),
        "the example {name} does not build"
    );
    let file = format!("{name}{}", env::consts::EXE_SUFFIX);
    let mut command = Command::new(root().join("target/debug/examples").join(file));
    command.current_dir(root());
    Ok(command)
}

/// Returns `true` if `cargo run` has set this variable to describe this program's own package. A build script that
/// reads it (that of ring does) would run again, with all its dependents, whenever chores and other commands take
/// turns.
fn is_of_this_chore(variable: &OsStr) -> bool {
    let variable = variable.to_string_lossy();
    ["CARGO_MANIFEST_", "CARGO_PKG_"]
        .iter()
        .any(|beginning| variable.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_cargos_notes_on_packages_are_kept_from_the_build() {
        for variable in ["CARGO_PKG_NAME", "CARGO_PKG_VERSION_MAJOR", "CARGO_MANIFEST_DIR"] {
            assert!(is_of_this_chore(OsStr::new(variable)), "{variable}");
        }
        for variable in ["CARGO", "CARGO_HOME", "CARGO_TARGET_DIR", "PATH"] {
            assert!(!is_of_this_chore(OsStr::new(variable)), "{variable}");
        }
    }
}
