//! Computes the kstatus of an object by the rules for all kinds, on which kpt, Flux and `kapply` base "ready". Rules
//! for built-in kinds and for CustomResourceDefinitions are left out.
//!
//! A port of `Compute`, `checkGenericProperties`, `checkGeneration` and `checkReadyCondition` of sigs.k8s.io/cli-utils at
//! commit 5895ad6c17dd06b99c1e5c8af17e2b12a3504fad, after v0.37.2 (Apache-2.0):
//! <https://github.com/kubernetes-sigs/cli-utils/blob/5895ad6c17dd06b99c1e5c8af17e2b12a3504fad/pkg/kstatus/status/generic.go>
//! and `status.go` beside it.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// The status of an object. kstatus has `NotFound` and `Unknown` too, which no object that exists has by these rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Status {
    /// The controller works on it.
    InProgress,
    /// The controller does not get on.
    Failed,
    /// The object is as its spec says.
    Current,
    /// The object is being deleted.
    Terminating,
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

/// A status, and why the object has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Computed {
    /// The status.
    pub status: Status,
    /// The message of kstatus, which is a condition's where one decides.
    pub message: String,
}

/// Computes the status of an object that exists. The error says why kstatus cannot read the object.
pub fn compute(object: &Value) -> Result<Computed, String> {
    let computed = |status, message: &str| {
        Ok(Computed {
            status,
            message: message.to_owned(),
        })
    };
    if text(&object["metadata"], "deletionTimestamp")?.is_some_and(|time| !time.is_empty()) {
        return computed(Status::Terminating, "Resource scheduled for deletion");
    }
    let generation = number(&object["metadata"], "generation")?;
    let observed = number(&object["status"], "observedGeneration")?;
    if let (Some(generation), Some(observed)) = (generation, observed)
        && generation != observed
    {
        let kind = object["kind"].as_str().unwrap_or_default();
        let message = format!("{kind} generation is {generation}, but latest observed generation is {observed}");
        return computed(Status::InProgress, &message);
    }
    let conditions = match &object["status"]["conditions"] {
        Value::Null => &[][..],
        Value::Array(conditions) => conditions,
        other => return Err(format!("status.conditions is {other}, not a list")),
    };
    for condition in conditions {
        let message = text(condition, "message")?.unwrap_or_default();
        match (text(condition, "type")?, text(condition, "status")?) {
            (Some("Reconciling"), Some("True")) => return computed(Status::InProgress, message),
            (Some("Stalled"), Some("True")) => return computed(Status::Failed, message),
            _ => {}
        }
    }
    for condition in conditions {
        let message = text(condition, "message")?.unwrap_or_default();
        match (text(condition, "type")?, text(condition, "status")?) {
            (Some("Ready"), Some("True")) => return computed(Status::Current, "Resource is Ready"),
            (Some("Ready"), Some("False" | "Unknown")) => return computed(Status::InProgress, message),
            _ => {}
        }
    }
    computed(Status::Current, "Resource is current")
}

fn text<'object>(object: &'object Value, member: &str) -> Result<Option<&'object str>, String> {
    match &object[member] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text)),
        other => Err(format!("{member} is {other}, not a string")),
    }
}

fn number(object: &Value, member: &str) -> Result<Option<i64>, String> {
    match &object[member] {
        Value::Null => Ok(None),
        value => value
            .as_i64()
            .map(Some)
            .ok_or_else(|| format!("{member} is {value}, not an integer")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn status(object: &Value) -> Status {
        compute(object).unwrap().status
    }

    fn with(conditions: &Value) -> Value {
        json!({"metadata": {"generation": 2}, "status": {"observedGeneration": 2, "conditions": conditions}})
    }

    #[test]
    fn an_object_without_status_is_current() {
        assert_eq!(status(&json!({"metadata": {"generation": 1}})), Status::Current);
        assert_eq!(status(&with(&json!([]))), Status::Current);
    }

    #[test]
    fn deletion_counts_before_everything_else() {
        let object = json!({
            "metadata": {"generation": 2, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": {"observedGeneration": 1},
        });
        assert_eq!(status(&object), Status::Terminating);
    }

    #[test]
    fn an_older_observed_generation_counts_before_the_conditions() {
        let mut object = with(&json!([{"type": "Stalled", "status": "True", "message": "no"}]));
        object["kind"] = json!("Thing");
        assert_eq!(status(&object), Status::Failed);
        object["metadata"]["generation"] = json!(3);
        let computed = compute(&object).unwrap();
        assert_eq!(computed.status, Status::InProgress);
        assert_eq!(
            computed.message,
            "Thing generation is 3, but latest observed generation is 2"
        );
    }

    #[test]
    fn the_first_of_reconciling_and_stalled_that_is_true_decides() {
        let both = json!([
            {"type": "Ready", "status": "True"}, {"type": "Stalled", "status": "False"},
            {"type": "Reconciling", "status": "True", "message": "busy"}, {"type": "Stalled", "status": "True"},
        ]);
        let computed = compute(&with(&both)).unwrap();
        assert_eq!((computed.status, &*computed.message), (Status::InProgress, "busy"));
    }

    #[test]
    fn without_them_ready_decides() {
        for (ready, expected) in [
            ("True", Status::Current),
            ("False", Status::InProgress),
            ("Unknown", Status::InProgress),
        ] {
            let conditions = json!([{"type": "Reconciled", "status": "False"}, {"type": "Ready", "status": ready}]);
            assert_eq!(status(&with(&conditions)), expected);
        }
    }

    #[test]
    fn what_kstatus_cannot_read_is_an_error() {
        assert!(compute(&with(&json!("none"))).unwrap_err().contains("not a list"));
        let object = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": "1"}});
        assert!(compute(&object).unwrap_err().contains("observedGeneration"));
    }
}
