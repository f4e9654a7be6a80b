//! The form of the status, and the CustomResourceDefinition in `crds/`, generated from it and the types of `resource`.
//!
//! Only a test makes it, so no code that makes schemas is in the component.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// The Deployment's conditions, and the host's: Reconciled, whether both children are as they should be, and Reconciling
    /// or Stalled while they are not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    conditions: Vec<AppServiceCondition>,
    /// The generation of the AppService that was examined last.
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

#[test]
fn generated_crd_is_what_the_types_give() {
    pilothouse_plugin::crd::keep::<crate::AppService>(env!("CARGO_MANIFEST_DIR"));
}
