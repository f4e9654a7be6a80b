//! Owns the parts of the CustomResourceDefinitions that no Rust type gives: the schemas of Kubernetes' own types, and rules
//! with constants in them. A test keeps the definitions in `crds/`, and nothing else makes them, so nothing of this is in
//! the component.

use schemars::{Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use crate::children::OWN_LABELS;

/// What the API server takes for a quantity.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The labels that pods have from the operator.
pub(crate) fn pod_label_rules() -> Value {
    let rule = |label| json!({"rule": format!("!('{label}' in self)"), "message": format!("{label} is set by the operator; leave it out")});
    OWN_LABELS.map(rule).into_iter().collect()
}

/// `ResourceRequirements`.
pub(crate) fn resources(_: &mut SchemaGenerator) -> Schema {
    schema(of("io.k8s.api.core.v1.ResourceRequirements"))
}

/// `Affinity`.
pub(crate) fn affinity(_: &mut SchemaGenerator) -> Schema {
    schema(of("io.k8s.api.core.v1.Affinity"))
}

/// A list of `EnvVar`.
pub(crate) fn env(_: &mut SchemaGenerator) -> Schema {
    schema(json!({
        "type": "array",
        "items": of("io.k8s.api.core.v1.EnvVar"),
        "maxItems": 256,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
    }))
}

fn schema(schema: Value) -> Schema {
    schema.try_into().expect("it is a schema")
}

/// A type's schema, as a real server has told it to the simulated one, with those that it refers to written out.
fn of(name: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../../../tests/simulator/schemas/definitions.json"))
        .expect("the simulator reads it too");
    written_out(&all[name], &all)
}

fn written_out(schema: &Value, all: &Value) -> Value {
    if let Some(reference) = schema["$ref"].as_str() {
        let name = reference.rsplit('/').next().unwrap_or_default();
        if name == "io.k8s.apimachinery.pkg.api.resource.Quantity" {
            return json!({"x-kubernetes-int-or-string": true, "pattern": QUANTITY});
        }
        return written_out(&all[name], all);
    }
    if let Some([only]) = schema["allOf"].as_array().map(Vec::as_slice) {
        return written_out(only, all);
    }
    match schema {
        // Defaults within are the server's, and are filled in when it gets the children.
        Value::Object(members) => {
            let written = members
                .iter()
                .filter(|(name, _)| *name != "default")
                .map(|(name, value)| (name.clone(), written_out(value, all)));
            Value::Object(written.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(|item| written_out(item, all)).collect(),
        scalar => scalar.clone(),
    }
}

#[test]
fn generated_crds_are_what_the_types_give() {
    let folder = env!("CARGO_MANIFEST_DIR");
    pilothouse_definitions::keep_definition(folder, &pilothouse_plugin::crd::<crate::ReverseProxy>());
    pilothouse_definitions::keep_definition(folder, &pilothouse_plugin::crd::<crate::TcpReverseProxy>());
}

#[test]
fn generated_configuration_schema_is_what_the_type_gives() {
    pilothouse_definitions::keep_configuration::<crate::Settings>(env!("CARGO_MANIFEST_DIR"));
}
