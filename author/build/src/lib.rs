//! Builds a plugin as a component. `toolchain` finds a compiler, `package` reads a crate's metadata, `compile` calls
//! cargo to make a module of it, `component` wraps the module and checks the component, `generated` refreshes the files
//! that are made from a plugin's types.
//!
//! Both `pilothouse build` and `cargo xtask plugins` use this crate. It does not depend on the host, so that the tasks
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

/// Compilation target of plugins. It has no system interface, so components import only the contract's interfaces.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Writes a file atomically, and only if its content differs, so that readers never see half of it and watchers are not
/// notified needlessly. Returns whether it differed.
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
    // A temporary file is readable by its owner alone; a build result is readable like any file of the folder.
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let readable = fs::Permissions::from_mode(0o644);
        file.as_file().set_permissions(readable).with_context(about)?;
    }
    file.persist(path).with_context(about)?;
    Ok(true)
}
