//! Architectures of the image, and the tools that build for them and start the result: Rust's target and linker, and
//! for a foreign architecture a C compiler and an emulator, the machine's own or Debian's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, iter};

use anyhow::{Context as _, Result, ensure};
use pilothouse_programs::environment;

use crate::{debian, root};

/// An architecture that images are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(super) enum Architecture {
    Amd64,
    Arm64,
}

/// Tools that build for an architecture.
pub(super) struct Tools {
    pub architecture: Architecture,
    foreign: Option<Foreign>,
}

/// Tools for another architecture than this machine's.
struct Foreign {
    emulator: PathBuf,
    /// Debian's packages, unpacked, where the machine lacks a program.
    unpacked: Option<PathBuf>,
}

impl Architecture {
    pub fn of_this_machine() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Arm64
        } else {
            Self::Amd64
        }
    }

    /// Name in OCI images.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's target. It is glibc's, because the host measures and tunes glibc's allocator.
    pub fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// The compiler and linker where the machine is of another architecture.
    fn compiler(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// The program that runs one of this architecture on another.
    fn emulator(self) -> &'static str {
        match self {
            Self::Amd64 => "qemu-x86_64-static",
            Self::Arm64 => "qemu-aarch64-static",
        }
    }

    /// Debian's packages with the compiler, a C library for it, and the emulator.
    fn packages(self) -> [&'static str; 3] {
        match self {
            Self::Amd64 => ["gcc-x86-64-linux-gnu", "libc6-dev-amd64-cross", "qemu-user-static"],
            Self::Arm64 => ["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross", "qemu-user-static"],
        }
    }
}

impl Tools {
    /// Finds the tools for the architecture, and fetches missing ones, or says what to install.
    pub fn find(architecture: Architecture) -> Result<Self> {
        let target = architecture.target();
        let libraries = rustc(&["--print", "target-libdir", "--target", target])?;
        ensure!(
            Path::new(&libraries).is_dir(),
            "Rust's target {target} is not installed; run `rustup target add {target}`"
        );
        let foreign = (architecture != Architecture::of_this_machine())
            .then(|| Foreign::find(architecture))
            .transpose()?;
        Ok(Self { architecture, foreign })
    }

    /// Returns the emulator that starts a program of the architecture, if this machine does not.
    pub fn emulator(&self) -> Option<&Path> {
        self.foreign.as_ref().map(|foreign| &*foreign.emulator)
    }

    /// The variables that make Cargo build for the architecture.
    pub fn environment(&self) -> Vec<(String, OsString)> {
        let Some(Foreign { unpacked, .. }) = &self.foreign else {
            return Vec::new();
        };
        let (target, compiler) = (
            self.architecture.target().replace('-', "_"),
            self.architecture.compiler(),
        );
        let mut variables = vec![
            (
                format!("CARGO_TARGET_{}_LINKER", target.to_uppercase()),
                compiler.into(),
            ),
            (format!("CC_{target}"), compiler.into()),
        ];
        if let Some(folder) = unpacked {
            let with = |variable: &str, first: PathBuf| {
                let others = env::var_os(variable).unwrap_or_default();
                let paths = iter::once(first).chain(env::split_paths(&others));
                let paths = paths.filter(|path| !path.as_os_str().is_empty());
                (
                    variable.to_owned(),
                    env::join_paths(paths).expect("the paths were split at colons"),
                )
            };
            variables.push(with("PATH", folder.join("usr/bin")));
            // Debian's assembler for another architecture has libraries of its own, with names of their own.
            variables.push(with("LD_LIBRARY_PATH", folder.join(libraries_of_this_machine())));
        }
        variables
    }
}

impl Foreign {
    fn find(architecture: Architecture) -> Result<Self> {
        let (compiler, emulator) = (architecture.compiler(), architecture.emulator());
        if let (Some(_), Some(emulator)) = (environment::program(compiler), environment::program(emulator)) {
            return Ok(Self {
                emulator,
                unpacked: None,
            });
        }
        let folder = root().join("target/tools").join(architecture.name());
        let [in_folder, emulator] = [compiler, emulator].map(|program| folder.join("usr/bin").join(program));
        if !in_folder.exists() || !emulator.exists() {
            let packages = architecture.packages();
            debian::fetch_with_dependencies(compiler, &packages, &folder).with_context(|| {
                format!(
                    "there is no {compiler} with its C library and emulator, and Debian's packages can't be fetched; install {}",
                    packages.join(", ")
                )
            })?;
        }
        Ok(Self {
            emulator,
            unpacked: Some(folder),
        })
    }
}

/// The folder in which Debian's compilers look for the linker that Rust brings, by `-B` and `-fuse-ld=lld`.
pub(super) fn linker() -> Result<PathBuf> {
    let folder = Path::new(&rustc(&["--print", "sysroot"])?)
        .join("lib/rustlib")
        .join(Architecture::of_this_machine().target())
        .join("bin/gcc-ld");
    ensure!(
        folder.join("ld.lld").is_file(),
        "Rust's linker is not in {}; install Rust with rustup, which brings it",
        folder.display()
    );
    Ok(folder)
}

/// Returns Debian's folder of this machine's libraries.
fn libraries_of_this_machine() -> &'static str {
    match Architecture::of_this_machine() {
        Architecture::Amd64 => "usr/lib/x86_64-linux-gnu",
        Architecture::Arm64 => "usr/lib/aarch64-linux-gnu",
    }
}

/// Returns the output of the workspace's compiler.
fn rustc(arguments: &[&str]) -> Result<String> {
    let output = Command::new("rustc")
        .args(arguments)
        .current_dir(root())
        .output()
        .context("run rustc")?;
    ensure!(
        output.status.success(),
        "`rustc {}` ended with {}: {}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).context("read what rustc prints")?;
    Ok(text.trim_end().to_owned())
}
