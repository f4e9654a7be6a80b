//! Parts of a status that the host writes beside the plugin's, and checks that a CRD accepts them.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{Crd, first_of, schema_pruning};

/// Path of the status in an object.
pub const STATUS: &str = ".status";

/// Member of a status with the generation of the object that was reconciled last.
pub const OBSERVED_GENERATION: &str = "observedGeneration";

/// Condition type: the last reconcile succeeded; on every kind whose CRD a plugin brings.
pub const RECONCILED: &str = "Reconciled";

/// Condition type: the last reconcile failed, and the host retries.
pub const RECONCILING: &str = "Reconciling";

/// Condition type: the last reconcile failed, and is not retried until something changes.
pub const STALLED: &str = "Stalled";

/// The reason of `Reconciled` while it is true.
pub const SUCCESS: &str = "Success";

/// The most fields that are named in one message.
const NAMED_PATHS: usize = 10;

/// Returns the schema of the status in the schema of a kind's objects; null if it accepts none.
pub fn status_schema(root: &Value) -> Value {
    match (
        &root["properties"]["status"],
        &root["x-kubernetes-preserve-unknown-fields"],
    ) {
        (Value::Null, Value::Bool(true)) => root.clone(),
        (status, _) => status.clone(),
    }
}

/// Returns name and message of the finding about the host's status fields that a CRD does not accept; none if there is
/// none.
pub fn gaps(crd: &Crd<'_>, version: &str) -> Option<(&'static str, String)> {
    let versions = crd.definition["spec"]["versions"].as_array().into_iter().flatten();
    let version = versions.into_iter().find(|it| it["name"] == version)?;
    if version["subresources"]["status"].is_null() {
        return Some(("no-status-subresource", without_subresource(crd.kind)));
    }
    let schema = status_schema(&version["schema"]["openAPIV3Schema"]);
    let conditions = [(RECONCILED, SUCCESS), (RECONCILING, "Waiting"), (STALLED, "Invalid")].map(|(name, reason)| {
        json!({
            "type": name, "status": "True", "reason": reason, "message": "all is as desired",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        })
    });
    let mut sample = json!({"observedGeneration": 1, "conditions": conditions});
    let omitted = schema_pruning::prune_to_schema(&schema, &mut sample, STATUS);
    (!omitted.is_empty()).then(|| ("status-fields", left_out(crd.kind, &omitted)))
}

/// Reports whether a write of the status replaces the list of conditions as a whole, by the schema of the status. A
/// list that the schema keeps and does not declare is replaced, too.
pub fn replaces_conditions(schema: &Value) -> bool {
    let conditions = &schema["properties"]["conditions"];
    let is_open = |schema: &Value| schema["x-kubernetes-preserve-unknown-fields"] == true;
    match (
        conditions["type"].as_str(),
        conditions["x-kubernetes-list-type"].as_str(),
    ) {
        (Some("array"), list_type) => matches!(list_type, None | Some("atomic")),
        _ => is_open(conditions) || is_open(schema),
    }
}

/// Returns the message about a kind without the status subresource.
pub fn without_subresource(kind: &str) -> String {
    format!(
        "the CRD of {kind} has no subresource status, so neither status nor conditions are written, and only events tell \
         what happens; add subresources.status to its version"
    )
}

/// Returns the message about fields that a kind's schema does not accept.
pub fn left_out(kind: &str, omitted: &BTreeSet<String>) -> String {
    let paths = first_of(omitted.iter().map(String::as_str), NAMED_PATHS);
    format!(
        "the CRD of {kind} does not take {paths} as the host writes it, so that is left out of the status; declare it in the \
         schema of the CRD"
    )
}
