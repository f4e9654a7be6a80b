//! Owns what is generated from types: the CustomResourceDefinitions in `crds/`, and the schema of the configuration.
//!
//! All are made by tests and nowhere else, so nothing that makes schemas is in the component.

use kube::CustomResourceExt as _;
use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::children::{CONFIG_SUM, INSTANCE, MANAGED_BY};
use crate::resource::{ReverseProxyDefinition, TcpReverseProxyDefinition};
use crate::settings::Settings;

/// The value of a label.
#[derive(JsonSchema)]
#[schemars(inline, transparent)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct LabelValue(#[schemars(length(max = 63))] String);

/// One word of nginx's configuration.
#[derive(JsonSchema)]
#[schemars(inline, transparent)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct ShortWord(#[schemars(length(min = 1, max = 300))] String);

/// The name of a header.
#[derive(JsonSchema)]
#[schemars(inline, transparent)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct HeaderName(#[schemars(length(min = 1, max = 128), regex(pattern = r"^[-A-Za-z0-9_.]+$"))] String);

/// The value of a header.
#[derive(JsonSchema)]
#[schemars(inline, transparent)]
#[allow(dead_code, reason = "only its schema is used")]
pub struct HeaderValue(#[schemars(length(max = 2048))] String);

/// The labels that pods have from the operator.
pub fn pod_label_rules() -> Value {
    [MANAGED_BY, INSTANCE, CONFIG_SUM]
        .into_iter()
        .map(|label| json!({"rule": format!("!('{label}' in self)"), "message": format!("{label} is set by the operator; leave it out")}))
        .collect()
}

/// What a resolver needs beside parameters.
pub fn resolver_rules() -> Value {
    json!([{
        "rule": "self.size() == 0 || self.exists(word, !word.contains('='))",
        "message": "no name servers defined",
    }])
}

/// The names of headers.
pub fn header_rules() -> Value {
    json!([{
        "rule": "self.all(name, name.size() <= 128 && name.matches('^[-A-Za-z0-9_.]+$'))",
        "message": "names of headers have 1 to 128 letters, digits, '-', '_' and '.'",
    }])
}

/// The definition, with a rule on names: they become part of those of the children.
fn with_names(definition: impl serde::Serialize, longest: usize) -> Value {
    let mut definition = serde_json::to_value(definition).expect("a definition is JSON");
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["x-kubernetes-validations"] = json!([{
        "rule": format!("self.metadata.name.size() <= {longest} && !self.metadata.name.contains('.')"),
        "message": format!("metadata.name is part of the name of a Service: at most {longest} characters a-z, 0-9 and '-'"),
    }]);
    definition
}

#[test]
fn the_definitions_that_are_kept_are_those_that_the_types_give() {
    let folder = env!("CARGO_MANIFEST_DIR");
    pilothouse_definitions::keep_definition(folder, &with_names(ReverseProxyDefinition::crd(), 53));
    pilothouse_definitions::keep_definition(folder, &with_names(TcpReverseProxyDefinition::crd(), 50));
}

#[test]
fn the_schema_that_is_kept_is_the_one_that_the_type_gives() {
    pilothouse_definitions::keep_configuration::<Settings>(env!("CARGO_MANIFEST_DIR"));
}

pub mod kubernetes {
    //! The schemas of Kubernetes' own types, as a real server has told them to the simulated one.

    use schemars::{Schema, SchemaGenerator};
    use serde_json::{Map, Value, json};

    /// What the API server takes for a quantity.
    const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

    /// `ResourceRequirements`.
    pub fn resources(_: &mut SchemaGenerator) -> Schema {
        described(&of("io.k8s.api.core.v1.ResourceRequirements"))
    }

    /// `Affinity`.
    pub fn affinity(_: &mut SchemaGenerator) -> Schema {
        described(&of("io.k8s.api.core.v1.Affinity"))
    }

    /// A list of `EnvVar`.
    pub fn env(_: &mut SchemaGenerator) -> Schema {
        described(&json!({
            "type": "array",
            "items": of("io.k8s.api.core.v1.EnvVar"),
            "maxItems": 256,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        }))
    }

    fn described(schema: &Value) -> Schema {
        schema.clone().try_into().expect("it is a schema")
    }

    /// A type's schema, with those that it refers to written out.
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
}
