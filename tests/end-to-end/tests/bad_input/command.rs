//! Tests of the messages for files that are no plugins, and for invalid command lines.

use crate::program::{Folder, ended_with_kubeconfig, refused};

/// Name, content, and words of the refusal.
type BadFile = (&'static str, Vec<u8>, &'static [&'static str]);

fn bad_files() -> Vec<BadFile> {
    let text = |text: &str| wat::parse_str(text).expect("it is WebAssembly text");
    let wasi = r#"(component
        (import "wasi:cli/environment@0.3.0" (instance))
        (import "wasi:filesystem/types@0.3.0" (instance)))"#;
    let no_reconcile = r#"(component
        (instance $manifest)
        (export "pilothouse:plugin/manifest@0.1.0" (instance $manifest)))"#;
    let mut cut = text(no_reconcile);
    cut.truncate(cut.len() - 3);
    vec![
        (
            "notes.wasm",
            b"remember the milk".to_vec(),
            &[
                "this is not WebAssembly: it starts with \"remember",
                "give the path of a component",
            ],
        ),
        ("empty.wasm", Vec::new(), &["the file is empty; build the plugin again"]),
        (
            "module.wasm",
            text("(module)"),
            &[
                "this is a core module, not a component; encode it",
                "cargo xtask plugins",
            ],
        ),
        (
            "wasi.wasm",
            text(wasi),
            &[
                "imports wasi:cli/environment@0.3.0, wasi:filesystem/types@0.3.0",
                "remove what needs these imports",
            ],
        ),
        (
            "half.wasm",
            text(no_reconcile),
            &["does not export pilothouse:plugin/reconciler@0.1.0; every plugin exports"],
        ),
        (
            "nothing.wasm",
            text("(component)"),
            &["does not export pilothouse:plugin/manifest@0.1.0 and pilothouse:plugin/reconciler@0.1.0"],
        ),
        ("cut.wasm", cut, &["is damaged", "fetch or build it again"]),
    ]
}

#[test]
fn inspect_says_what_is_wrong_with_a_file() {
    let folder = Folder::new();
    for (name, content, words) in bad_files() {
        let path = folder.file(name, content);
        let (code, said) = refused(&["inspect", &path]);
        assert_eq!(code, 1, "{name}: {said}");
        assert!(
            said.starts_with(&format!("error: cannot load the component {path}: ")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
        for words in words {
            assert!(said.contains(words), "{name}: it does not say {words:?}: {said}");
        }
    }
    let absent = folder.path("absent.wasm");
    let (code, said) = refused(&["inspect", &absent]);
    assert_eq!(code, 1);
    assert!(
        said.contains(&format!(
            "cannot read the component {absent}: No such file or directory"
        )),
        "{said}"
    );
}

#[test]
fn run_names_each_file_that_is_no_plugin_and_ends_without_any() {
    let folder = Folder::new();
    let kubeconfig = folder.kubeconfig("http://127.0.0.1:1", "there");
    let files = bad_files();
    let mut arguments = vec!["run".to_owned(), "--kubeconfig".to_owned(), kubeconfig];
    for (name, content, _) in &files {
        arguments.extend(["--plugin".to_owned(), folder.file(name, content)]);
    }
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    let (code, said) = refused(&arguments);
    assert_eq!(code, 1, "{said}");
    for (name, _, words) in &files {
        let line = said
            .lines()
            .find(|line| line.contains("the plugin cannot be loaded") && line.contains(name));
        let line = line.unwrap_or_else(|| panic!("{name} is not named:\n{said}"));
        assert!(words.iter().all(|words| line.contains(words)), "{line}");
    }
    assert!(
        said.ends_with("error: none of the plugins can be used; see the errors above\n"),
        "{said}"
    );
}

#[test]
fn a_kubeconfig_of_the_environment_that_is_cut_is_named_too() {
    let folder = Folder::new();
    let sound = folder.kubeconfig("http://127.0.0.1:1", "there");
    let cut = folder.file("cut.yaml", [0xff, 0xfe, b'{']);
    let (code, _, said) = ended_with_kubeconfig(&["run", "--plugin", "unused.wasm"], &format!("{sound}:{cut}"));
    assert_eq!(code, 1, "{said}");
    for words in ["cut.yaml cannot be used", "UTF-16"] {
        assert!(said.contains(words), "{said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn a_kubeconfig_that_cannot_be_used_is_named_with_the_cause() {
    let folder = Folder::new();
    let absent = folder.path("absent.yaml");
    let broken = folder.file("broken.yaml", "clusters: [}\n");
    let list = folder.file("list.yaml", "- a\n- b\n");
    let other = folder.kubeconfig("http://127.0.0.1:1", "elsewhere");
    let garbled = folder.file(
        "garbled.yaml",
        "current-context: a\ncontexts:\n- name: a\n  context: {cluster: none, user: none}\n",
    );
    for (arguments, words) in [
        (
            vec![&*absent],
            &*vec![
                "absent.yaml cannot be used",
                "No such file or directory",
                "--kubeconfig",
            ],
        ),
        (
            vec![&*broken],
            &["broken.yaml cannot be used", "mismatched bracket", "correct it"],
        ),
        (
            vec![&*list],
            &[
                "list.yaml cannot be used",
                "it is no mapping with clusters",
                "correct it",
            ],
        ),
        (
            vec![&*other],
            &[
                "kubeconfig.yaml cannot be used",
                "it has no context \"elsewhere\"; it has ",
                "another context with --context",
            ],
        ),
        (
            vec![&*other, "--context", "nowhere"],
            &[
                "kubeconfig.yaml cannot be used",
                "it has no context \"nowhere\"",
                "--context",
            ],
        ),
        (
            vec![&*garbled],
            &["garbled.yaml cannot be used", "cluster", "none", "correct it"],
        ),
    ] {
        let (code, said) = refused(&[&["run", "--plugin", "unused.wasm", "--kubeconfig"], &*arguments].concat());
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("error: kubeconfig "), "{said}");
        for words in words {
            assert!(said.contains(words), "it does not say {words:?}: {said}");
        }
    }
}

#[test]
fn a_command_line_that_cannot_be_meant_is_refused() {
    let folder = Folder::new();
    let kubeconfig = folder.kubeconfig("http://127.0.0.1:1", "there");
    let file = folder.file("file.yaml", "a: 1\n");
    let run = ["run", "--plugin", "absent.wasm", "--kubeconfig", &kubeconfig];
    let (nobody, nameless) = (format!("nobody={file}"), format!("={file}"));
    for (more, code, words) in [
        (
            &["--config", &*nobody][..],
            1,
            "--config names nobody, but no usable plugin is called so; a plugin is called by NAME in",
        ),
        (
            &["--limits", &nobody],
            1,
            "--limits names nobody, but no usable plugin is called so",
        ),
        (&["--config", &file], 1, "names no plugin; write --config PLUGIN=FILE"),
        (
            &["--config", &nobody, "--config", &nobody],
            1,
            "--config is given twice for plugin nobody",
        ),
        (&["--config", &nameless], 2, "write FILE or NAME=FILE"),
        (&["--workers", "0"], 2, "invalid value '0' for '--workers <NUMBER>'"),
        (&["--resync", "0"], 2, "invalid value '0' for '--resync <SECONDS>'"),
        (&["--no-such-option"], 2, "unexpected argument '--no-such-option'"),
    ] {
        let (ended, said) = refused(&[&run[..], more].concat());
        assert_eq!(ended, code, "{more:?}: {said}");
        assert!(said.contains(words), "{more:?} does not say {words:?}: {said}");
    }
    for option in ["--config", "--limits"] {
        let (code, said) = refused(&["run", "--kubeconfig", &kubeconfig, option, &nobody]);
        assert!(code == 2 && said.contains("--plugin <[NAME=]FILE>"), "{said}");
    }
    let (code, said) = refused(&[&run[..], &["--plugin-dir", "."]].concat());
    assert!(
        code == 2 && said.contains("'--plugin <[NAME=]FILE>' cannot be used with '--plugin-dir <DIRECTORY>'"),
        "{said}"
    );
}

/// Tests with plugins, which the other parts of the tests build.
mod simulated {
    use serde_json::{Value, json};

    use crate::program::{Folder, component, printed, refused};

    #[test]
    fn invalid_limits_and_configurations_are_refused_with_the_range() {
        let folder = Folder::new();
        let kubeconfig = folder.kubeconfig("http://127.0.0.1:1", "there");
        let hostile = component("hostile");
        let run = ["run", "--kubeconfig", &kubeconfig, "--plugin", &hostile];
        for (option, content, words) in [
            (
                "--limits",
                "callMilliseconds: 1\n",
                &["limit callMilliseconds is 1; it must be between 10 and 10000"][..],
            ),
            (
                "--limits",
                "memoryBytes: 68719476736\n",
                &["limit memoryBytes is 68719476736; it must be between 1048576 and 67108864"],
            ),
            (
                "--limits",
                "calMilliseconds: 50\n",
                &[
                    "does not hold limits: unknown field `calMilliseconds`",
                    "`callMilliseconds`",
                ],
            ),
            (
                "--limits",
                "callMilliseconds: soon\n",
                &["does not hold limits: invalid type: string \"soon\""],
            ),
            ("--limits", "a: [}\n", &["is neither YAML nor JSON"]),
            ("--config", "a: [}\n", &["is neither YAML nor JSON"]),
            (
                "--config",
                "surprise: 1\n",
                &[
                    "the plugin refuses its configuration",
                    "unknown field `surprise`, expected one of",
                    "hostile.wasm",
                ],
            ),
            (
                "--config",
                "describe: nonsense\n",
                &["unknown variant `nonsense`, expected one of", "hostile.wasm"],
            ),
        ] {
            let file = folder.file("it.yaml", content);
            let (code, said) = refused(&[&run[..], &[option, &format!("hostile={file}")]].concat());
            assert_eq!(code, 1, "{content}: {said}");
            for words in words {
                assert!(
                    said.contains(words),
                    "{option} {content} does not say {words:?}: {said}"
                );
            }
        }
        let absent = format!("hostile={}", folder.path("absent.yaml"));
        let (code, said) = refused(&[&run[..], &["--config", &absent]].concat());
        assert!(
            code == 1 && said.contains("absent.yaml: No such file or directory"),
            "{said}"
        );
    }

    #[test]
    fn inspect_names_admission_of_each_kind_and_prints_crds() {
        let gate = component("gate");
        let said = printed(&["inspect", &gate]);
        assert!(
            said.contains("admission    defaulter, validator before each reconcile, and at create"),
            "{said}"
        );
        assert!(
            said.contains("): the component exports the interface finalizer, but no controller"),
            "{said}"
        );
        let said: Value = serde_json::from_str(&printed(&["inspect", &gate, "-o", "json"])).unwrap();
        let gates = json!({"name": "gates", "kind": {"group": "gate.test.dev", "version": "v1", "kind": "Gate"},
            "interfaces": ["reconciler", "defaulter", "validator"],
            "phases": ["create", "update", "reconcile"],
            "admission": {"failurePolicy": "Fail", "timeoutSeconds": 5}});
        assert_eq!(said["controllers"], json!([gates]));
        assert_eq!(said["manifest"]["crds"][0]["spec"]["names"]["kind"], "Gate");
        let folder = Folder::new();
        let config = folder.file("config.json", r#"{"finalizer": true}"#);
        let said: Value =
            serde_json::from_str(&printed(&["inspect", &gate, "--config", &config, "-o", "json"])).unwrap();
        assert_eq!((&said["warnings"], &said["errors"]), (&json!([]), &json!([])));
        let interfaces = json!(["reconciler", "finalizer", "defaulter", "validator"]);
        assert_eq!(said["controllers"][0]["interfaces"], interfaces);
    }

    #[test]
    fn inspect_lists_defaulters_and_validators_as_the_manifest() {
        let gate = component("gate");
        let is_open = "the manifest does not say whether they are for this kind";
        assert!(printed(&["inspect", &gate]).contains(is_open));
        let folder = Folder::new();
        let config = folder.file(
            "config.json",
            r#"{"finalizer": true, "defaulter": false, "validator": true}"#,
        );
        let said = printed(&["inspect", &gate, "--config", &config]);
        assert!(
            said.contains("admission    validator before each reconcile, and at create") && !said.contains(is_open),
            "{said}"
        );
        let json = printed(&["inspect", &gate, "--config", &config, "-o", "json"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        let controller = &json["controllers"][0];
        assert_eq!(
            controller["interfaces"],
            json!(["reconciler", "finalizer", "validator"])
        );
        assert_eq!(controller["phases"], json!(["create", "update", "reconcile"]));
        let unused = "the component exports the interface defaulter, but every controller says defaulter: false";
        assert!(json["warnings"][0].as_str().unwrap().starts_with(unused), "{json}");
        let neither = folder.file("neither.json", r#"{"defaulter": false, "validator": false}"#);
        let json = printed(&["inspect", &gate, "--config", &neither, "-o", "json"]);
        let json: Value = serde_json::from_str(&json).unwrap();
        let controller = &json["controllers"][0];
        assert_eq!(
            (&controller["phases"], &controller["admission"]),
            (&json!([]), &Value::Null)
        );
    }

    #[test]
    fn inspect_reports_status_fields_that_a_crd_does_not_accept() {
        let folder = Folder::new();
        let wisher = component("wisher");
        let text = json!({"type": "string"});
        let condition = json!({"type": "object", "required": ["type", "status"], "properties": {
            "type": text, "status": text, "reason": text, "message": text, "lastTransitionTime": text}});
        let conditions = json!({"type": "array", "items": condition, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"]});
        for (status, lacks) in [
            (
                json!({"type": "object", "properties": {"conditions": conditions}}),
                ".status.conditions[].observedGeneration, .status.observedGeneration",
            ),
            (
                json!({"type": "object"}),
                ".status.conditions, .status.observedGeneration",
            ),
        ] {
            let schema = json!({"type": "object", "properties": {"status": status}});
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": "wishes.wishes.test.dev"},
                "spec": {
                    "group": "wishes.test.dev", "scope": "Namespaced",
                    "names": {"kind": "Wish", "plural": "wishes", "singular": "wish"},
                    "versions": [{
                        "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                        "schema": {"openAPIV3Schema": schema},
                    }],
                },
            });
            let config = json!({"owns": ["ConfigMap"], "crds": [definition.to_string()]});
            let config = folder.file("config.json", config.to_string());
            let inspect = ["inspect", &wisher, "--config", &config];
            let expected = format!("the CRD of Wish does not take {lacks}");
            let said = printed(&inspect);
            assert!(said.contains(&format!("warning (status-fields): {expected}")), "{said}");
            let said = printed(&[&inspect[..], &["--output", "json"]].concat());
            let said: Value = serde_json::from_str(&said).unwrap();
            assert!(said["warnings"][0].as_str().unwrap().starts_with(&expected), "{said}");
        }
    }
}
