//! Environment variables with the locations of programs: the search path, and the folder of the cache.

use std::{env, path::PathBuf};

/// Returns the user's cache folder.
pub fn cache() -> Option<PathBuf> {
    path("XDG_CACHE_HOME").or_else(|| path("HOME").map(|home| home.join(".cache")))
}

/// Finds a program on the search path.
pub fn program(name: &str) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Returns the path in a variable, unless it is unset or empty.
pub fn path(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}
