//! Owns what the command takes from its environment. No other file reads environment variables.

use std::path::PathBuf;

/// Where compiled plugins are kept unless the command line says otherwise: `$XDG_CACHE_HOME/pilothouse/plugins`, or the
/// same below `~/.cache`.
pub fn default_cache_directory() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    cache
        .or_else(home)
        .map(|cache| cache.join("pilothouse").join("plugins"))
}

/// What is logged unless the environment says otherwise. kube would repeat at each try what the host says once.
const LOG_FILTER: &str = "info,kube_client=off";

/// The filter for log lines, in the form of `tracing_subscriber`'s `EnvFilter`.
pub fn log_filter() -> String {
    std::env::var("PILOTHOUSE_LOG").unwrap_or_else(|_| LOG_FILTER.to_owned())
}

/// The name of this process in events: the pod's, as Kubernetes sets it, or the program's.
pub fn instance() -> String {
    std::env::var("HOSTNAME")
        .ok()
        .filter(|name| !name.is_empty())
        .unwrap_or_else(|| "pilothouse".to_owned())
}
