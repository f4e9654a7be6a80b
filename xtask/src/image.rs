//! Builds the image of the host: static programs, the folder that `deploy/image/Dockerfile` copies from, and an OCI
//! archive made with buildah. The tests of the chart check the image.
//!
//! `pilothouse-host` has at most 30,000,000 bytes (static, stripped): 29.7 MB for amd64 and about 23 for arm64. Of 24 MB code, host/runtime is
//! 2.7, wasmtime's compiler 2.4, and Pulley, an interpreter that the host does not use and no feature leaves out, 0.45. Larger, when
//! tried: `opt-level` z for dependencies, s for some of the own crates as well. With `-C llvm-args=-inline-threshold=100` for the last
//! step it has 29.3 MB, and takes 5 % more processor time. `target/image/amd64.map` has the parts. Rust links static programs for arm64 at a fixed
//! address, those for amd64 at a random one. musl has not been tried: the host tunes glibc's allocator.

mod architecture;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use pilothouse_programs::environment;

use self::architecture::{Architecture, Tools};
use crate::{cargo, root};

/// The largest size of the host's program, in bytes.
const LARGEST_PROGRAM: u64 = 30_000_000;

/// Compiler flags of every crate. A function that cannot unwind has no unwind table; those that can have theirs in any
/// case, because panics unwind.
const FLAGS: [&str; 4] = ["-C", "target-feature=+crt-static", "-C", "force-unwind-tables=no"];

/// The certificate authorities of public registries, as Debian's package ca-certificates and those of other distributions
/// have them.
const AUTHORITIES: [&str; 2] = ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt"];

/// Options of `cargo xtask image`.
#[derive(Clone, Debug, clap::Args)]
pub struct ImageOptions {
    /// The architectures of the image, separated by commas. Another one than this machine's needs Rust's target for it; its C
    /// compiler is fetched from Debian's packages if the machine has none, with an emulator to see that the program starts.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Architecture::of_this_machine()])]
    architecture: Vec<Architecture>,
    /// Only build the programs and the folder for the Dockerfile.
    #[arg(long)]
    context_only: bool,
}

/// The image as an OCI archive.
pub(crate) fn archive() -> PathBuf {
    root().join("target/image/pilothouse-host.tar")
}

/// Builds the programs and the image.
pub fn run(options: &ImageOptions) -> Result<()> {
    let context = root().join("target/image/context");
    let mut architectures = options.architecture.clone();
    architectures.sort_unstable();
    architectures.dedup();
    // All of them before the first build, which takes long.
    let tools = architectures.iter().map(|architecture| Tools::find(*architecture));
    for tools in tools.collect::<Result<Vec<_>>>()? {
        let name = tools.architecture.name();
        let program = build(&tools)?;
        let size = fs::metadata(&program)
            .with_context(|| format!("read {}", program.display()))?
            .len();
        println!("pilothouse-host for {name}: {size} bytes");
        ensure!(
            size <= LARGEST_PROGRAM,
            "{} has {size} bytes, and may have {LARGEST_PROGRAM}; {} lists its parts",
            program.display(),
            linker_map(tools.architecture).display()
        );
        start(&tools, &program)?;
        let folder = context.join(name);
        fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        copy(&program, &folder.join("pilothouse-host"))?;
    }
    let authorities = AUTHORITIES.iter().map(Path::new).find(|path| path.is_file());
    let authorities =
        authorities.context("there are no certificate authorities on this machine; install ca-certificates")?;
    copy(authorities, &context.join("ca-certificates.crt"))?;
    if options.context_only {
        println!("the folder for deploy/image/Dockerfile is {}", context.display());
        return Ok(());
    }
    assemble(&architectures, &context)
}

/// Builds the program, linked statically: an image from scratch has no libraries.
///
/// Rust's own linker folds functions with the same instructions, of which generic code has many; the host compares no addresses
/// of functions. It also packs the relocations of a program that is loaded at a random address. An older glibc than 2.36 does not
/// know packed ones: `start` would see it.
fn build(tools: &Tools) -> Result<PathBuf> {
    let target = tools.architecture.target();
    let map = linker_map(tools.architecture);
    fs::create_dir_all(root().join("target/image")).context("make target/image")?;
    let mut command = cargo();
    command
        .args([
            "rustc",
            "--locked",
            "--package",
            "pilothouse-host",
            "--bin",
            "pilothouse-host",
        ])
        .args(["--profile", "dist", "--target", target, "--"])
        .args(["-C", "link-arg=-fuse-ld=lld", "-C"])
        .arg(format!("link-arg=-B{}", architecture::linker()?.display()))
        .args(["-C", "link-arg=-Wl,-O2,--icf=all,--pack-dyn-relocs=relr", "-C"])
        .arg(format!("link-arg=-Wl,-Map={}", map.display()))
        // With --target these are for the program alone, and not for build scripts.
        .env("RUSTFLAGS", FLAGS.join(" "))
        .envs(tools.environment());
    let status = command.status().context("run cargo build")?;
    ensure!(status.success(), "the host does not build for {target}");
    let folder = environment::path("CARGO_TARGET_DIR").unwrap_or_else(|| root().join("target"));
    Ok(folder.join(target).join("dist/pilothouse-host"))
}

/// Path of the linker's map with the size of each function.
fn linker_map(architecture: Architecture) -> PathBuf {
    root().join("target/image").join(format!("{}.map", architecture.name()))
}

/// Checks that the program starts, with nothing of this machine's environment.
fn start(tools: &Tools, program: &Path) -> Result<()> {
    let mut command = match tools.emulator() {
        Some(emulator) => {
            let mut command = Command::new(emulator);
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    let output = command
        .env_clear()
        .arg("--version")
        .output()
        .with_context(|| format!("run {}", program.display()))?;
    let expected = concat!("pilothouse-host ", env!("CARGO_PKG_VERSION"));
    ensure!(
        output.status.success() && output.stdout.starts_with(expected.as_bytes()),
        "`{} --version` does not print {expected}; it ended with {}: {}",
        program.display(),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// Calls buildah, which needs neither a daemon nor namespaces for an image into which files are only copied.
fn assemble(architectures: &[Architecture], context: &Path) -> Result<()> {
    let buildah = buildah()?;
    let archive = archive();
    let storage = root().join("target/image/storage");
    // The images of the last time would be listed beside the new ones.
    if storage.exists() {
        fs::remove_dir_all(&storage).with_context(|| format!("remove {}", storage.display()))?;
    }
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
    let version = format!("VERSION={}", env!("CARGO_PKG_VERSION"));
    let directory = context.display().to_string();
    for architecture in architectures {
        let platform = format!("linux/{}", architecture.name());
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
            "--manifest",
            "pilothouse-host",
            &directory,
        ])?;
    }
    if archive.exists() {
        fs::remove_file(&archive).with_context(|| format!("remove {}", archive.display()))?;
    }
    let place = format!("oci-archive:{}:{}", archive.display(), env!("CARGO_PKG_VERSION"));
    call(&["manifest", "push", "--all", "pilothouse-host", &place])?;
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
