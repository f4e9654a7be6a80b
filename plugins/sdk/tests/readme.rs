//! Keeps both READMEs true, this crate's and the project's: their plugin is the one of `smallest.rs`, which is compiled
//! and tested.

/// The plugin, with its tests.
fn tested() -> &'static str {
    let (_, tested) = include_str!("smallest.rs")
        .split_once("\n\n")
        .expect("a line of comment comes first");
    tested.trim_end()
}

#[test]
fn the_plugin_of_the_sdks_readme_is_the_one_that_is_tested() {
    assert!(
        include_str!("../README.md").contains(tested()),
        "copy plugins/sdk/tests/smallest.rs into plugins/sdk/README.md"
    );
}

#[test]
fn the_projects_readme_has_the_same_plugin_without_its_tests() {
    let (plugin, _) = tested().split_once("\n\n#[cfg(test)]").expect("tests come last");
    assert!(
        include_str!("../../../README.md").contains(&format!("```rust\n{plugin}\n```")),
        "copy the plugin of plugins/sdk/tests/smallest.rs, without its tests, into README.md"
    );
}
