//! Owns every environment variable that the kit reads. Leaves what they mean to those who ask.

use std::{env, path::PathBuf};

/// Where envtest lays out `etcd`, `kube-apiserver` and `kube-controller-manager`.
pub const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// The folder with ready-made control plane programs, where there is one.
pub fn assets() -> Option<PathBuf> {
    non_empty(ASSETS)
}

/// The user's folder for what can be made again.
pub fn cache() -> Option<PathBuf> {
    non_empty("XDG_CACHE_HOME").or_else(|| non_empty("HOME").map(|home| home.join(".cache")))
}

/// The folders in which programs are looked for.
pub fn search_path() -> Vec<PathBuf> {
    env::var_os("PATH")
        .map(|path| env::split_paths(&path).collect())
        .unwrap_or_default()
}

fn non_empty(name: &str) -> Option<PathBuf> {
    env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
