//! Owns where the programs of a control plane come from: `KUBEBUILDER_ASSETS`, the cache, or a build with the Go
//! toolchain into the cache. Leaves running them to `supervisor`.

use std::{
    fs::{self, File},
    io::{self, BufRead as _, BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::environment;

/// The Go module that pins the programs. It is embedded so that the kit works wherever its binary is run.
const MODULE: [(&str, &str); 3] = [
    ("go.mod", include_str!("../../../controlplane/go.mod")),
    ("go.sum", include_str!("../../../controlplane/go.sum")),
    ("tools.go", include_str!("../../../controlplane/tools.go")),
];

/// What is built, and the name that Go gives to the result.
const PACKAGES: [(&str, &str); 3] = [
    ("go.etcd.io/etcd/server/v3", "server"),
    ("k8s.io/kubernetes/cmd/kube-apiserver", "kube-apiserver"),
    (
        "k8s.io/kubernetes/cmd/kube-controller-manager",
        "kube-controller-manager",
    ),
];

/// The names in a folder of programs, in the order of [`PACKAGES`].
const NAMES: [&str; 3] = ["etcd", "kube-apiserver", "kube-controller-manager"];

/// A build reports itself at most this often.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// How much of a failed build's output the error carries.
const BUILD_TAIL_LINES: usize = 20;

/// The three programs of a control plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Programs {
    /// The store.
    pub etcd: PathBuf,
    /// The API server.
    pub apiserver: PathBuf,
    /// The controllers: Deployments, garbage collection, namespaces.
    pub controller_manager: PathBuf,
}

/// Why there are no programs to run.
#[derive(Debug, Error)]
pub enum ProgramsError {
    /// `KUBEBUILDER_ASSETS` names a folder that lacks one of the programs.
    #[error("{} in {} is not there: complete the folder or unset {}", .name, .folder.display(), environment::ASSETS)]
    Incomplete {
        /// The folder that the variable names.
        folder: PathBuf,
        /// The program that is missing.
        name: &'static str,
    },
    /// Neither ready-made programs nor a Go toolchain to build them with.
    #[error(
        "no control plane: install Go 1.26 or newer, or set {} to a folder with etcd, kube-apiserver and kube-controller-manager",
        environment::ASSETS
    )]
    NoToolchain,
    /// Neither `XDG_CACHE_HOME` nor `HOME` is set.
    #[error("no folder for the built control plane: set HOME or XDG_CACHE_HOME")]
    NoCache,
    /// The cache could not be read or written.
    #[error("use the control plane cache at {}: {source}", .path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The Go toolchain could not be run.
    #[error("run go: {0}")]
    RunGo(io::Error),
    /// The build ended with an error.
    #[error("build the control plane with go ({status}):\n{tail}")]
    Build {
        /// How go ended.
        status: std::process::ExitStatus,
        /// The last lines that it printed.
        tail: String,
    },
}

/// Whether a real control plane can be had on this machine, and at what price.
#[derive(Debug)]
pub enum Availability {
    /// The programs are there.
    Ready(Programs),
    /// They will be built on first use, which takes about six minutes on two cores.
    Buildable,
    /// They can't be had, and why.
    Unavailable(ProgramsError),
}

/// Looks for the programs without building anything.
pub fn availability() -> Availability {
    match from_assets() {
        Some(Ok(programs)) => return Availability::Ready(programs),
        Some(Err(error)) => return Availability::Unavailable(error),
        None => {}
    }
    let Some(entry) = cache_entry() else {
        return Availability::Unavailable(ProgramsError::NoCache);
    };
    match complete(&entry) {
        Ok(programs) => Availability::Ready(programs),
        Err(_) if has_go() => Availability::Buildable,
        Err(_) => Availability::Unavailable(ProgramsError::NoToolchain),
    }
}

impl Programs {
    /// The programs from `KUBEBUILDER_ASSETS` or the cache; built into the cache where neither has them. A build shows
    /// its progress on standard error. Two processes never build at once: the second waits for the first.
    pub fn obtain() -> Result<Self, ProgramsError> {
        if let Some(found) = from_assets() {
            return found;
        }
        let entry = cache_entry().ok_or(ProgramsError::NoCache)?;
        if let Ok(programs) = complete(&entry) {
            return Ok(programs);
        }
        if !has_go() {
            return Err(ProgramsError::NoToolchain);
        }
        let root = entry.parent().expect("a cache entry is a folder in the cache");
        fs::create_dir_all(root).map_err(cache_error(root))?;
        let lock_path = root.join("lock");
        let lock = File::create(&lock_path).map_err(cache_error(&lock_path))?;
        lock.lock().map_err(cache_error(&lock_path))?;
        // Somebody else may have built while we waited for the lock, which is released when the file is closed.
        complete(&entry).or_else(|_| build(root, &entry))
    }
}

/// The name of a cache entry: whatever changes a pinned version changes it.
fn digest() -> String {
    let mut hash = Sha256::new();
    for (_, text) in &MODULE[..2] {
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    super::hexadecimal(&hash.finalize()[..8])
}

fn cache_entry() -> Option<PathBuf> {
    Some(
        environment::cache()?
            .join("pilothouse")
            .join("controlplane")
            .join(digest()),
    )
}

fn from_assets() -> Option<Result<Programs, ProgramsError>> {
    let folder = environment::assets()?;
    Some(complete(&folder).map_err(|name| ProgramsError::Incomplete { folder, name }))
}

/// The programs in a folder, or the name of the first one that it lacks.
fn complete(folder: &Path) -> Result<Programs, &'static str> {
    let find = |name: &'static str| Some(folder.join(name)).filter(|path| path.is_file()).ok_or(name);
    let [etcd, apiserver, controller_manager] = NAMES;
    Ok(Programs {
        etcd: find(etcd)?,
        apiserver: find(apiserver)?,
        controller_manager: find(controller_manager)?,
    })
}

fn has_go() -> bool {
    environment::search_path()
        .iter()
        .any(|folder| folder.join("go").is_file())
}

/// Builds beside the entry and renames at the end, so that an entry is always whole.
fn build(root: &Path, entry: &Path) -> Result<Programs, ProgramsError> {
    let work = tempfile::Builder::new()
        .prefix("building-")
        .tempdir_in(root)
        .map_err(cache_error(root))?;
    let (module, output) = (work.path().join("module"), work.path().join("programs"));
    for folder in [&module, &output] {
        fs::create_dir(folder).map_err(cache_error(folder))?;
    }
    for (name, text) in MODULE {
        let path = module.join(name);
        fs::write(&path, text).map_err(cache_error(&path))?;
    }
    run_go(&module, &output)?;
    for ((_, built), name) in PACKAGES.into_iter().zip(NAMES) {
        if built != name {
            fs::rename(output.join(built), output.join(name)).map_err(cache_error(&output))?;
        }
    }
    fs::rename(&output, entry).map_err(cache_error(entry))?;
    complete(entry).map_err(|name| ProgramsError::Incomplete {
        folder: entry.to_owned(),
        name,
    })
}

fn run_go(module: &Path, output: &Path) -> Result<(), ProgramsError> {
    say("building etcd, kube-apiserver and kube-controller-manager once (about six minutes on two cores)");
    let started = Instant::now();
    let mut go = Command::new("go")
        .args([
            "build",
            "-v",
            "-trimpath",
            "-mod=readonly",
            "-ldflags",
            &linker_flags(),
            "-o",
        ])
        .arg(output)
        .args(PACKAGES.map(|(package, _)| package))
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GOFLAGS", "")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(ProgramsError::RunGo)?;
    let lines = BufReader::new(go.stderr.take().expect("standard error is piped")).lines();
    let (mut tail, mut packages, mut reported) = (Vec::new(), 0_usize, started);
    for line in lines {
        // go names each package as it is compiled, and prints errors and downloads in between.
        let line = line.map_err(ProgramsError::RunGo)?;
        packages += 1;
        if reported.elapsed() >= PROGRESS_INTERVAL {
            reported = Instant::now();
            say(&format!(
                "{packages} packages after {} s: {line}",
                started.elapsed().as_secs()
            ));
        }
        if tail.len() == BUILD_TAIL_LINES {
            tail.remove(0);
        }
        tail.push(line);
    }
    let status = go.wait().map_err(ProgramsError::RunGo)?;
    if !status.success() {
        return Err(ProgramsError::Build {
            status,
            tail: tail.join("\n"),
        });
    }
    say(&format!("built after {} s", started.elapsed().as_secs()));
    Ok(())
}

/// The API server reports the version that was linked in, and clients refuse a server of version 0.0.
fn linker_flags() -> String {
    let version = kubernetes_version();
    let mut numbers = version.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let package = "k8s.io/component-base/version";
    format!("-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
}

/// The version that `go.mod` requires.
pub(super) fn kubernetes_version() -> &'static str {
    MODULE[0]
        .1
        .lines()
        .filter_map(|line| {
            line.trim()
                .trim_start_matches("require ")
                .strip_prefix("k8s.io/kubernetes ")
        })
        .find_map(|rest| rest.split_whitespace().next())
        .expect("go.mod requires k8s.io/kubernetes")
}

/// Straight to standard error: the test harness would keep back what is printed through `eprintln`, and six silent
/// minutes look like a hang.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "control plane: {message}");
}

fn cache_error(path: &Path) -> impl FnOnce(io::Error) -> ProgramsError + use<> {
    let path = path.to_owned();
    move |source| ProgramsError::Cache { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_lacks_a_program_names_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        assert_eq!(complete(folder.path()), Err("kube-apiserver"));
    }

    #[test]
    fn the_linked_version_is_the_required_one() {
        let version = kubernetes_version();
        assert!(version.starts_with("v1."), "{version}");
        assert!(linker_flags().contains(&format!("gitVersion={version} ")));
        assert!(linker_flags().contains("gitMajor=1 "));
    }

    #[test]
    fn a_cache_entry_is_named_by_the_pinned_versions() {
        assert_eq!(digest().len(), 16);
        assert!(digest().bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
