//! Checks docs/api.md against the host's API: each member is described, and each example is a document.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use pilothouse_runtime::api::documents::*;
use pilothouse_runtime::api::triggers;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn documentation() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/api.md")).unwrap()
}

/// The example with this name.
fn example(name: &str) -> Value {
    let text = documentation();
    let (_, rest) = text.split_once(&format!("```json {name}\n")).unwrap();
    serde_json::from_str(rest.split("```").next().unwrap()).unwrap()
}

/// The first column of the tables in a section.
fn listed(section: &str) -> BTreeSet<String> {
    let text = documentation();
    let (_, rest) = text.split_once(&format!("\n## {section}")).unwrap();
    let section = rest.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    rows.map(|row| row.split('`').next().unwrap().to_owned()).collect()
}

/// The paths of all members of a document.
fn paths(document: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
        match value {
            Value::Object(members) => {
                for (name, value) in members {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    paths.insert(path.clone());
                    walk(value, &path, paths);
                }
            }
            Value::Array(values) => {
                assert!(
                    !values.is_empty() || path.ends_with("notReady"),
                    "{path} is empty in the example"
                );
                for value in values {
                    walk(value, &format!("{path}[]"), paths);
                }
            }
            _ => {}
        }
    }
    let mut paths = BTreeSet::new();
    walk(document, "", &mut paths);
    paths
}

/// An example is a document of this type with all of its members.
fn is_complete<T: Serialize + DeserializeOwned>(name: &str) {
    let example = example(name);
    let document: T = serde_json::from_value(example.clone()).unwrap();
    let written = serde_json::to_value(&document).unwrap();
    assert_eq!(written, example, "{name}");
}

/// Returns the paths without those that are described elsewhere.
fn described(document: &Value, elsewhere: &[&str]) -> BTreeSet<String> {
    let mut paths = paths(document);
    paths.retain(|path| !elsewhere.iter().any(|elsewhere| path.starts_with(elsewhere)));
    paths
}

#[test]
fn each_example_is_a_document_and_each_member_is_described() {
    is_complete::<StatusDocument>("status");
    is_complete::<ObjectDocument>("objects");
    is_complete::<UsageDocument>("usage");
    is_complete::<RecordingDocument>("recordings");
    is_complete::<ErrorDocument>("error");
    assert_eq!(listed("GET /api/v1/status"), described(&example("status"), &[]));
    let elsewhere = [
        "host.",
        "object.",
        "controllers[].failure.",
        "controllers[].contributesTo[].",
        "controllers[].runs[].triggeredBy.",
        "controllers[].reverted[].object.",
        "madeFor[].object.",
    ];
    let objects: BTreeSet<String> = triggers().map(str::to_owned).collect();
    let expected = described(&example("objects"), &elsewhere)
        .union(&objects)
        .cloned()
        .collect();
    assert_eq!(listed("GET /api/v1/objects"), expected);
    assert_eq!(listed("GET /api/v1/usage"), described(&example("usage"), &["host."]));
    let recordings = described(&example("recordings"), &["host.", "lines[]."]);
    assert_eq!(listed("GET /api/v1/recordings"), recordings);
}

/// Every member, so that one that is left out of an example is found: a member that may be absent is present here.
#[test]
fn no_member_is_missing_in_the_examples() {
    let kind = || KindName {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
    };
    let object = || ObjectName {
        kind: kind(),
        namespace: Some("n".to_owned()),
        name: "a".to_owned(),
    };
    let host = || HostStatus {
        shards_held: Some(1),
        identity: Some(String::new()),
        replicas: vec![String::new()],
        not_ready: vec![String::new()],
        ..HostStatus::default()
    };
    let failure = || FailureDocument {
        retry_in_seconds: Some(1.0),
        ..FailureDocument::default()
    };
    let status = StatusDocument {
        host: host(),
        plugins: vec![PluginStatus {
            version: Some(String::new()),
            digest: Some(String::new()),
            ready: Some(true),
            controllers: vec![ControllerStatus::default()],
            obstacle: Some(VersionObstacle::default()),
            warnings: vec![String::new()],
            ..PluginStatus::default()
        }],
        failing: vec![FailingObject {
            object: object(),
            failure: failure(),
            ..FailingObject::default()
        }],
        failing_not_listed: 0,
    };
    let objects = ObjectDocument {
        host: host(),
        object: object(),
        reconciled_here: true,
        exists: true,
        deleting: false,
        paused: false,
        warning: Some(String::new()),
        controllers: vec![ControllerView {
            for_seconds: Some(1.0),
            next_run_in_seconds: Some(1.0),
            failure: Some(failure()),
            depends_on: vec![DependencyDocument {
                read: String::new(),
                kind: kind(),
                namespace: Some(String::new()),
                name: Some(String::new()),
                selector: Some(String::new()),
            }],
            children: vec![ChildDocument {
                object: object(),
                deleting: false,
                yielded: vec![".spec.replicas".to_owned()],
            }],
            contributes_to: vec![object()],
            runs: vec![RunDocument {
                triggered_by: Some(object()),
                reason: Some(String::new()),
                blame: Some(String::new()),
                ..RunDocument::default()
            }],
            reverted: vec![RevertDocument {
                object: object(),
                fields: vec![String::new()],
                managers: vec![FieldManagerDocument {
                    manager: String::new(),
                    at: Some(String::new()),
                    fields: vec![String::new()],
                }],
                ..RevertDocument::default()
            }],
            ..ControllerView::default()
        }],
        made_for: vec![MakerDocument {
            object: object(),
            ..MakerDocument::default()
        }],
    };
    let usage = UsageDocument {
        host: host(),
        at: String::new(),
        plugins: vec![PluginUsageDocument::default()],
    };
    let all = [
        ("status", serde_json::to_value(&status)),
        ("objects", serde_json::to_value(&objects)),
        ("usage", serde_json::to_value(&usage)),
    ];
    for (name, document) in all {
        assert_eq!(paths(&example(name)), paths(&document.unwrap()), "{name}");
    }
}
