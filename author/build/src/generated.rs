//! Generates the files that a plugin's tests make from its types: CRDs in `crds/`, and the schema of the configuration.
//! Their content is left to `pilothouse_plugin::crd`, which writes them when `UPDATE` is set.
//!
//! The crate includes these files, so it does not compile before they exist. They are therefore made empty first.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::toolchain::Toolchain;

/// Prefix of the names of tests that write a file when `UPDATE` is set.
pub const GENERATED: &str = "generated_";

/// Text by which a source includes a file.
const INCLUDE: &str = "include_str!(\"";

/// Folders of a crate without sources of the library.
const NO_SOURCES: [&str; 2] = ["target", "tests"];

/// Rewrites the generated files of a crate, and returns those that changed. Compiles nothing if no test makes one.
pub fn refresh(folder: &Path, arguments: &[OsString]) -> Result<Vec<PathBuf>> {
    let sources = sources(&folder.join("src"))?;
    if !sources.iter().any(|(_, text)| text.contains(GENERATED)) {
        return Ok(Vec::new());
    }
    let included = included(&sources);
    let before: Vec<_> = included.iter().map(|path| fs::read(path).ok()).collect();
    make_missing(&included)?;
    // The tests are the author's own, run as the author runs them: with the cargo of the PATH.
    let output = Toolchain::Host
        .cargo(folder)
        .args(["test", "--lib"])
        .args(arguments)
        .args(["--", "--quiet", GENERATED])
        .env("UPDATE", "1")
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::inherit())
        .output()
        .context("running cargo test")?;
    if !output.status.success() {
        eprint!("{}", String::from_utf8_lossy(&output.stdout));
    }
    ensure!(
        output.status.success(),
        "the CRDs in {} cannot be written from the types: `cargo test {GENERATED}` failed, as cargo says above",
        folder.join("crds").display()
    );
    let changed = included.into_iter().zip(before);
    let changed = changed.filter(|(path, before)| fs::read(path).ok() != *before);
    Ok(changed.map(|(path, _)| path).collect())
}

/// Makes empty files for the missing generated files that crates below a folder include, so that the crates compile.
pub fn make_missing_below(folder: &Path) -> Result<()> {
    make_missing(&included(&sources(folder)?))
}

fn make_missing(included: &[PathBuf]) -> Result<()> {
    for path in included.iter().filter(|path| !path.exists()) {
        let made = path
            .parent()
            .map_or(Ok(()), fs::create_dir_all)
            .and_then(|()| fs::write(path, ""));
        made.with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Returns the sources below a folder.
fn sources(folder: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut sources = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let about = || format!("cannot read {}", folder.display());
        for entry in fs::read_dir(&folder).with_context(about)? {
            let path = entry.with_context(about)?.path();
            let name = path.file_name().unwrap_or_default();
            if path.is_dir() {
                if !NO_SOURCES.iter().any(|it| name == *it) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
                sources.push((path, text));
            }
        }
    }
    sources.sort();
    Ok(sources)
}

/// Returns the generated files that sources include.
fn included(sources: &[(PathBuf, String)]) -> Vec<PathBuf> {
    let mut included: Vec<_> = sources
        .iter()
        .flat_map(|(path, text)| {
            let names = text.split(INCLUDE).skip(1).filter_map(|rest| rest.split('"').next());
            let names = names.filter(|name| is_generated(name));
            names.map(|name| path.parent().unwrap_or(Path::new("")).join(name))
        })
        .collect();
    included.sort();
    included.dedup();
    included
}

fn is_generated(name: &str) -> bool {
    let path = Path::new(name);
    let is_crd = path.parent().is_some_and(|folder| folder.ends_with("crds"))
        && path.extension().is_some_and(|extension| extension == "yaml");
    is_crd || path.file_name().is_some_and(|name| name == "configuration.schema.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_generated_is_found_by_how_it_is_included() {
        let source = |text: &str| (PathBuf::from("a/src/lib.rs"), text.to_owned());
        let sources = [
            source("const CRD: &str = include_str!(\"../crds/sites.example.com.yaml\");"),
            source("include_str!(\"../configuration.schema.json\"), include_str!(\"../README.md\")"),
        ];
        assert_eq!(
            included(&sources),
            [
                PathBuf::from("a/src/../configuration.schema.json"),
                PathBuf::from("a/src/../crds/sites.example.com.yaml"),
            ]
        );
    }

    #[test]
    fn a_missing_file_is_made_and_a_present_one_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("plugins/site/src/deep");
        fs::create_dir_all(&source).unwrap();
        fs::create_dir_all(folder.path().join("plugins/site/crds")).unwrap();
        let kept = folder.path().join("plugins/site/crds/kept.yaml");
        fs::write(&kept, "kind: A").unwrap();
        let text = r#"include_str!("../../crds/new.yaml"); include_str!("../../crds/kept.yaml")"#;
        fs::write(source.join("mod.rs"), text).unwrap();
        make_missing_below(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(kept).unwrap(), "kind: A");
        assert_eq!(
            fs::read_to_string(folder.path().join("plugins/site/crds/new.yaml")).unwrap(),
            ""
        );
    }
}
