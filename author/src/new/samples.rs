//! Finds the sample of a kind in a project, whose spec is used in tests of admission, and formats it as Rust source.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// File in a project that is searched for samples first; then come those of these folders, in the order of their names.
const SAMPLE: &str = "sample.yaml";
const FOLDERS: [&str; 6] = ["", "samples", "config/samples", "examples", "deploy", "scenarios"];

/// The endings of files that may have samples.
const ENDINGS: [&str; 3] = ["yaml", "yml", "json"];

/// Depth in a document to which samples are searched: a scenario has its objects in a step.
const MAX_DEPTH: usize = 8;

/// Most characters of a value that is written in one line.
const MAX_LINE: usize = 80;

/// Returns the spec in a new kind's template.
pub fn of_template() -> Value {
    json!({"image": "nginx:1.29"})
}

/// Returns an object of a foreign kind with an annotation, and with a spec if Kubernetes requires one.
pub fn decorated(api_version: &str, kind: &str, name: &str, annotation: &str) -> Value {
    let labels = json!({"app": "web"});
    let pod = json!({"containers": [{"name": "web", "image": "nginx:1.29"}]});
    let template = json!({"metadata": {"labels": labels}, "spec": pod});
    let workload = json!({"selector": {"matchLabels": labels}, "template": template});
    let spec = match (api_version, kind) {
        ("apps/v1", "Deployment" | "DaemonSet" | "ReplicaSet") => workload,
        ("apps/v1", "StatefulSet") => {
            let mut spec = workload;
            spec["serviceName"] = json!("web");
            spec
        }
        ("v1", "Pod") => pod,
        ("v1", "Service") => json!({"selector": labels, "ports": [{"port": 80}]}),
        ("v1", "PersistentVolumeClaim") => {
            json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}})
        }
        ("batch/v1", "Job") => {
            let mut pod = pod;
            pod["restartPolicy"] = json!("Never");
            json!({"template": {"spec": pod}})
        }
        ("batch/v1", "CronJob") => {
            let mut pod = pod;
            pod["restartPolicy"] = json!("Never");
            json!({"schedule": "0 3 * * *", "jobTemplate": {"spec": {"template": {"spec": pod}}}})
        }
        ("networking.k8s.io/v1", "Ingress") => {
            json!({"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}})
        }
        _ => Value::Null,
    };
    let mut object = json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "annotations": {annotation: "blue"}},
    });
    if !spec.is_null() {
        object["spec"] = spec;
    }
    object
}

/// Returns the spec of the first object of a kind among the samples of a project.
pub fn spec_of(project: &Path, api_version: &str, kind: &str) -> Option<Value> {
    let files = std::iter::once(project.join(SAMPLE)).chain(FOLDERS.iter().flat_map(|it| files_in(&project.join(it))));
    files.filter_map(|file| fs::read_to_string(file).ok()).find_map(|text| {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_default();
        documents
            .iter()
            .find_map(|it| spec_in(it, api_version, kind, MAX_DEPTH))
    })
}

fn files_in(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.retain(|path| {
        ENDINGS
            .iter()
            .any(|it| path.extension().is_some_and(|ending| ending == *it))
    });
    files.sort();
    files
}

/// Returns the spec of an object in a document. An object that a step of a scenario expects to be refused is no sample.
fn spec_in(value: &Value, api_version: &str, kind: &str, depth: usize) -> Option<Value> {
    let inside = |value| {
        depth
            .checked_sub(1)
            .and_then(|depth| spec_in(value, api_version, kind, depth))
    };
    match value {
        Value::Object(members) if members.contains_key("refused") => None,
        Value::Object(members) => {
            let is_one = members.get("apiVersion").is_some_and(|it| it == api_version)
                && members.get("kind").is_some_and(|it| it == kind);
            let spec = members.get("spec").filter(|spec| is_one && spec.is_object()).cloned();
            spec.or_else(|| members.values().find_map(inside))
        }
        Value::Array(items) => items.iter().find_map(inside),
        _ => None,
    }
}

/// Formats a value for Rust's `json!`, in lines that are indented by so many spaces except for the first.
pub fn in_rust(value: &Value, indent: usize) -> String {
    let line = one_line(value);
    let (open, close, members) = match value {
        Value::Object(members) if line.len() > MAX_LINE => {
            let members = members.iter();
            let members = members.map(|(key, value)| format!("{key:?}: {}", in_rust(value, indent + 4)));
            ('{', '}', members.collect::<Vec<_>>())
        }
        Value::Array(items) if line.len() > MAX_LINE => {
            let items = items.iter().map(|value| in_rust(value, indent + 4));
            ('[', ']', items.collect())
        }
        _ => return line,
    };
    let inner = " ".repeat(indent + 4);
    let members: Vec<_> = members.iter().map(|member| format!("{inner}{member},")).collect();
    format!("{open}\n{}\n{}{close}", members.join("\n"), " ".repeat(indent))
}

/// Formats a value in one line. Strings have Rust's escapes instead of JSON's, and integers a suffix with their type.
fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Number(number) => match number.as_i64() {
            Some(integer) if i32::try_from(integer).is_err() => format!("{integer}i64"),
            None if number.is_u64() => format!("{number}u64"),
            _ => number.to_string(),
        },
        Value::Array(items) => {
            let items: Vec<_> = items.iter().map(one_line).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(members) => {
            let members = members.iter();
            let members: Vec<_> = members
                .map(|(key, value)| format!("{key:?}: {}", one_line(value)))
                .collect();
            format!("{{{}}}", members.join(", "))
        }
        Value::Null | Value::Bool(_) => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sample_is_found_by_its_kind_and_before_a_scenario() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let spec = || spec_of(folder.path(), "a.b/v1", "Site");
        assert_eq!(spec(), None);
        let object = |page: &str| format!("{{apiVersion: a.b/v1, kind: Site, metadata: {{}}, spec: {{page: {page}}}}}");
        write(
            "scenarios/site.yaml",
            &format!(
                "steps:\n- create:\n    objects: [{}]\n    refused: no\n- apply: {{objects: [{}]}}\n",
                object("refused"),
                object("applied")
            ),
        );
        assert_eq!(spec(), Some(json!({"page": "applied"})));
        write("sample.yaml", &format!("kind: ConfigMap\n---\n{}\n", object("sample")));
        assert_eq!(spec(), Some(json!({"page": "sample"})));
        assert_eq!(spec_of(folder.path(), "a.b/v2", "Site"), None);
    }

    #[test]
    fn a_spec_is_written_as_rust_reads_it() {
        let spec =
            json!({"page": "<h1>\"Hé\"\u{8}</h1>", "replicas": 2, "bytes": 5_000_000_000_u64, "on": [true, null]});
        assert_eq!(
            in_rust(&spec, 12),
            r#"{"bytes": 5000000000i64, "on": [true, null], "page": "<h1>\"Hé\"\u{8}</h1>", "replicas": 2}"#
                .replace("{\"bytes", "{\n                \"bytes")
                .replace(", \"on", ",\n                \"on")
                .replace(", \"page", ",\n                \"page")
                .replace(", \"replicas", ",\n                \"replicas")
                .replace(": 2}", ": 2,\n            }")
        );
        assert_eq!(in_rust(&of_template(), 12), "{\"image\": \"nginx:1.29\"}");
    }
}
