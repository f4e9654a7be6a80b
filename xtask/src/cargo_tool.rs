//! Finds programs that cargo installs from crates: the pinned version, on the path or below `target/tools`.

use std::env::consts::EXE_SUFFIX;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use crate::{cargo, root};

/// A program of the crate of its name.
pub struct CargoTool {
    /// The crate and the program.
    pub name: &'static str,
    /// The only version that is used.
    pub version: &'static str,
    /// Output of the program for its version.
    pub says: &'static str,
    /// Further options of `cargo install`.
    pub options: &'static [&'static str],
    /// Duration of the installation, for the message.
    pub takes: &'static str,
}

impl CargoTool {
    /// The program: the one on the path if it is that version, else installed below `target/tools`.
    pub fn installed(&self) -> Result<PathBuf> {
        let Self {
            name,
            version,
            says,
            options,
            takes,
        } = self;
        let folder = root().join("target/tools");
        let own = folder.join("bin").join(format!("{name}{EXE_SUFFIX}"));
        for program in [PathBuf::from(name), own.clone()] {
            let output = Command::new(&program).arg("--version").stderr(Stdio::null()).output();
            if output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).trim() == *says) {
                return Ok(program);
            }
        }
        println!("installing {name} {version} below target/tools ({takes} on two cores)");
        let status = cargo()
            .args(["install", "--locked", "--quiet", name, "--version", version])
            .args(*options)
            .arg("--root")
            .arg(&folder)
            .arg("--target-dir")
            .arg(folder.join("build"))
            .status()
            .context("run cargo install")?;
        ensure!(status.success(), "`cargo install {name}` ended with {status}");
        Ok(own)
    }
}
