//! Owns the CustomResourceDefinition: generated from the types of `resource` and the status below, kept in `crds/`.
//!
//! It is made by a test and nowhere else, so nothing that makes schemas is in the component.

use std::path::PathBuf;
use std::{env, fs};

use kube::CustomResourceExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::resource::Definition;

/// The status of the Deployment, and what the host says about the resource.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppServiceStatus {
    /// How many pods are available: ready for at least minReadySeconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    available_replicas: Option<i32>,
    /// How many collisions of hashes the Deployment has met when it named its ReplicaSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    collision_count: Option<i32>,
    /// The Deployment's conditions, and Reconciled: whether both children are as they should be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<AppServiceCondition>,
    /// The generation of the Deployment that its status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    observed_generation: Option<i64>,
    /// How many pods are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    ready_replicas: Option<i32>,
    /// How many pods there are that are not terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    replicas: Option<i32>,
    /// How many pods are terminating.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    terminating_replicas: Option<i32>,
    /// How many pods are missing for all replicas to be available.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    unavailable_replicas: Option<i32>,
    /// How many pods are made from the current template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    updated_replicas: Option<i32>,
}

/// One condition: the fields of a Deployment's conditions, and observedGeneration, which those of the host have.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppServiceCondition {
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    last_transition_time: Option<String>,
    /// When the condition was last updated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("format" = "date-time"))]
    last_update_time: Option<String>,
    /// Why, in a sentence for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    message: Option<String>,
    /// The generation of the AppService that the condition is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    observed_generation: Option<i64>,
    /// Why, in one word for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    reason: Option<String>,
    /// True, False or Unknown.
    status: String,
    /// What the condition is about, for example Available, Progressing or Reconciled.
    #[serde(rename = "type")]
    type_: String,
}

/// The text of the definition, as it is kept.
fn generated() -> String {
    let mut definition = serde_json::to_value(Definition::crd()).expect("a definition is JSON");
    let schema = definition
        .pointer_mut("/spec/versions/0/schema/openAPIV3Schema")
        .expect("the version has a schema");
    // The name of the Rust type, which means nothing to users.
    schema.as_object_mut().expect("a schema is an object").remove("title");
    write_whole_numbers(&mut definition);
    let yaml = serde_saphyr::to_string(&definition).expect("a definition is YAML");
    format!(
        "# Generated from src/resource.rs and src/crd.rs: `UPDATE=1 cargo test -p app-service crd` writes it anew.\n{yaml}"
    )
}

/// The bounds of numbers are floats in Rust, and would be written as `65535.0`.
fn write_whole_numbers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers),
        Value::Object(members) => members.values_mut().for_each(write_whole_numbers),
        Value::Number(number) => {
            if let Some(whole) = number.as_f64().and_then(|float| format!("{float}").parse::<i64>().ok()) {
                *value = whole.into();
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn the_definition_that_is_kept_is_the_one_that_the_types_give() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("crds/appservices.kosmos.io.yaml");
    let generated = generated();
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, generated).expect("the definition can be written");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "{} is stale: run `UPDATE=1 cargo test -p app-service crd`",
        path.display()
    );
}
