//! Owns building the image of the host: a static program, the folder that `deploy/image/Dockerfile` copies from, and an OCI
//! archive made with buildah. Leaves what is in the image to the Dockerfile, and what it must be to the tests of the chart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pilothouse_programs::environment;

use crate::{cargo, root};

/// The largest size of the host's program, in bytes.
const LARGEST_PROGRAM: u64 = 33_000_000;

/// The certificate authorities of public registries, as Debian's package ca-certificates and those of other distributions
/// have them.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Options of `cargo xtask image`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageOptions {
    /// The architecture of the image. Another one than this machine's needs Rust's target for it and a C compiler, such as
    /// those of Debian's package gcc-aarch64-linux-gnu.
    #[arg(long, value_enum, default_value_t = Architecture::of_this_machine())]
    architecture: Architecture,
    /// Only build the program and the folder for the Dockerfile.
    #[arg(long)]
    context_only: bool,
}

/// An architecture that images are made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Architecture {
    Amd64,
    Arm64,
}

impl Architecture {
    fn of_this_machine() -> Self {
        if cfg!(target_arch = "aarch64") {
            Self::Arm64
        } else {
            Self::Amd64
        }
    }

    /// As OCI images call it.
    fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// As Rust calls it. It is glibc's, because the host measures and tunes glibc's allocator.
    fn target(self) -> &'static str {
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
}

/// The image as an OCI archive.
pub(crate) fn archive() -> PathBuf {
    root().join("target/image/pilothouse-host.tar")
}

/// Builds the program and the image.
pub fn run(options: &ImageOptions) -> Result<()> {
    let context = root().join("target/image/context");
    let program = build(options.architecture)?;
    let size = fs::metadata(&program)
        .with_context(|| format!("read {}", program.display()))?
        .len();
    println!("pilothouse-host for {}: {size} bytes", options.architecture.name());
    ensure!(
        size <= LARGEST_PROGRAM,
        "{} has {size} bytes, and may have {LARGEST_PROGRAM}; `nm --size-sort` of a build without strip lists what is large",
        program.display()
    );
    let folder = context.join(options.architecture.name());
    fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
    copy(&program, &folder.join("pilothouse-host"))?;
    let authorities = AUTHORITIES.iter().map(Path::new).find(|path| path.is_file());
    let authorities =
        authorities.context("there are no certificate authorities on this machine; install ca-certificates")?;
    copy(authorities, &context.join("ca-certificates.crt"))?;
    if options.context_only {
        println!("the folder for deploy/image/Dockerfile is {}", context.display());
        return Ok(());
    }
    assemble(options.architecture, &context)
}

/// Builds the program, linked statically: an image from scratch has no libraries.
fn build(architecture: Architecture) -> Result<PathBuf> {
    let target = architecture.target();
    let mut command = cargo();
    command
        .args([
            "build",
            "--locked",
            "--package",
            "pilothouse-host",
            "--bin",
            "pilothouse-host",
        ])
        .args(["--profile", "dist", "--target", target])
        // With --target this is for the program alone, and not for build scripts.
        .env("RUSTFLAGS", "-C target-feature=+crt-static");
    if architecture != Architecture::of_this_machine() {
        let variable = target.replace('-', "_");
        let upper = variable.to_uppercase();
        command
            .env(format!("CARGO_TARGET_{upper}_LINKER"), architecture.compiler())
            .env(format!("CC_{variable}"), architecture.compiler());
    }
    let status = command.status().context("run cargo build")?;
    ensure!(status.success(), "the host does not build for {target}");
    Ok(root().join("target").join(target).join("dist/pilothouse-host"))
}

/// Calls buildah, which needs neither a daemon nor namespaces for an image into which files are only copied.
fn assemble(architecture: Architecture, context: &Path) -> Result<()> {
    let buildah = buildah()?;
    let archive = archive();
    let storage = root().join("target/image/storage");
    let call = |arguments: &[&str]| {
        let mut command = Command::new(&buildah);
        command.args(["--storage-driver", "vfs"]);
        for option in ["--root", "--runroot"] {
            command.arg(option).arg(storage.join(option.trim_start_matches('-')));
        }
        let status = command.args(arguments).status().context("run buildah")?;
        ensure!(
            status.success(),
            "`buildah {}` ended with {status}",
            arguments.join(" ")
        );
        Ok(())
    };
    let dockerfile = root().join("deploy/image/Dockerfile").display().to_string();
    let platform = format!("linux/{}", architecture.name());
    let version = format!("VERSION={}", env!("CARGO_PKG_VERSION"));
    let directory = context.display().to_string();
    call(&[
        "build",
        "--isolation",
        "chroot",
        "--file",
        &dockerfile,
        "--platform",
        &platform,
        "--build-arg",
        &version,
        "--format",
        "oci",
        // The same program makes the same image.
        "--timestamp",
        "0",
        "--layers=false",
        "--tag",
        "pilothouse-host",
        &directory,
    ])?;
    if archive.exists() {
        fs::remove_file(&archive).with_context(|| format!("remove {}", archive.display()))?;
    }
    let place = format!("oci-archive:{}:{}", archive.display(), env!("CARGO_PKG_VERSION"));
    call(&["push", "pilothouse-host", &place])?;
    println!("the image is {}", archive.display());
    Ok(())
}

/// The buildah of the machine.
fn buildah() -> Result<PathBuf> {
    environment::program("buildah").context(
        "there is no buildah; install Debian's package buildah, or run `cargo xtask image --context-only` and build \
         deploy/image/Dockerfile with docker or podman",
    )
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(|_| ())
        .with_context(|| format!("copy {} to {}", from.display(), to.display()))
}
