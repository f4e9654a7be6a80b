//! Tests of the files that `cargo xtask plugins` writes.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::fs;

use wit_component::DecodedWasm;
use xtask::plugins::{Built, PluginsOptions, build, directory};

fn only(name: &str) -> PluginsOptions {
    PluginsOptions {
        only: vec![name.to_owned()],
        ..PluginsOptions::default()
    }
}

#[test]
fn a_plugin_imports_and_exports_the_contract_and_nothing_else() {
    let Built { path, name, .. } = build(&only("app-service")).unwrap().remove(0);
    assert_eq!(
        (name.as_str(), &path),
        ("app-service", &directory().join("app-service.wasm"))
    );
    let DecodedWasm::Component(resolve, world) = wit_component::decode(&fs::read(path).unwrap()).unwrap() else {
        panic!("this is a WIT package");
    };
    let world = &resolve.worlds[world];
    let names = |keys: Vec<_>| {
        keys.into_iter()
            .map(|key| resolve.name_world_key(key))
            .collect::<Vec<_>>()
    };
    let of = |interface: &str| format!("pilothouse:plugin/{interface}@0.1.0");
    // app-service asks for no time; what is not called is not imported. The types come with every interface.
    assert_eq!(
        names(world.imports.keys().collect()),
        ["types", "cluster", "log"].map(of)
    );
    assert_eq!(
        names(world.exports.keys().collect()),
        ["manifest", "reconciler"].map(of)
    );
}

#[test]
fn a_component_that_has_not_changed_is_left_as_it_is() {
    build(&only("app-service")).unwrap();
    let again = build(&only("app-service")).unwrap();
    assert!(!again[0].changed);
}

#[test]
fn a_component_says_nothing_of_the_machine_that_built_it() {
    let built = build(&only("app-service")).unwrap();
    let bytes = fs::read(&built[0].path).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    let home = std::env::home_dir().unwrap();
    assert!(
        !text.contains(&format!("{}/", home.display())),
        "a path of {} is in the component",
        home.display()
    );
    assert!(text.contains("crates/serde_json-"), "panics still say where they are");
}

#[test]
fn an_unknown_plugin_is_refused_with_the_names_that_there_are() {
    let error = build(&only("nonsense")).unwrap_err().to_string();
    assert!(
        error.starts_with("no plugin is named nonsense; there are app-service, bundle, "),
        "{error}"
    );
}
