//! Environment variables that name the programs. `cargo xtask test --only external` sets them.

use std::path::PathBuf;

use pilothouse_programs::environment;

/// A program of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// The registry that Debian packages, which has no referrers API.
    DockerRegistry,
    /// The registry of go-containerregistry, which has one.
    ReferrersRegistry,
    /// Signs and verifies.
    Cosign,
    /// Pushes, pulls and copies artifacts of any type.
    Oras,
    /// Pushes and pulls components.
    Wkg,
    /// Checks what Prometheus is to read.
    Promtool,
    /// Renders and installs charts.
    Helm,
    /// Puts manifests together.
    Kustomize,
    /// Runs plugins of its own, by their names.
    Kubectl,
    /// Builds crates as components.
    CargoComponent,
    /// Asks kstatus, and runs health checks of Argo CD: `tests/external/gitops`.
    GitOps,
}

/// The image of the host, as an OCI archive, which `cargo xtask image` makes.
///
/// # Panics
///
/// If the variable is not set.
pub fn image() -> PathBuf {
    environment::path("PILOTHOUSE_IMAGE").unwrap_or_else(|| {
        panic!("PILOTHOUSE_IMAGE is not set: run `cargo xtask image`, then the test with `cargo xtask test --only external`")
    })
}

impl Program {
    /// The variable that names the program.
    pub fn variable(self) -> &'static str {
        match self {
            Self::DockerRegistry => "PILOTHOUSE_DOCKER_REGISTRY",
            Self::ReferrersRegistry => "PILOTHOUSE_REFERRERS_REGISTRY",
            Self::Cosign => "PILOTHOUSE_COSIGN",
            Self::Oras => "PILOTHOUSE_ORAS",
            Self::Wkg => "PILOTHOUSE_WKG",
            Self::Promtool => "PILOTHOUSE_PROMTOOL",
            Self::Helm => "PILOTHOUSE_HELM",
            Self::Kustomize => "PILOTHOUSE_KUSTOMIZE",
            Self::Kubectl => "PILOTHOUSE_KUBECTL",
            Self::CargoComponent => "PILOTHOUSE_CARGO_COMPONENT",
            Self::GitOps => "PILOTHOUSE_GITOPS",
        }
    }

    /// Path of the program.
    ///
    /// # Panics
    ///
    /// If the variable is not set or does not name a file.
    pub fn path(self) -> PathBuf {
        let variable = self.variable();
        let path = environment::path(variable).unwrap_or_else(|| {
            panic!("{variable} is not set: run the test with `cargo xtask test --only external`, which sets it")
        });
        assert!(path.is_file(), "{variable} names {}, which is no file", path.display());
        path
    }
}
