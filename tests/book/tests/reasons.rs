//! Compares the reasons of a Plugin's conditions in the code with docs/conditions.md. Those of objects have a test beside their type.

use std::collections::BTreeSet;
use std::fs;

use pilothouse_book::root;

/// The files that name reasons, beside those of `host/runtime/src/plugins`.
const OTHERS: [&str; 3] = [
    "host/cli/src/artifact/host/store.rs",
    "host/artifact/src/trust/error.rs",
    "host/runtime/src/admission/strays.rs",
];

/// Literals of the same form that are no reasons of a Plugin.
const NO_REASONS: [&str; 4] = ["Plugin", "Reconciling", "True", "False"];

fn sources() -> Vec<String> {
    let mut folders = vec![root().join("host/runtime/src/plugins")];
    let mut files: Vec<_> = OTHERS.map(|path| root().join(path)).into();
    while let Some(folder) = folders.pop() {
        let listed = fs::read_dir(folder).expect("the folder is there");
        let (inner, found): (Vec<_>, Vec<_>) = listed
            .map(|entry| entry.expect("it can be read").path())
            .partition(|path| path.is_dir());
        folders.extend(inner);
        files.extend(found);
    }
    let texts = files.into_iter().map(fs::read_to_string);
    texts.map(|text| text.expect("it is text")).collect()
}

/// The literals of a source that have the form of a reason, without those of its tests.
fn literals(source: &str) -> impl Iterator<Item = &str> {
    let code = source.split("#[cfg(test)]").next().unwrap_or_default();
    code.split('"').filter(|text| {
        text.len() > 3
            && text.starts_with(|first: char| first.is_ascii_uppercase())
            && text.bytes().all(|byte| byte.is_ascii_alphabetic())
    })
}

#[test]
fn conditions_of_a_plugin_are_documented_with_all_reasons() {
    let page = fs::read_to_string(root().join("docs/conditions.md")).unwrap();
    let (_, section) = page.split_once("## Conditions of a Plugin").expect("it has a heading");
    let sources = sources();
    let reasons: BTreeSet<_> = sources.iter().flat_map(|source| literals(source)).collect();
    assert!(reasons.len() > 40 && reasons.contains("FetchFailed"), "{reasons:?}");
    let is_missing = |reason: &&str| !NO_REASONS.contains(reason) && !section.contains(&format!("`{reason}`"));
    let missing: Vec<_> = reasons.iter().copied().filter(|reason| is_missing(reason)).collect();
    assert!(
        missing.is_empty(),
        "docs/conditions.md lacks reasons of a Plugin: {missing:?}"
    );
}
