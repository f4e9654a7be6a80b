//! Tests of printed manifests without a cluster. `UPDATE_GOLDEN=1` writes the golden files.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use pilothouse_crds::plugin::PluginSpec;
use pilothouse_end_to_end::components::root;
use pilothouse_end_to_end::program::{Folder, component, printed, refused};
use serde_json::Value;

const PLUGINS: [&str; 5] = [
    "app-service",
    "ecs-binding",
    "reverse-proxy",
    "service-ingress",
    "stream-ingress",
];

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

#[test]
fn the_rights_of_each_plugin_are_those_of_its_golden_file() {
    for plugin in PLUGINS {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/install/golden/{plugin}.yaml"));
        let found = printed(&["rights", &component(plugin)]);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            fs::write(&file, &found).unwrap();
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        assert_eq!(found, golden, "{}; UPDATE_GOLDEN=1 writes it", file.display());
    }
}

#[test]
fn an_installation_is_printed_in_the_order_to_apply_it() {
    let found = printed(&[
        "install",
        &format!("proxy={}", component("reverse-proxy")),
        "--namespaces",
        "a,b",
        "-o",
        "yaml",
    ]);
    let documents = documents(&found);
    let kinds: Vec<_> = documents
        .iter()
        .map(|document| document["kind"].as_str().unwrap())
        .collect();
    let definition = "CustomResourceDefinition";
    assert_eq!(
        kinds,
        [
            definition,
            definition,
            "ServiceAccount",
            "Role",
            "Role",
            "RoleBinding",
            "RoleBinding",
            "Plugin"
        ]
    );
    let plugin = documents.last().unwrap();
    assert_eq!(plugin["metadata"]["name"], "proxy");
    let spec: PluginSpec = serde_json::from_value(plugin["spec"].clone()).unwrap();
    assert_eq!(spec.namespaces, ["a", "b"]);
    assert_eq!(spec.source.file.as_deref(), Some("reverse-proxy.wasm"));
    assert!(spec.source.digest.unwrap().starts_with("sha256:"));
    let list = printed(&["install", &component("reverse-proxy"), "-o", "json"]);
    let list: Value = serde_json::from_str(&list).unwrap();
    assert_eq!(
        (&list["kind"], list["items"].as_array().unwrap().len()),
        (&Value::from("List"), 8)
    );
}

#[test]
fn rights_follow_the_configuration_and_the_namespaces() {
    let folder = Folder::new();
    let config = folder.file("config.yaml", "namespace: edge\n");
    let component = component("stream-ingress");
    let found = printed(&[
        "rights",
        &component,
        "--config",
        &config,
        "--namespaces",
        "shop",
        "--access-namespaces",
        "edge",
    ]);
    let roles = documents(&found);
    let in_edge = roles
        .iter()
        .find(|it| it["kind"] == "Role" && it["metadata"]["namespace"] == "edge")
        .unwrap();
    let rules = in_edge["rules"].as_array().unwrap();
    let config_maps = rules.iter().find(|rule| rule["resources"][0] == "configmaps").unwrap();
    assert_eq!(config_maps["resourceNames"].as_array().unwrap().len(), 2);
    assert!(!roles.iter().any(|it| it["kind"] == "ClusterRole"), "{found}");
}

#[test]
fn what_cannot_be_meant_is_refused_with_the_next_step() {
    let component = component("app-service");
    let folder = Folder::new();
    let notes = folder.file("notes.wasm", "remember the milk");
    let hosted = ["--host-namespace", "Not_A_Label"];
    for (arguments, words) in [
        (
            vec![component.as_str(), "--namespaces", "No_Label"],
            "namespace \"No_Label\" is not a DNS label",
        ),
        (
            vec![component.as_str(), "--access-namespaces", "a"],
            "access namespaces have no use without namespaces",
        ),
        (
            vec![component.as_str(), hosted[0], hosted[1]],
            "--host-namespace \"Not_A_Label\" is not a DNS label",
        ),
        (
            vec![component.as_str(), "--host-account", "A"],
            "--host-account \"A\" is not the name of a ServiceAccount",
        ),
        (vec![notes.as_str()], "this is not WebAssembly"),
        (vec!["oci-layout:nowhere:1"], "nowhere"),
        (vec!["acme/plugin:1"], "write HOST/REPOSITORY:TAG"),
    ] {
        // A component that cannot be read is no mistake of the command line.
        let expected = if arguments.len() == 1 { 1 } else { 2 };
        for command in ["rights", "install"] {
            let (code, said) = refused(&[&[command][..], &arguments, &["-o", "yaml"]].concat());
            assert!(
                code == expected && said.contains(words),
                "{command} {arguments:?}: {code} {said}"
            );
        }
    }
    let named = format!("My_Plugin={component}");
    let (code, said) = refused(&["install", &named, "-o", "yaml"]);
    assert!(
        code == 2 && said.contains("the Plugin's name \"My_Plugin\" is not a DNS label"),
        "{said}"
    );
    let (code, said) = refused(&["rights", &component, "-o", "table"]);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn a_host_that_impersonates_has_to_know_where_the_accounts_are() {
    let component = component("app-service");
    let arguments = ["run", "--plugin", &component, "--identity", "impersonate"];
    let (code, said) = refused(&arguments);
    assert!(code == 2 && said.contains("give it with --namespace"), "{said}");
    let (code, said) = refused(&[&arguments[..], &["--namespace", "a/b"]].concat());
    assert!(
        code == 2 && said.contains("--namespace \"a/b\" is not a DNS label"),
        "{said}"
    );
}

#[test]
fn a_kind_that_only_a_cluster_knows_is_asked_for_there() {
    // The plugin reader touches whatever it is configured to.
    let folder = Folder::new();
    let unreachable = folder.kubeconfig("http://127.0.0.1:1", "there");
    let config = r#"{"objects": "objects", "touches": [{"kind": {"group": "other.dev", "version": "v1", "kind": "Thing"}, "access": ["read"]}]}"#;
    let config = folder.file("config.json", config);
    let component = component("reader");
    let (code, said) = refused(&["rights", &component, "--config", &config, "--kubeconfig", &unreachable]);
    assert_eq!(code, 1, "{said}");
    for words in [
        "it touches other.dev/v1 Thing",
        "give one that serves it with --kubeconfig",
        "connection refused",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// `pilothouse rights` with this standard output.
fn rights_to(output: Stdio) -> std::process::Child {
    let cache = root().join("target/test-code");
    let mut command = std::process::Command::new(pilothouse_end_to_end::components::program());
    command
        .args(["rights", &component("reverse-proxy")])
        .arg("--cache-dir")
        .arg(cache);
    command.stdout(output).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_full_disk_and_a_closed_pipe_end_a_command_without_a_panic() {
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ended = rights_to(full.into()).wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.starts_with("error: cannot write to standard output: "), "{said}");
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = rights_to(writer.into()).wait_with_output().unwrap();
    let said = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(
        (ended.status.code(), &*said),
        (Some(0), ""),
        "the reader has read enough"
    );
}

#[test]
fn a_plugin_without_webhooks_says_so() {
    let url = ["--webhook-url", "https://host.example.com:9443"];
    let cache = root().join("target/test-code").display().to_string();
    let plugin = component("ecs-binding");
    let arguments = [&["webhooks", &plugin, "--cache-dir", &cache], &url[..]].concat();
    let (code, printed, said) = pilothouse_end_to_end::program::ended(&arguments);
    assert_eq!((code, &*printed), (0, ""), "{said}");
    assert!(said.contains("has no webhooks"), "{said}");
}

#[test]
fn options_that_cannot_be_meant_are_wrong_command_lines() {
    for (arguments, words) in [
        (&["run", "--webhook-url", "http://x"][..], "must begin with https://"),
        (&["run", "--webhook-url", "https://x:99999"], "a port that is none"),
        (&["run", "--leader-election"], "needs the namespace of the Lease"),
        (&["why", "appservice"], "KIND/NAME"),
        (&["why", "appservice/"], "KIND/NAME"),
        (&["record", "appservice"], "KIND/NAME"),
        (
            &["status", "--service", "a/b:99999"],
            "neither the name nor the number of a port",
        ),
        (&["uninstall", "A"], "not the name of a Plugin"),
        (
            &["install", "a.wasm", "--wait", "soon"],
            "a number of seconds, or false",
        ),
    ] {
        let (code, _, said) = pilothouse_end_to_end::program::ended(arguments);
        assert!(code == 2 && said.contains(words), "{arguments:?}: {code} {said}");
    }
}
