//! Finds a compiler for the target, installs missing parts, and calls cargo without the settings of an outer cargo.

use std::env;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::TARGET;

/// Debian's packages of a compiler that can build the standard library for the target from source.
const DEBIAN_PACKAGES: [&str; 5] = ["rustc-web", "cargo-web", "rust-web-src", "rust-web-llvm", "lld-22"];

/// Folder of those packages' programs.
const DEBIAN_PROGRAMS: &str = "/usr/bin";

/// Variables of the outer cargo, of clippy or of a developer's shell that would change the build. Of cargo's variables
/// (`CARGO_...`) only [`HARMLESS`] ones stay: the registry's location and the network's settings.
const DISTURBING: [&str; 8] = [
    "RUSTC",
    "RUSTC_BOOTSTRAP",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTC_WRAPPER",
    "RUSTDOC",
    "RUSTDOCFLAGS",
    "RUSTFLAGS",
    "CLIPPY_ARGS",
];

/// Prefixes of the names of cargo's variables that stay.
const HARMLESS: [&str; 9] = [
    "CARGO_HOME",
    "CARGO_HTTP_",
    "CARGO_NET_",
    "CARGO_REGISTRIES_",
    "CARGO_REGISTRY_",
    "CARGO_SOURCE_",
    "CARGO_TERM_",
    "CARGO_BUILD_JOBS",
    TARGET_DIRECTORY,
];

/// The variable that names cargo's target directory, which several projects may share.
const TARGET_DIRECTORY: &str = "CARGO_TARGET_DIR";

/// Error message if there is no compiler at all.
const NO_RUST: &str = "Rust is not installed: neither cargo nor rustc is on the PATH; install it with `curl --proto '=https' --tlsv1.2 \
     -sSf https://sh.rustup.rs | sh`, or on Debian with `apt-get install cargo-web rustc-web`";

/// The choice of the compiler that builds plugins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum ToolchainChoice {
    /// The cargo and rustc of the PATH, with the target installed by rustup; otherwise Debian's compiler.
    #[default]
    Auto,
    /// Debian's compiler, with the standard library built from source.
    Debian,
}

/// A compiler that knows the target.
#[derive(Clone, Copy, Debug)]
pub enum Toolchain {
    /// The one on the PATH, which builds everything else, too.
    Host,
    /// Debian's.
    Debian,
}

impl Toolchain {
    /// Finds a compiler for plugins and installs missing parts, with a message on standard error.
    pub fn find(choice: ToolchainChoice) -> Result<Self> {
        if choice == ToolchainChoice::Auto {
            if host_knows_target()? {
                return Ok(Self::Host);
            }
            eprintln!("adding the target {TARGET} with rustup");
            match Command::new("rustup").args(["target", "add", TARGET]).status() {
                Ok(status) if status.success() => return Ok(Self::Host),
                Ok(status) => eprintln!("rustup could not add it ({status}); trying Debian's packages"),
                Err(error) => eprintln!("rustup cannot be run ({error}); trying Debian's packages"),
            }
        }
        install_debian_packages()?;
        Ok(Self::Debian)
    }

    /// Returns a command that runs cargo in a folder.
    pub fn cargo(self, folder: &Path) -> Command {
        let mut command = match self {
            Self::Host => Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into())),
            Self::Debian => Command::new(Path::new(DEBIAN_PROGRAMS).join("cargo")),
        };
        command.current_dir(folder);
        for (name, _) in env::vars_os() {
            if disturbs(&name) {
                command.env_remove(name);
            }
        }
        if let Self::Debian = self {
            let programs = env::var_os("PATH").unwrap_or_default();
            let programs = env::split_paths(&programs).filter(|program| program != Path::new(DEBIAN_PROGRAMS));
            let path = env::join_paths(std::iter::once(PathBuf::from(DEBIAN_PROGRAMS)).chain(programs));
            command
                .env("PATH", path.expect("the folders came from a PATH"))
                .env("RUSTC", Path::new(DEBIAN_PROGRAMS).join("rustc"))
                // Building the standard library is unstable; this variable enables it in a release compiler.
                .env("RUSTC_BOOTSTRAP", "1");
        }
        command
    }

    /// Returns further arguments of cargo, beside the package and the target.
    pub(crate) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Host => &[],
            Self::Debian => &["-Zbuild-std=std,panic_abort"],
        }
    }
}

/// Returns the target directory that the environment names.
pub fn target_directory() -> Option<PathBuf> {
    env::var_os(TARGET_DIRECTORY)
        .filter(|folder| !folder.is_empty())
        .map(PathBuf::from)
}

/// Returns the folder of cargo's registries and checkouts.
pub(crate) fn cargo_home() -> Option<PathBuf> {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    home.or_else(|| env::home_dir().map(|home| home.join(".cargo")))
}

/// Returns the user's home.
pub(crate) fn home() -> Option<PathBuf> {
    env::home_dir().filter(|home| home.parent().is_some())
}

/// Reports whether the compiler on the PATH has the target's standard library.
fn host_knows_target() -> Result<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", TARGET])
        .stderr(Stdio::inherit())
        .output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => bail!(NO_RUST),
        output => output.context("asking rustc for its targets")?,
    };
    ensure!(
        output.status.success(),
        "rustc does not know the target {TARGET}: {}",
        output.status
    );
    Ok(Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}

fn install_debian_packages() -> Result<()> {
    let installed = |package: &&str| {
        let status = Command::new("dpkg-query")
            .args(["--show", "--showformat=${Status}", package])
            .output();
        status.is_ok_and(|output| output.stdout == b"install ok installed")
    };
    let missing: Vec<_> = DEBIAN_PACKAGES
        .into_iter()
        .filter(|package| !installed(package))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let advice = format!(
        "no compiler for {TARGET}: run `rustup target add {TARGET}`, or on Debian `apt-get install {}`",
        missing.join(" ")
    );
    eprintln!("installing Debian's packages {}", missing.join(", "));
    for arguments in [
        vec!["update"],
        [vec!["install", "--yes", "--no-install-recommends"], missing].concat(),
    ] {
        let status = Command::new("apt-get")
            .args(&arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdout(Stdio::null())
            .status()
            .with_context(|| advice.clone())?;
        if !status.success() {
            bail!("apt-get {} failed ({status}); {advice}", arguments[0]);
        }
    }
    Ok(())
}

fn disturbs(name: &OsString) -> bool {
    // Cargo's variables have Unicode names.
    let Some(name) = name.to_str() else { return false };
    DISTURBING.contains(&name)
        || (name.starts_with("CARGO_") && !HARMLESS.iter().any(|harmless| name.starts_with(harmless)))
}
