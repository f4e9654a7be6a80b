//! Reads every environment variable that the kit uses.

use std::path::PathBuf;

use pilothouse_programs::environment;

/// Folder in which envtest lays out `etcd`, `kube-apiserver` and `kube-controller-manager`.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// The folder with ready-made control plane programs, where there is one.
pub fn assets() -> Option<PathBuf> {
    environment::path(ASSETS)
}

/// The user's folder for what can be made again.
pub use pilothouse_programs::environment::cache;
