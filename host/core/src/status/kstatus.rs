//! Computes the kstatus of an object, on which kpt, Flux and `kapply` base "ready": by the rules for all kinds, and, for what
//! comes `after` an object, by those for built-in kinds (`built_in`), too.
//!
//! A port of `Compute`, `checkGenericProperties`, `checkGeneration` and `checkReadyCondition` of sigs.k8s.io/cli-utils at
//! commit 5895ad6c17dd06b99c1e5c8af17e2b12a3504fad, after v0.37.2 (Apache-2.0):
//! <https://github.com/kubernetes-sigs/cli-utils/blob/5895ad6c17dd06b99c1e5c8af17e2b12a3504fad/pkg/kstatus/status/generic.go>
//! and `status.go` beside it.

mod built_in;

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use crate::kubernetes::key::Kind;
use crate::text::printable::shorten;

/// The longest reason for which an object is not Current, in bytes: a condition's message may have any length.
const MAX_PENDING: usize = 256;

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

impl Computed {
    fn new(status: Status, message: impl Into<String>) -> Self {
        let message = message.into();
        Self { status, message }
    }
}

/// Computes the status of an object that exists, by the rules for all kinds. The error says why kstatus cannot read the
/// object.
pub fn compute(object: &Value) -> Result<Computed, String> {
    match by_generic_members(object)? {
        Some(computed) => Ok(computed),
        None => by_ready(object),
    }
}

/// Says why an object is not Current, such as `InProgress: Available: 1/3`; none if it is. Built-in kinds have rules of their
/// own.
pub fn pending(kind: &Kind, object: &Value) -> Option<String> {
    let computed = match by_generic_members(object) {
        Ok(Some(computed)) => Ok(computed),
        Ok(None) => built_in::compute(kind, object).map_or_else(|| by_ready(object), Ok),
        Err(problem) => Err(problem),
    };
    let text = match computed {
        Ok(Computed {
            status: Status::Current,
            ..
        }) => return None,
        Ok(Computed { status, message }) if message.is_empty() => status.to_string(),
        Ok(Computed { status, message }) => format!("{status}: {message}"),
        Err(problem) => format!("Unknown: {problem}"),
    };
    Some(shorten(text, MAX_PENDING))
}

/// The status that deletion, generations, or a condition of kstatus itself decide.
fn by_generic_members(object: &Value) -> Result<Option<Computed>, String> {
    let computed = |status, message: &str| Ok(Some(Computed::new(status, message)));
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
    for condition in conditions(object)? {
        let message = text(condition, "message")?.unwrap_or_default();
        match (text(condition, "type")?, text(condition, "status")?) {
            (Some("Reconciling"), Some("True")) => return computed(Status::InProgress, message),
            (Some("Stalled"), Some("True")) => return computed(Status::Failed, message),
            _ => {}
        }
    }
    Ok(None)
}

/// The status by the condition `Ready`. An object without one is as it should be.
fn by_ready(object: &Value) -> Result<Computed, String> {
    let computed = |status, message: &str| Ok(Computed::new(status, message));
    for condition in conditions(object)? {
        let message = text(condition, "message")?.unwrap_or_default();
        match (text(condition, "type")?, text(condition, "status")?) {
            (Some("Ready"), Some("True")) => return computed(Status::Current, "Resource is Ready"),
            (Some("Ready"), Some("False" | "Unknown")) => return computed(Status::InProgress, message),
            _ => {}
        }
    }
    computed(Status::Current, "Resource is current")
}

fn conditions(object: &Value) -> Result<&[Value], String> {
    match &object["status"]["conditions"] {
        Value::Null => Ok(&[]),
        Value::Array(conditions) => Ok(conditions),
        other => Err(format!("status.conditions is {other}, not a list")),
    }
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
    fn what_is_not_current_says_so_with_its_reason() {
        let kind = Kind::new("x.dev", "v1", "Thing");
        let ready = |status: &str| with(&json!([{"type": "Ready", "status": status, "message": "it starts"}]));
        assert_eq!(pending(&kind, &ready("True")), None);
        assert_eq!(pending(&kind, &ready("False")).unwrap(), "InProgress: it starts");
        let silent = with(&json!([{"type": "Stalled", "status": "True"}]));
        assert_eq!(pending(&kind, &silent).unwrap(), "Failed");
        let unreadable = pending(&kind, &with(&json!("none"))).unwrap();
        assert!(unreadable.starts_with("Unknown: status.conditions"), "{unreadable}");
        let long = with(&json!([{"type": "Ready", "status": "False", "message": "x".repeat(5000)}]));
        assert!(pending(&kind, &long).unwrap().len() < 300);
        let mut deployment = ready("True");
        assert!(
            pending(&Kind::new("apps", "v1", "Deployment"), &deployment).is_some(),
            "its own rules"
        );
        deployment["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        let terminating = pending(&kind, &deployment).unwrap();
        assert!(terminating.starts_with("Terminating"), "{terminating}");
    }

    #[test]
    fn what_kstatus_cannot_read_is_an_error() {
        assert!(compute(&with(&json!("none"))).unwrap_err().contains("not a list"));
        let object = json!({"metadata": {"generation": 1}, "status": {"observedGeneration": "1"}});
        assert!(compute(&object).unwrap_err().contains("observedGeneration"));
    }
}
