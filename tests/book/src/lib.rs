//! Checks of the documentation: the pages that are generated from code, the links of all pages, and the consoles, whose
//! commands a test runs or at least parses. `cargo xtask book` builds the book.
#![forbid(unsafe_code)]

/// The code of these pages is compiled and run.
#[cfg(doctest)]
mod pages_with_code {
    #[doc = include_str!("../../../docs/admission.md")]
    struct Admission;
    #[doc = include_str!("../../../docs/configuration.md")]
    struct Configuration;
    #[doc = include_str!("../../../docs/contributions.md")]
    struct Contributions;
    #[doc = include_str!("../../../docs/conversion.md")]
    struct Conversion;
    #[doc = include_str!("../../../docs/debugging.md")]
    struct Debugging;
    #[doc = include_str!("../../../docs/decorate.md")]
    struct Decorate;
    #[doc = include_str!("../../../docs/finalizers.md")]
    struct Finalizers;
    #[doc = include_str!("../../../docs/free-form.md")]
    struct FreeForm;
    #[doc = include_str!("../../../docs/from-kube-rs.md")]
    struct FromKubeRs;
    #[doc = include_str!("../../../docs/from-kubebuilder.md")]
    struct FromKubebuilder;
    #[doc = include_str!("../../../docs/kinds.md")]
    struct Kinds;
    #[doc = include_str!("../../../docs/outside.md")]
    struct Outside;
    #[doc = include_str!("../../../docs/reading.md")]
    struct Reading;
    #[doc = include_str!("../../../docs/status.md")]
    struct Status;
    #[doc = include_str!("../../../docs/testing.md")]
    struct Testing;
    #[doc = include_str!("../../../docs/time.md")]
    struct Time;
}

pub mod console;
pub mod markdown;
pub mod reference;
pub mod shell;

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The Markdown files of a folder of the repository and of those below, by their paths from the root, in order.
pub fn pages(folder: &str) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder))? {
            let entry = entry?;
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if Path::new(&path).extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}
