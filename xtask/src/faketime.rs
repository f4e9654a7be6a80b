//! Finds the libfaketime with which tests move the clock of one process: the machine's own, or Debian's (`debian`). The
//! tests of `tests/end-to-end` use it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::{debian, root};

/// Variable in which the tests find the library.
pub(crate) const VARIABLE: &str = "PILOTHOUSE_FAKETIME";

/// The module of the tests that need it.
pub(crate) const MODULE: &str = "moved_clocks";

/// Finds the library, fetching it where it is missing, or says why there is none.
pub(crate) fn find() -> Result<PathBuf> {
    let unpacked = root().join("target/tools/faketime");
    if let Some(library) = below(Path::new("/")).or_else(|| below(&unpacked)) {
        return Ok(library);
    }
    debian::fetch("libfaketime", &["libfaketime"], &unpacked)
        .context("there is no libfaketime, and Debian's package can't be fetched")?;
    below(&unpacked).context("Debian's package has no libfaketime for several threads; install faketime")
}

/// The library below a root directory, whose folder is named after the machine's architecture.
fn below(root: &Path) -> Option<PathBuf> {
    let folders = fs::read_dir(root.join("usr/lib")).ok()?.flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found_in_the_folder_of_any_architecture() {
        let root = tempfile::tempdir().expect("there is room for a folder");
        assert_eq!(below(root.path()), None);
        let folder = root.path().join("usr/lib/aarch64-linux-gnu/faketime");
        fs::create_dir_all(&folder).expect("the folder is ours");
        fs::write(folder.join("libfaketimeMT.so.1"), "").expect("the folder is ours");
        assert_eq!(below(root.path()), Some(folder.join("libfaketimeMT.so.1")));
    }
}
