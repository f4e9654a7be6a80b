//! Writes `schemas/*.json`, what the simulated API server knows of the built-in kinds, from a real API server and from the
//! Go types of the same release.
//!
//! The server's discovery says which resources there are, its OpenAPI v3 what they look like. What neither says is how
//! Go writes a zero: whether `0` and `""` vanish, stay, or appear uninvited. That is read from the struct tags.
//!
//! Usage: `cargo run -p pilothouse-simulator --example generate-schemas -- URL TOKEN GO_MODULES`, where GO_MODULES is the
//! folder that holds `api@VERSION`, `apimachinery@VERSION` and `apiextensions-apiserver@VERSION` (`$(go env GOMODCACHE)/k8s.io`).

#![forbid(unsafe_code)]

mod go_types;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use go_types::{Sources, of_go_types};
use serde_json::{Map, Value, json};

/// The group versions that the simulated API server serves.
const SERVED: &[&str] = &[
    "v1",
    "admissionregistration.k8s.io/v1",
    "apiextensions.k8s.io/v1",
    "apps/v1",
    "authentication.k8s.io/v1",
    "authorization.k8s.io/v1",
    "autoscaling/v2",
    "batch/v1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "events.k8s.io/v1",
    "networking.k8s.io/v1",
    "policy/v1",
    "rbac.authorization.k8s.io/v1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1",
];

/// Needed by the scale subresource although its group version is not served.
const EXTRA_DOCUMENTS: &[&str] = &["autoscaling/v1"];

/// Members of a schema that are kept; descriptions are prose and would be most of the bytes.
const KEPT: &[&str] = &[
    "additionalProperties",
    "allOf",
    "default",
    "enum",
    "format",
    "items",
    "nullable",
    "oneOf",
    "properties",
    "required",
    "type",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-group-version-kind",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-preserve-unknown-fields",
];

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, token, modules] = arguments.as_slice() else {
        bail!("usage: generate-schemas URL TOKEN GO_MODULES");
    };
    let server = Server::new(url, token);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");

    let mut definitions = BTreeMap::new();
    let mut discovery = Vec::new();
    for group_version in SERVED {
        let list = server.get(&format!("/{}", prefix(group_version)))?;
        discovery.push(resources(group_version, &list)?);
        collect(&server, group_version, &mut definitions)?;
    }
    for group_version in EXTRA_DOCUMENTS {
        collect(&server, group_version, &mut definitions)?;
    }
    keep_reachable(&mut definitions, &discovery);

    let mut sources = Sources::new(Path::new(modules));
    let (zeros, numbers) = of_go_types(&mut sources, definitions.keys())?;
    write_lines(&folder.join("definitions.json"), &definitions)?;
    write_lines(&folder.join("zeros.json"), &zeros)?;
    write_lines(&folder.join("numbers.json"), &numbers)?;
    let mut text = String::from("[\n");
    for (index, entry) in discovery.iter().enumerate() {
        let comma = if index + 1 == discovery.len() { "" } else { "," };
        writeln!(text, "{entry}{comma}")?;
    }
    text.push_str("]\n");
    std::fs::write(folder.join("resources.json"), text).context("write resources.json")?;
    let version = server.get("/version")?;
    std::fs::write(folder.join("version.json"), format!("{version:#}\n")).context("write version.json")?;
    Ok(())
}

struct Server {
    agent: ureq::Agent,
    url: String,
    token: String,
}

impl Server {
    fn new(url: &str, token: &str) -> Self {
        // The test control plane makes its own certificate; there is nothing to check it against.
        let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
        let agent = ureq::Agent::config_builder().tls_config(tls).build().new_agent();
        Self {
            agent,
            url: url.trim_end_matches('/').to_owned(),
            token: token.to_owned(),
        }
    }

    fn get(&self, path: &str) -> Result<Value> {
        let mut response = self
            .agent
            .get(format!("{}{path}", self.url))
            .header("Authorization", format!("Bearer {}", self.token))
            .header("Accept", "application/json")
            .call()
            .with_context(|| format!("get {path}"))?;
        let text = response.body_mut().with_config().limit(64 << 20).read_to_string()?;
        serde_json::from_str(&text).with_context(|| format!("parse the answer to {path}"))
    }
}

fn prefix(group_version: &str) -> String {
    if group_version.contains('/') {
        format!("apis/{group_version}")
    } else {
        format!("api/{group_version}")
    }
}

/// One entry of resources.json: the group version and its resources as discovery lists them.
fn resources(group_version: &str, list: &Value) -> Result<Value> {
    let mut resources = list["resources"]
        .as_array()
        .context("discovery lists no resources")?
        .clone();
    for resource in &mut resources {
        if let Some(members) = resource.as_object_mut() {
            members.remove("storageVersionHash");
        }
    }
    Ok(json!({"groupVersion": group_version, "resources": resources}))
}

fn collect(server: &Server, group_version: &str, definitions: &mut BTreeMap<String, Value>) -> Result<()> {
    let document = server.get(&format!("/openapi/v3/{}", prefix(group_version)))?;
    let schemas = document["components"]["schemas"]
        .as_object()
        .context("the document has no schemas")?;
    for (name, schema) in schemas {
        definitions.insert(name.clone(), strip(schema));
    }
    Ok(())
}

fn strip(schema: &Value) -> Value {
    let Some(members) = schema.as_object() else {
        return schema.clone();
    };
    let mut kept = Map::new();
    for (name, value) in members {
        if name == "$ref" {
            kept.insert(name.clone(), value.clone());
        }
        if !KEPT.contains(&name.as_str()) {
            continue;
        }
        let value = match name.as_str() {
            "properties" => value
                .as_object()
                .into_iter()
                .flatten()
                .map(|(name, schema)| (name.clone(), strip(schema)))
                .collect(),
            "items" | "additionalProperties" => strip(value),
            "allOf" | "oneOf" => value.as_array().into_iter().flatten().map(strip).collect(),
            // Options and statuses list every group of the server; only the kinds themselves say one.
            "x-kubernetes-group-version-kind" if value.as_array().is_some_and(|kinds| kinds.len() != 1) => continue,
            _ => value.clone(),
        };
        kept.insert(name.clone(), value);
    }
    Value::Object(kept)
}

/// Drops definitions that no served kind refers to.
fn keep_reachable(definitions: &mut BTreeMap<String, Value>, discovery: &[Value]) {
    let mut wanted: BTreeSet<(String, String)> = BTreeSet::new();
    for entry in discovery {
        let group_version = entry["groupVersion"].as_str().unwrap_or_default();
        for resource in entry["resources"].as_array().into_iter().flatten() {
            let kind = resource["kind"].as_str().unwrap_or_default();
            let own = match (resource["group"].as_str(), resource["version"].as_str()) {
                (Some(group), Some(version)) => format!("{group}/{version}"),
                _ => group_version.to_owned(),
            };
            wanted.insert((own.clone(), kind.to_owned()));
            wanted.insert((own, format!("{kind}List")));
        }
    }
    let mut queue: Vec<String> = definitions
        .iter()
        .filter(|(name, schema)| {
            let served = schema["x-kubernetes-group-version-kind"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|kind| {
                    let group = kind["group"].as_str().unwrap_or_default();
                    let version = kind["version"].as_str().unwrap_or_default();
                    let group_version = if group.is_empty() {
                        version.to_owned()
                    } else {
                        format!("{group}/{version}")
                    };
                    wanted.contains(&(group_version, kind["kind"].as_str().unwrap_or_default().to_owned()))
                });
            served || name.starts_with("io.k8s.apimachinery.pkg.apis.meta.v1.")
        })
        .map(|(name, _)| name.clone())
        .collect();
    let mut reached = BTreeSet::new();
    while let Some(name) = queue.pop() {
        if reached.insert(name.clone())
            && let Some(schema) = definitions.get(&name)
        {
            references(schema, &mut queue);
        }
    }
    definitions.retain(|name, _| reached.contains(name));
}

fn references(schema: &Value, into: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str() {
                    Some(target) if name == "$ref" => {
                        into.push(target.trim_start_matches("#/components/schemas/").to_owned());
                    }
                    _ => references(value, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

/// One entry a line, so that a difference between two releases can be read.
fn write_lines(path: &Path, entries: &BTreeMap<String, Value>) -> Result<()> {
    let mut text = String::from("{\n");
    for (index, (name, value)) in entries.iter().enumerate() {
        let comma = if index + 1 == entries.len() { "" } else { "," };
        writeln!(text, "{}: {value}{comma}", json!(name))?;
    }
    text.push_str("}\n");
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))
}
