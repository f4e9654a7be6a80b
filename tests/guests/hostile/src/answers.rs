//! Parts of all answers, and the good answer.

use pilothouse_plugin::Kind;
use pilothouse_plugin::raw::types::{self, Condition, ConditionStatus, Desired, Lifecycle, Outcome, Ownership};
use serde_json::{Value, json};

use crate::behaviour::Given;

/// The good answer.
pub fn config_map(given: &Given) -> Outcome {
    config_map_with(given, &given.text)
}

/// One ConfigMap with this text, and a status that repeats its first kilobyte.
pub fn config_map_with(given: &Given, text: &str) -> Outcome {
    let mut outcome = outcome([config_map_json(&given.name, &given.namespace, &json!({"text": text}))]);
    let head: String = text.chars().take(1024).collect();
    outcome.status = Some(json!({"text": head}).to_string());
    outcome.conditions = vec![condition("Behaved")];
    outcome
}

/// An answer with owned objects and nothing else.
pub fn outcome(objects: impl IntoIterator<Item = String>) -> Outcome {
    let desired = |object| Desired {
        object,
        ownership: Ownership::Owned,
        lifecycle: Lifecycle::empty(),
        options: "{}".to_owned(),
    };
    Outcome {
        desired: objects.into_iter().map(desired).collect(),
        status: None,
        conditions: Vec::new(),
        events: Vec::new(),
        requeue_after: None,
        extensions: None,
    }
}

/// A ConfigMap with any data.
pub fn config_map_json(name: &str, namespace: &str, data: &Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data})
        .to_string()
}

/// A kind in the contract's words.
pub fn lower(kind: Kind) -> types::GroupVersionKind {
    types::GroupVersionKind {
        group: kind.group.to_owned(),
        version: kind.version.to_owned(),
        kind: kind.kind.to_owned(),
    }
}

/// A condition that holds.
pub fn condition(type_: &str) -> Condition {
    Condition {
        type_: type_.to_owned(),
        status: ConditionStatus::True,
        reason: "ToldTo".to_owned(),
        message: "this is what the resource asks for".to_owned(),
    }
}
