//! Keeps both READMEs true, this crate's and the project's: their plugin is the one of `smallest.rs`, which is compiled
//! and tested.

#[test]
fn the_plugin_of_the_readmes_is_the_one_that_is_tested() {
    let (_, tested) = include_str!("smallest.rs")
        .split_once("\n\n")
        .expect("a line of comment comes first");
    for (path, readme) in [
        ("plugins/sdk/README.md", include_str!("../README.md")),
        ("README.md", include_str!("../../../README.md")),
    ] {
        assert!(
            readme.contains(tested.trim_end()),
            "copy plugins/sdk/tests/smallest.rs into {path}"
        );
    }
}
