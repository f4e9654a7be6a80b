//! Compares which kinds the host reads without their types with the definitions of a real server.

use pilothouse_core::Kind;
use pilothouse_core::kubernetes::fields::LeafSemantics;
use serde_json::{Map, Value};

const DEFINITIONS: &str = include_str!("../../schemas/definitions.json");

/// Returns `true` if a value of this schema has parts of its own in a field set.
fn has_parts(definitions: &Map<String, Value>, schema: &Value) -> bool {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        return has_parts(definitions, &definitions[name]);
    }
    if let Some(all) = schema["allOf"].as_array() {
        return all.iter().any(|schema| has_parts(definitions, schema));
    }
    match schema["type"].as_str() {
        Some("array") => schema["x-kubernetes-list-type"]
            .as_str()
            .is_some_and(|it| it != "atomic"),
        Some("object") => schema["x-kubernetes-map-type"] != "atomic",
        _ => schema["properties"].is_object(),
    }
}

/// The paths of the maps whose values have parts.
fn maps_of_parts(definitions: &Map<String, Value>, schema: &Value, path: &str, found: &mut Vec<String>) {
    if schema["additionalProperties"].is_object() && has_parts(definitions, &schema["additionalProperties"]) {
        found.push(path.to_owned());
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        maps_of_parts(definitions, member, &format!("{path}.{name}"), found);
    }
    if schema["items"].is_object() {
        maps_of_parts(definitions, &schema["items"], &format!("{path}[]"), found);
    }
}

#[test]
fn a_kind_that_is_read_without_its_types_has_no_map_of_parts() {
    let definitions: Map<String, Value> = serde_json::from_str(DEFINITIONS).expect("it is JSON");
    let mut compared = 0;
    for (name, schema) in &definitions {
        let mut found = Vec::new();
        maps_of_parts(&definitions, schema, "", &mut found);
        let is_of_definitions = name.contains(".apiextensions.");
        assert_eq!(
            !found.is_empty(),
            name.ends_with(".JSONSchemaProps"),
            "{name}: {found:?}"
        );
        compared += usize::from(!is_of_definitions);
    }
    assert!(compared > 400, "{compared} definitions are few");
    let kind = Kind {
        group: "apiextensions.k8s.io".to_owned(),
        version: "v1".to_owned(),
        kind: "CustomResourceDefinition".to_owned(),
    };
    assert!(matches!(
        LeafSemantics::of(&kind, None),
        LeafSemantics::Alone { flat_maps: false }
    ));
}
