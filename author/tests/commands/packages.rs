//! Published packages contain all files that they include: users of a registry have no others.

use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::program::checkout;

/// The folders of the crates that are published.
fn published() -> Vec<PathBuf> {
    let names: Vec<_> = xtask::publish::published()
        .unwrap()
        .into_iter()
        .map(|it| it.name)
        .collect();
    let mut folders = vec![checkout().to_path_buf()];
    let mut published = Vec::new();
    while let Some(folder) = folders.pop() {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if names
            .iter()
            .any(|name| manifest.starts_with(&format!("[package]\nname = \"{name}\"\n")))
        {
            published.push(folder.clone());
        }
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        let is_ours = |path: &PathBuf| !path.ends_with("target") && !path.ends_with(".git") && !path.is_symlink();
        folders.extend(entries.filter(|path| path.is_dir() && is_ours(path)));
    }
    assert_eq!(published.len(), names.len(), "{names:?} {published:?}");
    published
}

/// The sources of a crate that are compiled for its users.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut sources = Vec::new();
    let mut folders = vec![folder.join("src")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_of_tests = path.file_stem().is_some_and(|stem| stem == "tests");
            if path.is_dir() && !is_of_tests {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && !is_of_tests {
                sources.push(path);
            }
        }
    }
    sources
}

#[test]
fn no_source_of_a_published_crate_includes_a_file_outside_of_it() {
    let mut included = 0;
    for package in published() {
        for source in sources(&package) {
            let text = fs::read_to_string(&source).unwrap();
            // What stands behind this is not compiled for those who use the crate.
            let text = text.split("#[cfg(test)]").next().unwrap();
            let text = text.split("#[cfg(doctest)]").next().unwrap();
            for including in ["include_str!(\"", "include_bytes!(\""] {
                for rest in text.split(including).skip(1) {
                    let path = source.parent().unwrap().join(rest.split('"').next().unwrap());
                    let real = inside_of(&package, &path);
                    assert!(real.exists(), "{} includes {}", source.display(), path.display());
                    included += 1;
                }
            }
            // The contract, of which bindings are made.
            for rest in text
                .split("path: \"")
                .skip(1)
                .filter(|_| text.contains("generate!") || text.contains("bindgen!"))
            {
                let path = package.join(rest.split('"').next().unwrap());
                let real = inside_of(&package, &path);
                assert!(
                    real.join("plugin.wit").is_file(),
                    "{}: {}",
                    source.display(),
                    path.display()
                );
                included += 1;
            }
        }
    }
    assert!(included > 10, "{included}");
}

/// The path without `..`, which is in the package.
fn inside_of(package: &Path, path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            part => plain.push(part),
        }
    }
    assert!(
        plain.starts_with(package),
        "{} is outside of the package {}",
        plain.display(),
        package.display()
    );
    plain
}
