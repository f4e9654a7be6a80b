//! Schema of a condition in statuses: that of `metav1.Condition`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is said of the resource: conditions and nothing else.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct ConditionsOnly {
    /// What can be said of the resource. The host's are Reconciled: whether all is as it should be, or why not; and
    /// Reconciling or Stalled while it is not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The generation of the resource that was examined last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64")]
    pub observed_generation: Option<i64>,
}

/// One thing that can be said of the resource.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(inline)]
pub struct Condition {
    /// When the status last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// Why, in a sentence for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// The generation of the resource that the condition is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i64", range(min = 0))]
    pub observed_generation: Option<i64>,
    /// Why, in one word for programs.
    #[schemars(
        length(min = 1, max = 1024),
        regex(pattern = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
    )]
    pub reason: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub type_: String,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema)]
#[schemars(inline)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It can't be said.
    Unknown,
}
