//! `pilothouse build`: what is refused, what becomes of components of other toolchains, and one new project from its files to
//! its component.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::dice;
use crate::program::{call, ended, program};

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
}

/// A program that ends with the code.
fn fake(folder: &Path, name: &str, script: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn what_is_no_crate_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let error = call(folder.path(), &["build"]).failed(1);
    assert!(
        error.contains("has no Cargo.toml; run the command in the folder of a plugin's crate"),
        "{error}"
    );
    let error = call(folder.path(), &["build", "nothing"]).failed(1);
    assert!(error.contains("nothing is no folder"), "{error}");
    write(
        folder.path(),
        &[
            ("page.wasm", "<html>"),
            ("empty.wasm", ""),
            ("module.wasm", "\0asm\u{1}\0\0\0"),
        ],
    );
    for file in ["page.wasm", "empty.wasm"] {
        let error = call(folder.path(), &["build", file]).failed(1);
        assert!(
            error.contains(&format!("{file} cannot become a plugin: it is no WebAssembly")),
            "{error}"
        );
    }
    let error = call(folder.path(), &["build", "--component", "module.wasm"]).failed(1);
    assert!(
        error.contains("it exports no plugin; in Rust, add `pilothouse_plugin::export!"),
        "{error}"
    );
    assert!(!folder.path().join("module.component.wasm").exists());
}

#[test]
fn a_crate_that_is_no_plugin_is_told_what_makes_it_one() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "[package]\nname = \"site\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n";
    write(folder.path(), &[("Cargo.toml", manifest), ("src/lib.rs", "")]);
    let error = call(folder.path(), &["build", "--", "--offline"]).failed(1);
    assert!(
        error.contains("site is no plugin") && error.contains("crate-type = [\"cdylib\", \"rlib\"]"),
        "{error}"
    );

    let library = "[lib]\ncrate-type = [\"cdylib\"]\n";
    write(folder.path(), &[("Cargo.toml", &format!("{manifest}{library}"))]);
    let error = call(folder.path(), &["build", "--", "--offline"]).failed(1);
    assert!(error.contains("pilothouse_plugin::export!"), "{error}");

    write(
        folder.path(),
        &[
            ("Cargo.toml", "[workspace]\nmembers = [\"a\"]\n"),
            (
                "a/Cargo.toml",
                &format!("{}{library}", manifest.replace("[workspace]\n", "")),
            ),
            ("a/src/lib.rs", ""),
        ],
    );
    let error = call(folder.path(), &["build", "--", "--offline"]).failed(1);
    assert!(
        error.contains("is a workspace and no crate; give the folder of a plugin: "),
        "{error}"
    );

    write(folder.path(), &[("Cargo.toml", "[package")]);
    let error = call(folder.path(), &["build", "--", "--offline"]).failed(1);
    assert!(error.contains("cargo cannot read"), "{error}");
}

#[test]
fn what_calls_javascript_is_found_before_anything_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let package = |name: &str, version: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"{version}\"\nedition = \"2024\"\n{rest}")
    };
    let site = |dependencies: &str| {
        let rest = format!("[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n{dependencies}");
        write(
            folder.path(),
            &[
                ("site/Cargo.toml", &package("site", "0.1.0", &rest)),
                ("site/src/lib.rs", "not Rust"),
            ],
        );
        call(
            &folder.path().join("site"),
            &["build", "--no-generate", "--", "--offline"],
        )
        .failed(1)
    };
    let with_js = "[features]\ndefault = [\"wasmbind\"]\nwasmbind = [\"dep:js-sys\"]\n[dependencies]\n\
                   js-sys = { path = \"../js-sys\", optional = true }\n";
    write(
        folder.path(),
        &[
            ("wasm-bindgen/Cargo.toml", &package("wasm-bindgen", "0.2.0", "")),
            ("wasm-bindgen/src/lib.rs", ""),
            (
                "js-sys/Cargo.toml",
                &package(
                    "js-sys",
                    "0.3.0",
                    "[dependencies]\nwasm-bindgen = { path = \"../wasm-bindgen\" }\n",
                ),
            ),
            ("js-sys/src/lib.rs", ""),
            ("chrono/Cargo.toml", &package("chrono", "0.4.41", with_js)),
            ("chrono/src/lib.rs", ""),
            ("dates/Cargo.toml", &package("dates", "1.0.0", with_js)),
            ("dates/src/lib.rs", ""),
        ],
    );
    let chrono = site("[dependencies]\nchrono = { path = \"../chrono\" }\n");
    for words in [
        "site cannot become a plugin: it is linked with wasm-bindgen, which calls JavaScript",
        "(site 0.1.0 -> chrono 0.4.41 -> js-sys 0.3.0 -> wasm-bindgen 0.2.0)",
        "write chrono = { version = \"0.4.41\", default-features = false, features = [\"alloc\", \"serde\"] }",
        "cargo tree --target wasm32-unknown-unknown --edges normal,features --invert wasm-bindgen",
    ] {
        assert!(chrono.contains(words), "{words}: {chrono}");
    }
    let dates = site("[dependencies]\ndates = { path = \"../dates\" }\n");
    assert!(
        dates.contains("dates brings it: switch off its feature wasmbind"),
        "{dates}"
    );
    let direct = site("[dependencies]\nwasm-bindgen = { path = \"../wasm-bindgen\" }\n");
    assert!(
        direct.contains("Remove the dependencies wasm-bindgen, js-sys"),
        "{direct}"
    );
    for found in [&chrono, &dates, &direct] {
        assert!(!found.contains("could not compile"), "{found}");
    }
    // What only tests and builds use, and what is for another target, is not linked with the plugin.
    for harmless in [
        "[dependencies]\nchrono = { path = \"../chrono\", default-features = false }\n",
        "[dev-dependencies]\nchrono = { path = \"../chrono\" }\n",
        "[build-dependencies]\nchrono = { path = \"../chrono\" }\n",
        "[target.'cfg(unix)'.dependencies]\nchrono = { path = \"../chrono\" }\n",
    ] {
        let error = site(harmless);
        assert!(
            error.contains("cannot be compiled") && !error.contains("JavaScript"),
            "{harmless}: {error}"
        );
    }
}

#[test]
fn what_wants_randomness_is_found_before_anything_is_compiled() {
    let folder = tempfile::tempdir().unwrap();
    let package = |name: &str, version: &str, rest: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"{version}\"\nedition = \"2024\"\n{rest}")
    };
    let random = |version: &str| package("getrandom", version, "[features]\ncustom = []\nstd = []\n");
    let asks = "getrandom = { path = \"../getrandom\", optional = true }\n";
    let maybe = |feature: &str| {
        format!("[features]\ndefault = [\"{feature}\"]\n{feature} = [\"dep:getrandom\"]\n[dependencies]\n{asks}")
    };
    write(
        folder.path(),
        &[
            ("getrandom/src/lib.rs", ""),
            (
                "rand_core/Cargo.toml",
                &package(
                    "rand_core",
                    "0.6.4",
                    "[dependencies]\ngetrandom = { path = \"../getrandom\" }\n",
                ),
            ),
            ("rand_core/src/lib.rs", ""),
            (
                "rand/Cargo.toml",
                &package(
                    "rand",
                    "0.8.5",
                    "[dependencies]\nrand_core = { path = \"../rand_core\" }\n",
                ),
            ),
            ("rand/src/lib.rs", ""),
            ("uuid/Cargo.toml", &package("uuid", "1.18.0", &maybe("v4"))),
            ("uuid/src/lib.rs", ""),
            ("names/Cargo.toml", &package("names", "2.0.0", &maybe("runtime-rng"))),
            ("names/src/lib.rs", ""),
        ],
    );
    let site = |version: &str, dependencies: &str| {
        let rest = format!("[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n{dependencies}");
        let files = [
            ("getrandom/Cargo.toml", random(version)),
            ("site/Cargo.toml", package("site", "0.1.0", &rest)),
            ("site/src/lib.rs", "not Rust".to_owned()),
        ];
        write(
            folder.path(),
            &files.each_ref().map(|(name, text)| (*name, text.as_str())),
        );
        let _ = fs::remove_file(folder.path().join("site/Cargo.lock"));
        let arguments = ["build", "--no-generate", "--", "--offline"];
        call(&folder.path().join("site"), &arguments).failed(1)
    };
    let on = |name: &str| format!("[dependencies]\n{name} = {{ path = \"../{name}\" }}\n");
    for (name, words) in [
        (
            "rand",
            "In Cargo.toml write rand = { version = \"0.8.5\", default-features = false, features = [\"small_rng\"] }",
        ),
        ("uuid", "default-features = false, features = [\"v5\", \"serde\"]"),
        (
            "names",
            "names brings it: switch off its feature runtime-rng, or do without names",
        ),
        ("getrandom", "Remove getrandom from Cargo.toml"),
    ] {
        for version in ["0.2.16", "0.3.4", "0.4.1"] {
            let error = site(version, &on(name));
            assert!(
                error.contains(words) && error.contains("metadata.uid"),
                "{name}: {error}"
            );
            assert!(!error.contains("cannot be compiled"), "{name}: {error}");
        }
    }
    let error = site("0.2.16", &on("rand"));
    assert!(
        error.contains("(site 0.1.0 -> rand 0.8.5 -> rand_core 0.6.4 -> getrandom 0.2.16)"),
        "{error}"
    );
    // What only tests use is not linked, and a backend of one's own is meant.
    let is_let_through = |error: String| error.contains("cannot be compiled") && !error.contains("randomness");
    assert!(is_let_through(site(
        "0.2.16",
        "[dev-dependencies]\nrand = { path = \"../rand\" }\n"
    )));
    let custom = format!(
        "{}getrandom = {{ path = \"../getrandom\", features = [\"custom\"] }}\n",
        on("rand")
    );
    assert!(is_let_through(site("0.2.16", &custom)));
    assert!(!is_let_through(site("0.3.4", &custom)));
    let flags = "[target.wasm32-unknown-unknown]\nrustflags = ['--cfg', 'getrandom_backend=\"unsupported\"']\n";
    write(folder.path(), &[("site/.cargo/config.toml", flags)]);
    assert!(is_let_through(site("0.3.4", &on("rand"))));
}

#[test]
fn a_missing_compiler_is_named_with_its_install_command() {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("programs");
    fs::create_dir(&programs).unwrap();
    let build = || {
        let mut build = program(folder.path());
        ended(
            build
                .arg("build")
                .env("PATH", &programs)
                .env_remove("RUSTC")
                .env_remove("CARGO"),
        )
    };
    let error = build().failed(1);
    assert!(
        error.contains("Rust is not installed") && error.contains("https://sh.rustup.rs"),
        "{error}"
    );

    fake(&programs, "rustc", "echo /no/such/folder");
    fake(&programs, "rustup", "exit 1");
    fake(&programs, "apt-get", "exit 100");
    let error = build().failed(1);
    assert!(
        error.contains("run `rustup target add wasm32-unknown-unknown`, or on Debian `apt-get install"),
        "{error}"
    );
}

#[test]
fn a_component_that_no_host_would_run_is_printed_and_fails() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = |finalizer: &str| {
        format!(
            r#"{{"name": "keeper", "version": "0.1.0", "controllers": [{{"name": "keeper", {finalizer}
                "kind": {{"group": "", "version": "v1", "kind": "ConfigMap"}}, "fields": [".data"]}}]}}"#
        )
    };
    let component = |name: &str, finalizer: &str| {
        let component = dice::component_saying(&manifest(finalizer));
        fs::write(folder.path().join(name), component).unwrap();
    };
    component("keeper.wasm", "");
    component("waiting.wasm", r#""finalizer": "example.com/keeper","#);
    for command in [
        &["build", "keeper.wasm"][..],
        &["inspect", "keeper.wasm"],
        &["manifests", "keeper.wasm", "--wasi", "inert"],
    ] {
        call(folder.path(), command).ok();
    }

    let said = "error (finalizer-missing): controller keeper names a finalizer, but the component does not export the interface finalizer";
    let refusal = "waiting.wasm would not work as it is described";
    let ended = call(folder.path(), &["inspect", "waiting.wasm"]);
    assert!(
        ended.out.contains("finalizer    example.com/keeper"),
        "it is printed: {}",
        ended.out
    );
    assert!(ended.out.contains(said), "{}", ended.out);
    let error = ended.failed(1);
    assert!(error.contains(refusal), "{error}");

    let ended = call(folder.path(), &["inspect", "waiting.wasm", "-o", "json"]);
    let document: Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!(document["errors"].as_array().map(Vec::len), Some(1), "{document}");
    ended.failed(1);

    let error = call(folder.path(), &["build", "waiting.wasm", "--out", "built.wasm"]).failed(1);
    assert!(
        error.contains(said) && error.contains("built.wasm would not work"),
        "{error}"
    );
    assert!(!folder.path().join("built.wasm").exists(), "it was put in place");

    let error = call(folder.path(), &["manifests", "waiting.wasm", "--wasi", "inert"]).failed(1);
    assert!(error.contains(said) && error.contains(refusal), "{error}");
}

#[test]
fn a_component_with_unknown_imports_is_refused_with_their_names() {
    let folder = tempfile::tempdir().unwrap();
    let component = r#"(component
        (import "acme:clock/now@1.0.0" (instance (export "read" (func (result u64)))))
        (import "print" (func)))"#;
    fs::write(folder.path().join("foreign.wasm"), wat::parse_str(component).unwrap()).unwrap();
    let error = call(folder.path(), &["build", "foreign.wasm", "--out", "built.wasm"]).failed(1);
    for words in [
        "foreign.wasm cannot become a plugin",
        "imports acme:clock/now@1.0.0, print, and a plugin may import only the interfaces of pilothouse:plugin",
        "remove what needs these imports",
    ] {
        assert!(error.contains(words), "{words}: {error}");
    }
    let module = r#"(module (import "env" "gettime" (func)) (memory (export "memory") 1))"#;
    fs::write(folder.path().join("module.wasm"), wat::parse_str(module).unwrap()).unwrap();
    let error = call(folder.path(), &["build", "module.wasm", "--out", "built.wasm"]).failed(1);
    assert!(error.contains("module.wasm cannot become a plugin"), "{error}");
    assert!(error.contains("env") && error.contains("gettime"), "{error}");
    assert!(!folder.path().join("built.wasm").exists(), "it was put in place");
}

#[test]
fn a_component_with_wasi_installs_only_with_the_named_grant() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("dice.wasm"), dice::component()).unwrap();
    let shown = call(folder.path(), &["inspect", "dice.wasm"]).ok();
    assert!(
        shown.contains("WASI          imports wasi:random/random@0.2.3 (for "),
        "{shown}"
    );
    let said = call(folder.path(), &["inspect", "dice.wasm", "-o", "json"]).ok();
    let said: Value = serde_json::from_str(&said).unwrap();
    let wasi = json!({"imports": ["wasi:random/random@0.2.3"], "grant": "Inert"});
    assert_eq!(said["wasi"], wasi);
    let built = call(folder.path(), &["build", "dice.wasm"]);
    let note = "note: the component imports wasi:random/random@0.2.3; it runs only with spec.wasi: Inert";
    assert!(built.err.contains(note), "{}", built.err);
    built.ok();
    for command in ["manifests", "install", "rights"] {
        let error = call(folder.path(), &[command, "dice.wasm"]).failed(1);
        assert!(
            error.contains("wasi:random/random@0.2.3") && error.contains("--wasi inert"),
            "{command}: {error}"
        );
    }
    let manifests = call(folder.path(), &["manifests", "dice.wasm", "--wasi", "inert"]).ok();
    assert!(manifests.contains("wasi: Inert"), "{manifests}");
}

#[test]
fn a_status_too_narrow_for_the_host_is_built_with_a_warning() {
    let folder = tempfile::tempdir().unwrap();
    let kind = json!({"group": "example.com", "version": "v1", "kind": "Site"});
    let crd = |status: Value| {
        let schema = json!({"type": "object", "properties": {"status": status}});
        let version = json!({"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": schema}});
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "sites.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"kind": "Site", "plural": "sites", "singular": "site"}, "versions": [version]}})
    };
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let closed = json!({"type": "object", "properties": {"url": {"type": "string"}}});
    for (status, is_warned) in [(open, false), (closed, true)] {
        let manifest = json!({"name": "site", "version": "0.1.0", "crds": [crd(status).to_string()],
            "controllers": [{"name": "site", "kind": kind, "fields": [".spec"]}]});
        let component = dice::component_saying(&manifest.to_string());
        fs::write(folder.path().join("site.wasm"), component).unwrap();
        let ended = call(folder.path(), &["build", "site.wasm"]);
        let warning =
            "warning (status-fields): the CRD of Site does not take .status.conditions, .status.observedGeneration";
        assert_eq!(ended.err.contains(warning), is_warned, "{}", ended.err);
        assert!(ended.ok().starts_with("site 0.1.0  "));
    }
}

mod isolated {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;

    use pilothouse_build::compile::Compilation;
    use pilothouse_build::package::Package;
    use pilothouse_build::toolchain::{Toolchain, ToolchainChoice};
    use xtask::plugins::{PluginsOptions, build, directory};

    use super::write;
    use crate::program::{Lines, call, checkout, ended, program};

    fn app_service() -> PathBuf {
        let options = PluginsOptions {
            only: vec!["app-service".to_owned()],
            ..PluginsOptions::default()
        };
        build(&options).unwrap().remove(0).path
    }

    #[test]
    fn a_component_of_another_toolchain_is_checked_and_wrapped() {
        let component = app_service();
        let folder = tempfile::tempdir().unwrap();
        let component_path = component.display().to_string();
        let checked = call(folder.path(), &["build", &component_path]).ok();
        assert!(
            checked.starts_with("app-service ") && checked.contains("(unchanged)"),
            "{checked}"
        );

        let module = directory().join("../guests/wasm32-unknown-unknown/plugin/app_service.wasm");
        fs::copy(module, folder.path().join("module.wasm")).unwrap();
        let wrapped = call(folder.path(), &["build", "--component", "module.wasm"]).ok();
        assert!(wrapped.contains("sha256:"), "{wrapped}");
        let bytes = fs::read(folder.path().join("module.component.wasm")).unwrap();
        assert!(bytes == fs::read(component).unwrap(), "the component is another one");
    }

    /// Writes a crate with a panic that names its file, and another in its workspace with another: texts that would
    /// tell the folders apart. Cargo's hash of a crate outside of the workspace has its whole path, which the order of
    /// functions follows.
    fn module_in(folder: &Path) -> Vec<u8> {
        let package = |name: &str, rest: &str| {
            format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{rest}")
        };
        let library =
            "[workspace]\n[lib]\ncrate-type = [\"cdylib\"]\n[dependencies]\nneighbour = { path = \"neighbour\" }\n";
        let source = "#[unsafe(no_mangle)]\npub extern \"C\" fn check(n: u32) -> u32 { neighbour::check(n); \
                      assert!(n > 2, \"{}\", file!()); n }\n";
        let neighbour = "pub fn check(n: u32) { assert!(n > 1, \"{}\", file!()); }\n";
        write(
            folder,
            &[
                ("site/Cargo.toml", &package("site", library)),
                ("site/src/lib.rs", source),
                ("site/neighbour/Cargo.toml", &package("neighbour", "")),
                ("site/neighbour/src/lib.rs", neighbour),
            ],
        );
        let toolchain = Toolchain::find(ToolchainChoice::Auto).unwrap();
        let offline = ["--offline".into()];
        let package = Package::find(toolchain, &folder.join("site"), &offline).unwrap();
        let compilation = Compilation {
            toolchain,
            package: &package,
            target_directory: &package.target_directory,
            profile: None,
            arguments: &offline,
        };
        compilation.run().unwrap()
    }

    #[test]
    fn the_same_source_gives_the_same_bytes_in_two_folders() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let deeper = other.path().join("somewhere/else");
        let module = module_in(one.path());
        assert!(module == module_in(&deeper), "the bytes depend on the folder");
        let text = String::from_utf8_lossy(&module);
        assert!(
            text.contains("plugin/src/lib.rs") || text.contains("src/lib.rs"),
            "panics say where they are"
        );
        assert!(
            !text.contains(&one.path().display().to_string()),
            "the folder is in the module"
        );
    }

    /// Follows an author from the start: a project, its tests, its component, and another kind in it.
    #[test]
    fn a_new_project_passes_its_tests_and_becomes_a_component() {
        // It stays, so that it is compiled once and not for each run.
        let folder = checkout().join("target/new-project");
        fs::create_dir_all(&folder).unwrap();
        let project = folder.join("site");
        let kept = folder.join("kept");
        let _ = fs::rename(project.join("target"), &kept);
        let _ = fs::remove_dir_all(&project);
        let sdk = checkout().display().to_string();
        let new = [
            "new",
            "site",
            "--kind",
            "example.com/v1/Site",
            "--finalizer",
            "--admission",
            "--sdk",
            &sdk,
        ];
        call(&folder, &new).ok();
        let _ = fs::rename(&kept, project.join("target"));
        call(
            &project,
            &[
                "new",
                "kind",
                "example.com/v1beta1/Cluster",
                "--scope",
                "Cluster",
                "--finalizer",
            ],
        )
        .ok();
        call(&project, &["new", "admission", "Cluster"]).ok();
        // The CRDs of the template are what the types give, so this compares them first.
        let tests = ended(
            Command::new("cargo")
                .args(["test", "--offline"])
                .current_dir(&project)
                .env_remove("UPDATE"),
        );
        assert_eq!(tests.code, 0, "{}{}", tests.out, tests.err);
        assert!(tests.out.contains("14 passed"), "{}", tests.out);
        // What the project's workflow asks of it.
        for arguments in [
            &["fmt", "--check"][..],
            &["clippy", "--offline", "--all-targets", "--", "--deny", "warnings"],
        ] {
            let checked = ended(Command::new("cargo").args(arguments).current_dir(&project));
            assert_eq!(checked.code, 0, "cargo {arguments:?}: {}{}", checked.out, checked.err);
        }
        assert!(!tests.err.contains("warning"), "{}", tests.err);

        // A CRD that is missing, and one that is stale, are written anew.
        let (missing, stale) = (
            project.join("crds/sites.example.com.yaml"),
            project.join("crds/clusters.example.com.yaml"),
        );
        let expected = (fs::read(&missing).unwrap(), fs::read(&stale).unwrap());
        fs::remove_file(&missing).unwrap();
        fs::write(&stale, "kind: CustomResourceDefinition").unwrap();
        let built = call(&project, &["build", "--", "--offline"]);
        assert!(
            built.err.contains("building site 0.1.0 for wasm32-unknown-unknown"),
            "{}",
            built.err
        );
        assert!(built.err.contains("crds/clusters.example.com.yaml"), "{}", built.err);
        let built = built.ok();
        assert!(built.starts_with("site 0.1.0  "), "{built}");
        assert!(
            expected == (fs::read(&missing).unwrap(), fs::read(&stale).unwrap()),
            "the CRDs are others"
        );

        let inspected = call(&project, &["inspect", "target/plugins/site.wasm"]).ok();
        assert!(
            inspected.contains("interfaces    manifest, reconciler, finalizer, defaulter, validator"),
            "{inspected}"
        );
        assert!(!inspected.contains("warning"), "{inspected}");
        let manifests = call(&project, &["manifests", "target/plugins/site.wasm"]).ok();
        assert!(manifests.contains("name: clusters.example.com"), "{manifests}");
        // One of them with webhooks and a finalizer, the other one of the cluster's scope.
        let played = call(&project, &["test"]).ok();
        assert!(played.contains("2 passed, 0 failed"), "{played}");

        // What has not changed is not written, so nobody who watches it builds again.
        let written = fs::metadata(&stale).unwrap().modified().unwrap();
        let again = call(&project, &["build", "--out", "site.wasm", "--", "--offline"]);
        assert!(!again.err.contains("wrote"), "{}", again.err);
        assert_eq!(fs::metadata(&stale).unwrap().modified().unwrap(), written);
        assert!(again.ok().contains("sha256:"));
        let built = fs::read(project.join("target/plugins/site.wasm")).unwrap();
        assert!(
            built == fs::read(project.join("site.wasm")).unwrap(),
            "the same source gives other bytes"
        );
        assert!(built == built_elsewhere(&project), "the bytes depend on the folder");
        develop(&project);
    }

    /// Copies a project into another folder, and builds it there.
    fn built_elsewhere(project: &Path) -> Vec<u8> {
        let copy = checkout().join("target/new-project/elsewhere/deeper/site");
        fs::create_dir_all(&copy).unwrap();
        for name in ["Cargo.toml", "Cargo.lock", "src", "crds"] {
            let copied = Command::new("cp").arg("-r").arg(project.join(name)).arg(&copy).status();
            assert!(copied.unwrap().success(), "{name}");
        }
        call(&copy, &["build", "--no-generate", "--", "--offline"]).ok();
        fs::read(copy.join("target/plugins/site.wasm")).unwrap()
    }

    /// `pilothouse dev` in a project as its author starts it: it builds, and swaps when a source is saved.
    fn develop(project: &Path) {
        let mut command = program(project);
        command
            .args(["dev", "--plain", "-f", "sample.yaml"])
            .env("CARGO_NET_OFFLINE", "true");
        let mut dev = Lines::of(&mut command);
        dev.wait_for(&["build", "site 0.1.0", "runs,"]);
        dev.wait_for(&["applied sample.yaml"]);
        dev.wait_for(&["Deployment default/sample was made for Site default/sample"]);
        let library = project.join("src/lib.rs");
        let source = fs::read_to_string(&library).unwrap();
        let changed = source.replace("env!(\"CARGO_PKG_DESCRIPTION\")", "\"Another description.\"");
        assert_ne!(source, changed);
        fs::write(&library, changed).unwrap();
        dev.wait_for(&["build", "built in"]);
        dev.wait_for(&["build", "runs,", "after it was built"]);
        dev.wait_for(&["Site default/sample: a new version of the plugin"]);
    }
}
