//! Schemas of Kubernetes' own types: those of the API server, without descriptions, expanded from `schemas.json`, which
//! is generated with the builders. Only linked with code that generates a definition, so it is in no component.

use schemars::Schema;
use serde_json::{Map, Value};

/// Schemas by the types' paths below `k8s`, with references to others.
const SCHEMAS: &str = include_str!("../k8s/generated/schemas.json");

/// Returns the schema of the type at a path below `k8s`, for example `core::v1::Affinity`.
pub(crate) fn schema_of(path: &str) -> Schema {
    let all: Map<String, Value> = serde_json::from_str(SCHEMAS).expect("it is generated");
    let schema = written_out(&all[path], &all);
    schema.try_into().expect("each is an object")
}

/// Replaces the references in a schema by the schemas that they name.
fn written_out(schema: &Value, all: &Map<String, Value>) -> Value {
    if let Some(path) = schema["$ref"].as_str() {
        return written_out(&all[path], all);
    }
    match schema {
        Value::Object(members) => {
            let written = members
                .iter()
                .map(|(name, member)| (name.clone(), written_out(member, all)));
            Value::Object(written.collect())
        }
        Value::Array(items) => items.iter().map(|item| written_out(item, all)).collect(),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Map<String, Value> {
        serde_json::from_str(SCHEMAS).unwrap()
    }

    /// Checks the API server's requirements of a schema in a definition, as far as those here could violate them.
    fn check(schema: &Value, at: &str) {
        let members = schema
            .as_object()
            .unwrap_or_else(|| panic!("{at} is no schema: {schema}"));
        for unknown in ["$ref", "allOf", "oneOf", "description"] {
            assert!(!members.contains_key(unknown), "{at} has {unknown}");
        }
        let is_typed = members.contains_key("type") || members.contains_key("x-kubernetes-int-or-string");
        assert!(is_typed, "{at} has no type");
        let properties = schema["properties"].as_object();
        for (name, property) in properties.into_iter().flatten() {
            check(property, &format!("{at}.{name}"));
        }
        for inner in ["items", "additionalProperties"] {
            if let Some(schema) = members.get(inner) {
                check(schema, &format!("{at}[]"));
            }
        }
        for key in schema["x-kubernetes-list-map-keys"].as_array().into_iter().flatten() {
            let required = schema["items"]["required"].as_array();
            let is_required = required.is_some_and(|required| required.contains(key));
            let default = &schema["items"]["properties"][key.as_str().unwrap()]["default"];
            assert!(is_required || !default.is_null(), "{at}: the key {key} may be absent");
        }
    }

    #[test]
    fn every_schema_can_be_part_of_a_definition() {
        let all = all();
        assert!(all.len() > 200, "{}", all.len());
        for path in all.keys() {
            check(&schema_of(path).to_value(), path);
        }
    }

    #[test]
    fn a_template_keeps_the_labels_of_its_pods() {
        let template = schema_of("core::v1::PodTemplateSpec").to_value();
        let metadata = template["properties"]["metadata"]["properties"].as_object().unwrap();
        let members: Vec<_> = metadata.keys().map(String::as_str).collect();
        assert_eq!(members, ["annotations", "finalizers", "labels", "name", "namespace"]);
    }
}
