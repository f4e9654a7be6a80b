//! The layout is the design: which crate may depend on what, where `unsafe` may stand, how files begin, and that what
//! ARCHITECTURE.md names exists.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pilothouse_end_to_end::components::root;
use serde_json::Value;

/// The direct dependencies of each crate of the workspace, dev-dependencies apart.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("cargo speaks JSON");
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let text = |value: &Value| value.as_str().expect("it is text").to_owned();
    packages
        .iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().expect("cargo lists dependencies");
            let direct = dependencies
                .iter()
                .filter(|it| it["kind"].as_str() != Some("dev"))
                .map(|it| text(&it["name"]));
            (text(&package["name"]), direct.collect())
        })
        .collect()
}

/// Crates that each crate must not depend on directly; ARCHITECTURE.md says why.
const FORBIDDEN: &[(&str, &[&str])] = &[
    (
        "pilothouse-crds",
        &[
            "wasmtime",
            "kube-client",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-description",
        &[
            "kube",
            "k8s-openapi",
            "wasmtime",
            "tokio",
            "schemars",
            "serde-saphyr",
            "pilothouse-core",
            "pilothouse-plugin",
        ],
    ),
    (
        "pilothouse-core",
        &[
            "kube",
            "k8s-openapi",
            "wasmtime",
            "tokio",
            "hyper",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-sandbox",
        &[
            "kube",
            "k8s-openapi",
            "tokio",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-cluster",
        &["wasmtime", "pilothouse-sandbox", "pilothouse-runtime"],
    ),
    (
        "pilothouse-webhook",
        &[
            "kube",
            "k8s-openapi",
            "wasmtime",
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-artifact",
        &[
            "kube",
            "k8s-openapi",
            "wasmtime",
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-metrics",
        &[
            "kube",
            "k8s-openapi",
            "wasmtime",
            "tokio",
            "hyper",
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-traces",
        &[
            "kube",
            "k8s-openapi",
            "wasmtime",
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-runtime",
        &["kube", "k8s-openapi", "wasmtime", "hyper", "clap"],
    ),
    ("pilothouse-host", &["kube", "k8s-openapi", "wasmtime"]),
    ("pilothouse", &["kube", "k8s-openapi", "wasmtime"]),
    (
        "pilothouse-build",
        &[
            "kube",
            "wasmtime",
            "tokio",
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
        ],
    ),
    (
        "pilothouse-plugin",
        &[
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
            "kube",
        ],
    ),
    (
        "pilothouse-simulator",
        &[
            "kube",
            "pilothouse-core",
            "pilothouse-sandbox",
            "pilothouse-cluster",
            "pilothouse-runtime",
            "wasmtime",
        ],
    ),
];

/// Crates that only the named crates may depend on.
const ONLY: &[(&str, &[&str])] = &[
    ("wasmtime", &["pilothouse-sandbox"]),
    (
        "kube",
        &[
            "pilothouse-cluster",
            "pilothouse-testkit",
            "pilothouse-demo",
            "pilothouse-end-to-end",
            "pilothouse-faults",
            "pilothouse-baseline",
            "pilothouse-fuzz",
            "pilothouse-crds",
            "hostile",
        ],
    ),
    ("reqwest", &["pilothouse-artifact"]),
    ("sigstore-verify", &["pilothouse-artifact"]),
    ("prometheus-client", &["pilothouse-metrics"]),
    ("hyper-rustls", &["pilothouse-traces", "pilothouse-webhook"]),
    // host/artifact/src/registry/http.rs says why.
    ("oci-client", &[]),
    ("pilothouse-webhook", &["pilothouse-runtime", "pilothouse-end-to-end"]),
    (
        "pilothouse-runtime",
        &[
            "pilothouse",
            "pilothouse-host",
            "pilothouse-testhost",
            "pilothouse-demo",
            "pilothouse-end-to-end",
            "pilothouse-fuzz",
            "pilothouse-faults",
            "xtask",
        ],
    ),
];

#[test]
fn no_crate_depends_on_what_it_must_not() {
    let dependencies = dependencies();
    for (dependent, forbidden) in FORBIDDEN {
        let direct = dependencies
            .get(*dependent)
            .unwrap_or_else(|| panic!("{dependent} is a crate of the workspace"));
        for dependency in *forbidden {
            assert!(
                !direct.contains(*dependency),
                "{dependent} must not depend on {dependency}"
            );
        }
    }
    for (dependency, dependents) in ONLY {
        for (dependent, direct) in &dependencies {
            assert!(
                !direct.contains(*dependency) || dependents.contains(&dependent.as_str()),
                "{dependent} must not depend on {dependency}; only {dependents:?} may"
            );
        }
    }
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("it can be read").path();
        let hidden = path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if hidden || path.ends_with("target") {
            continue;
        }
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

#[test]
fn every_file_begins_with_a_module_comment() {
    let mut files = Vec::new();
    rust_files(&root(), &mut files);
    assert!(files.len() > 100, "the files are found");
    for file in files {
        let text = fs::read_to_string(&file).expect("it can be read");
        let says = text.starts_with("//! ");
        assert!(says, "{} does not begin with //!", file.display());
    }
}

#[test]
fn unsafe_code_is_forbidden_but_where_it_cannot_be() {
    /// Memory-mapped machine code; the guest's allocator and exports; a symbol of the C library, so that runs can be repeated.
    const ALLOWED: &[&str] = &["host/sandbox", "plugins/sdk", "tests/faults"];
    let root = root();
    let mut files = Vec::new();
    rust_files(&root, &mut files);
    let roots = files
        .iter()
        .filter(|file| file.ends_with("src/lib.rs") || file.ends_with("src/main.rs"));
    for file in roots {
        let place = file
            .strip_prefix(&root)
            .expect("it was found there")
            .to_string_lossy()
            .into_owned();
        // What a plugin exports is unsafe by nature; the export macro allows it where it stands.
        let is_guest = place.starts_with("plugins/") || place.starts_with("tests/guests/");
        if is_guest || ALLOWED.iter().any(|allowed| place.starts_with(allowed)) {
            continue;
        }
        let text = fs::read_to_string(file).expect("it can be read");
        assert!(
            text.contains("#![forbid(unsafe_code)]"),
            "{place} lacks #![forbid(unsafe_code)]"
        );
    }
}

#[test]
fn every_path_that_the_architecture_names_exists() {
    let root = root();
    let text = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("ARCHITECTURE.md is there");
    assert!(text.lines().count() <= 250, "ARCHITECTURE.md has at most 250 lines");
    let mut named = 0;
    for quoted in text.split('`').skip(1).step_by(2) {
        let is_path = quoted.contains('/')
            && !quoted.contains([' ', '<', ':', '*', '$', '@'])
            && [
                "author/",
                "host/",
                "description/",
                "plugins/",
                "tests/",
                "wit/",
                "crds/",
                "deploy/",
                "xtask/",
            ]
            .iter()
            .any(|it| quoted.starts_with(it));
        if is_path {
            named += 1;
            assert!(
                root.join(quoted).exists(),
                "ARCHITECTURE.md names {quoted}, which does not exist"
            );
        }
    }
    assert!(named > 20, "the paths are found");
}
