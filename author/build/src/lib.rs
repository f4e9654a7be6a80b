//! How a plugin becomes a component. `toolchain` finds a compiler, `package` says what a crate is, `compile` has cargo make a
//! module of it, `component` wraps the module and checks what the component can do, `generated` keeps the files that are
//! made from a plugin's types.
//!
//! `pilothouse build` and `cargo xtask plugins` both stand on this crate. It knows nothing of the host, so that the chores
//! of this repository are built in seconds.
//!
//! The bytes of a component depend on the path of a dependency outside of its workspace, such as an SDK given with `--sdk PATH`: cargo's
//! hash of such a crate has the whole path, and the order of functions follows it.

#![forbid(unsafe_code)]

pub mod compile;
pub mod component;
pub mod generated;
pub mod package;
pub mod toolchain;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};

/// What plugins are compiled for: a target that has no system interface at all, so a component imports only what its plugin
/// was given.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Puts a file in place at once, so that nobody reads half of it, and only when it differs, so that whoever watches it is
/// not woken for nothing. Says whether it differed.
pub fn write_if_changed(path: &Path, bytes: &[u8]) -> Result<bool> {
    if fs::read(path).is_ok_and(|present| present == bytes) {
        return Ok(false);
    }
    let about = || format!("cannot write {}", path.display());
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).with_context(about)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(about)?;
    file.write_all(bytes).with_context(about)?;
    // A temporary file is for its owner alone; what is built is for everybody who may read the folder.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let readable = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable).with_context(about)?;
    }
    file.persist(path).with_context(about)?;
    Ok(true)
}
