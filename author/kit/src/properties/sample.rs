//! Makes an object that a CRD admits, as small as it can be. Leaves values to `generate`, and making it smaller to `shrink`.

use std::collections::BTreeMap;

use fastrand::Rng;
use pilothouse_core::Kind;
use pilothouse_core::plugin::manifest::Filter;
use serde_json::{Value, json};
use thiserror::Error;

use super::shrink;
use super::source::{Source, version_schema};
use crate::store::{self, Refusal, Store};

/// The number of objects that are drawn at most.
const DRAWN: u64 = 300;

/// The time in the server, in milliseconds since 1970. No schema depends on it.
const NOW: u64 = 1_767_225_600_000;

/// Why there is no sample.
#[derive(Debug, Error)]
pub enum SampleError {
    /// No API server takes the definition.
    #[error("the API server would refuse the CRD: {0}")]
    Definition(Refusal),
    /// No object was found that the server takes; with what it says of the simplest one.
    #[error("{0}")]
    Object(Refusal),
}

/// An object that an API server stores where this CRD is installed: the simplest one if it takes that, else the smallest that
/// could be drawn from the schema.
pub fn storable(definition: &Value, kind: &Kind, simplest: Value) -> Result<Value, SampleError> {
    let mut store = Store::new(store::runtime(), NOW);
    store.install(definition).map_err(SampleError::Definition)?;
    let is_namespaced = definition["spec"]["scope"] == "Namespaced";
    let mut stored = |object: &Value| {
        let mut placed = object.clone();
        if is_namespaced {
            placed["metadata"]["namespace"] = json!("default");
        }
        store.stored_form(&placed)
    };
    let Err(refusal) = stored(&simplest) else {
        return Ok(simplest);
    };
    let filter = Filter::default();
    let source = Source {
        kind,
        schema: version_schema(&definition["spec"], &kind.version),
        samples: Vec::new(),
        is_namespaced,
        marks: BTreeMap::new(),
        filter: &filter,
    };
    let mut drawn = (0..DRAWN).map(|seed| {
        let mut object = source.object(&mut Rng::with_seed(seed));
        object["metadata"] = json!({"name": "sample"});
        object
    });
    // A sample without a spec shows nobody what to write.
    let mut is_sample =
        |object: &Value| object["spec"].is_object() == simplest["spec"].is_object() && stored(object).is_ok();
    let found = drawn.find(|object| is_sample(object));
    let found = found.ok_or(SampleError::Object(refusal))?;
    let (smallest, _) = shrink::shrink(&found, is_sample);
    Ok(smallest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(schema: &Value) -> Result<Value, SampleError> {
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "sites.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"kind": "Site", "plural": "sites"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        let kind = Kind::new("example.com", "v1", "Site");
        let simplest = json!({
            "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "sample"}, "spec": {"a": "example"},
        });
        storable(&definition, &kind, simplest)
    }

    #[test]
    fn what_the_schema_refuses_is_drawn_and_made_small() {
        let with = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
        let text = json!({"type": "string"});
        let pattern = json!({"type": "string", "pattern": "^[0-9]{2}x$"});
        let spec =
            |members: Value, required: Value| json!({"type": "object", "properties": members, "required": required});
        let taken = sample(&with(spec(json!({"a": text}), json!(["a"])))).unwrap();
        assert_eq!(taken["spec"], json!({"a": "example"}));
        let drawn = sample(&with(spec(json!({"a": pattern, "b": text}), json!(["a"])))).unwrap();
        assert_eq!(drawn["spec"].as_object().unwrap().len(), 1, "{drawn}");
        assert!(drawn["spec"]["a"].as_str().unwrap().ends_with('x'), "{drawn}");
        let mut rule = spec(json!({"a": text, "b": {"type": "integer"}}), json!([]));
        rule["x-kubernetes-validations"] =
            json!([{"rule": "has(self.b) && self.b > 1", "message": "b has to be more than 1"}]);
        let drawn = sample(&with(rule)).unwrap();
        assert!(drawn["spec"]["b"].as_i64().unwrap() > 1, "{drawn}");
    }

    #[test]
    fn a_schema_that_takes_nothing_and_one_that_no_server_takes_say_so() {
        let mut never = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}});
        never["x-kubernetes-validations"] = json!([{"rule": "false", "message": "never"}]);
        let error = sample(&never).unwrap_err().to_string();
        assert!(error.contains("never"), "{error}");
        let error = sample(&json!({"type": "array"})).unwrap_err().to_string();
        assert!(error.starts_with("the API server would refuse the CRD"), "{error}");
    }
}
