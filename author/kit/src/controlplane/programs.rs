//! Finds the programs of a control plane: in `KUBEBUILDER_ASSETS`, in the cache, or by a build with the Go toolchain
//! into the cache. `pilothouse_programs::go` builds them.

use std::path::{Path, PathBuf};

use pilothouse_programs::go::{self, GoError, GoModule, GoProgram};
use thiserror::Error;

use crate::environment;

/// The Go module that pins the programs. It is embedded so that the kit works wherever its binary is run.
const FILES: &[(&str, &str)] = &[
    ("go.mod", include_str!("../../controlplane/go.mod")),
    ("go.sum", include_str!("../../controlplane/go.sum")),
    ("tools.go", include_str!("../../controlplane/tools.go")),
];

/// Programs that are built.
const PROGRAMS: [GoProgram; 3] = [
    GoProgram {
        package: "go.etcd.io/etcd/server/v3",
        name: "etcd",
    },
    GoProgram {
        package: "k8s.io/kubernetes/cmd/kube-apiserver",
        name: "kube-apiserver",
    },
    GoProgram {
        package: "k8s.io/kubernetes/cmd/kube-controller-manager",
        name: "kube-controller-manager",
    },
];

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

/// Errors of finding or building the programs.
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
    /// The programs could not be built.
    #[error(transparent)]
    Build(#[from] GoError),
}

/// Availability of a real control plane on this machine, and its price.
#[derive(Debug)]
pub enum Availability {
    /// The programs are there.
    Ready(Programs),
    /// Built on first use, which takes about six minutes on two cores.
    Buildable,
    /// Unavailable, with the reason.
    Unavailable(ProgramsError),
}

/// Looks for the programs without building anything.
pub fn availability() -> Availability {
    match from_assets() {
        Some(Ok(programs)) => Availability::Ready(programs),
        Some(Err(error)) => Availability::Unavailable(error),
        None => match module().built().map(|folder| in_folder(&folder)) {
            Some(Ok(programs)) => Availability::Ready(programs),
            Some(Err(error)) => Availability::Unavailable(error),
            None if pilothouse_programs::environment::cache().is_none() => {
                Availability::Unavailable(GoError::NoCache.into())
            }
            None if go::is_installed() => Availability::Buildable,
            None => Availability::Unavailable(ProgramsError::NoToolchain),
        },
    }
}

impl Programs {
    /// The programs from `KUBEBUILDER_ASSETS` or the cache; built into the cache where neither has them. A build shows
    /// its progress on standard error. Two processes never build at once: the second waits for the first.
    pub fn obtain() -> Result<Self, ProgramsError> {
        if let Some(found) = from_assets() {
            return found;
        }
        match module().obtain() {
            Ok(folder) => in_folder(&folder),
            Err(GoError::NoToolchain(_)) => Err(ProgramsError::NoToolchain),
            Err(error) => Err(error.into()),
        }
    }
}

fn module() -> GoModule {
    GoModule {
        name: "control plane",
        files: FILES,
        programs: PROGRAMS.to_vec(),
        tags: "",
        linker_flags: linker_flags(),
        duration: "about six minutes on two cores",
    }
}

fn from_assets() -> Option<Result<Programs, ProgramsError>> {
    Some(in_folder(&environment::assets()?))
}

/// The programs in a folder, or the first one that it lacks.
fn in_folder(folder: &Path) -> Result<Programs, ProgramsError> {
    let find = |name: &'static str| {
        let missing = || ProgramsError::Incomplete {
            folder: folder.to_owned(),
            name,
        };
        Some(folder.join(name))
            .filter(|path| path.is_file())
            .ok_or_else(missing)
    };
    Ok(Programs {
        etcd: find("etcd")?,
        apiserver: find("kube-apiserver")?,
        controller_manager: find("kube-controller-manager")?,
    })
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
    go::required_version(FILES, "k8s.io/kubernetes").expect("go.mod requires k8s.io/kubernetes")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_folder_that_lacks_a_program_names_it() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("etcd"), "").unwrap();
        let error = in_folder(folder.path()).unwrap_err();
        assert!(
            matches!(
                &error,
                ProgramsError::Incomplete {
                    name: "kube-apiserver",
                    ..
                }
            ),
            "{error}"
        );
    }

    #[test]
    fn the_linked_version_is_the_required_one() {
        let version = kubernetes_version();
        assert!(version.starts_with("v1."), "{version}");
        assert!(linker_flags().contains(&format!("gitVersion={version} ")));
        assert!(linker_flags().contains("gitMajor=1 "));
    }
}
