//! Extracts `openapi.json` from the OpenAPI v3 documents of one version of Kubernetes: the schemas of the built kinds
//! and of all their parts, without what no setter needs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value};

use super::crd_schemas::reference_of;
use super::docs::first_sentences;
use super::{EXTRACT, GROUPS, NOT_BUILT};

/// Members of a schema that decide which setter there is.
const KEPT: [&str; 6] = ["additionalProperties", "enum", "format", "oneOf", "required", "type"];

/// Writes a new extract from a folder of OpenAPI v3 documents: `api/openapi-spec/v3` in the sources of Kubernetes.
pub fn run(folder: &Path) -> Result<()> {
    let mut documents = BTreeMap::new();
    let mut kept = BTreeMap::new();
    let mut waiting = Vec::new();
    for document in GROUPS.iter().filter_map(|group| group.document) {
        let path = folder.join(format!("{document}_openapi.json"));
        let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let text: Value = serde_json::from_str(&text).with_context(|| format!("reading {}", path.display()))?;
        let schemas = text["components"]["schemas"].as_object().cloned().unwrap_or_default();
        for (name, schema) in &schemas {
            if is_built_kind(name, schema) {
                waiting.push(name.clone());
            }
        }
        documents.extend(schemas);
    }
    while let Some(name) = waiting.pop() {
        if kept.contains_key(&name) {
            continue;
        }
        let schema = documents
            .get(&name)
            .with_context(|| format!("no document has {name}"))?;
        let schema = reduce(&name, schema);
        references(&schema, &mut waiting);
        kept.insert(name, schema);
    }
    ensure!(!kept.is_empty(), "{} has no schemas", folder.display());
    let lines: Vec<String> = kept
        .iter()
        .map(|(name, schema)| format!("{name:?}: {schema}"))
        .collect();
    fs::write(EXTRACT, format!("{{\n{}\n}}\n", lines.join(",\n"))).context("writing openapi.json")
}

fn is_built_kind(name: &str, schema: &Value) -> bool {
    let kind = name.rsplit('.').next().unwrap_or_default();
    let is_kind = schema["x-kubernetes-group-version-kind"]
        .as_array()
        .is_some_and(|kinds| kinds.len() == 1);
    let is_of_group = GROUPS
        .iter()
        .any(|group| group.document.is_some() && name.strip_prefix(group.prefix) == Some(kind));
    is_kind && is_of_group && !kind.ends_with("List") && !NOT_BUILT.contains(&kind)
}

fn reduce(name: &str, schema: &Value) -> Value {
    let mut reduced = Map::new();
    let Some(members) = schema.as_object() else {
        return Value::Object(reduced);
    };
    if let Some(reference) = reference_of(schema) {
        reduced.insert("$ref".to_owned(), reference.into());
    }
    for (key, member) in members {
        match key.as_str() {
            "description" => {
                let text = first_sentences(member.as_str().unwrap_or_default());
                reduced.insert(key.clone(), text.into());
            }
            // A definition within a definition; CRDs are generated, not built.
            "properties" if !name.ends_with(".JSONSchemaProps") => {
                let is_kind = members.contains_key("x-kubernetes-group-version-kind");
                let properties = member.as_object().into_iter().flatten();
                let properties = properties.filter(|(property, _)| !is_kind || *property != "status");
                let reduce = |(property, schema): (&String, &Value)| (property.clone(), reduce(property, schema));
                reduced.insert(key.clone(), Value::Object(properties.map(reduce).collect()));
            }
            "items" => drop(reduced.insert(key.clone(), reduce("", member))),
            "additionalProperties" if member.is_object() => drop(reduced.insert(key.clone(), reduce("", member))),
            "x-kubernetes-group-version-kind" => {
                if let Some([kind]) = member.as_array().map(Vec::as_slice) {
                    reduced.insert(key.clone(), kind.clone());
                }
            }
            key if KEPT.contains(&key) => drop(reduced.insert(key.to_owned(), member.clone())),
            _ => {}
        }
    }
    Value::Object(reduced)
}

fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(reference) if name == "$ref" => found.push(reference.clone()),
                    _ => references(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}
