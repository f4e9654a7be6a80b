//! Owns the checks of kinds that make pods, and of a few small kinds.

use serde_json::{Value, json};

use super::{immutable, names, not_negative, pod};
use crate::apply::types::same;
use crate::failure::FieldError;

/// A label selector and the template whose labels it must match.
fn selector_and_template(spec: &Value, errors: &mut Vec<FieldError>) {
    let selector = &spec["selector"];
    let empty = |value: &Value, name: &str| match &value[name] {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if selector.is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        errors.extend(names::labels(&selector["matchLabels"], "spec.selector.matchLabels"));
        if empty(selector, "matchLabels") && empty(selector, "matchExpressions") {
            let detail = "empty selector is invalid for deployment";
            errors.push(FieldError::invalid("spec.selector", &json!({}), detail));
        }
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector.is_null() || !matches(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, detail));
    }
    errors.extend(names::labels(labels, "spec.template.metadata.labels"));
    errors.extend(pod::spec(&spec["template"]["spec"], "spec.template.spec"));
}

fn restart_always(spec: &Value, errors: &mut Vec<FieldError>) {
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy.is_string() && policy != "Always" {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(path, policy, &["Always"]));
    }
}

/// Whether a label selector selects these labels.
pub(crate) fn matches(selector: &Value, labels: &Value) -> bool {
    let equal = selector["matchLabels"]
        .as_object()
        .into_iter()
        .flatten()
        .all(|(name, value)| labels.get(name) == Some(value));
    let expressions = selector["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten()
        .all(|expression| {
            let label = expression["key"].as_str().and_then(|key| labels.get(key));
            let listed = label.is_some_and(|label| {
                expression["values"]
                    .as_array()
                    .is_some_and(|values| values.contains(label))
            });
            match expression["operator"].as_str() {
                Some("In") => listed,
                Some("NotIn") => !listed,
                Some("Exists") => label.is_some(),
                Some("DoesNotExist") => label.is_none(),
                _ => false,
            }
        });
    equal && expressions
}

/// What all kinds with replicas of one pod template are checked for.
fn replicated(spec: &Value) -> Vec<FieldError> {
    let mut errors: Vec<_> = not_negative("spec.replicas", &spec["replicas"]).into_iter().collect();
    selector_and_template(spec, &mut errors);
    restart_always(spec, &mut errors);
    errors
}

fn selector_is_fixed(spec: &Value, old: Option<&Value>) -> Option<FieldError> {
    immutable("spec.selector", &spec["selector"], old.map(|old| &old["selector"]))
}

pub(super) fn deployment(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = replicated(spec);
    let strategy = &spec["strategy"];
    match strategy["type"].as_str() {
        Some("Recreate") if !strategy["rollingUpdate"].is_null() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden("spec.strategy.rollingUpdate", detail));
        }
        Some("Recreate" | "RollingUpdate") | None => {}
        Some(_) => {
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported("spec.strategy", strategy, &supported));
        }
    }
    errors.extend(not_negative("spec.minReadySeconds", &spec["minReadySeconds"]));
    errors.extend(not_negative("spec.revisionHistoryLimit", &spec["revisionHistoryLimit"]));
    errors.extend(selector_is_fixed(spec, old));
    errors
}

pub(super) fn replica_set(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = replicated(spec);
    errors.extend(selector_is_fixed(spec, old));
    errors
}

pub(super) fn stateful_set(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = replicated(spec);
    if let Some(old) = old {
        let fixed = |spec: &Value| {
            let mut spec = spec.clone();
            let mutable = [
                "replicas",
                "ordinals",
                "template",
                "updateStrategy",
                "revisionHistoryLimit",
                "persistentVolumeClaimRetentionPolicy",
                "minReadySeconds",
            ];
            if let Some(members) = spec.as_object_mut() {
                members.retain(|name, _| !mutable.contains(&name.as_str()));
            }
            spec
        };
        if !same(&fixed(spec), &fixed(old)) {
            errors.push(FieldError::forbidden(
                "spec",
                "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
                 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
            ));
        }
    }
    errors
}

pub(super) fn daemon_set(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    selector_and_template(spec, &mut errors);
    restart_always(spec, &mut errors);
    errors.extend(selector_is_fixed(spec, old));
    errors
}

pub(super) fn job(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for name in ["parallelism", "completions", "backoffLimit"] {
        errors.extend(not_negative(&format!("spec.{name}"), &spec[name]));
    }
    errors.extend(pod::spec(&spec["template"]["spec"], "spec.template.spec"));
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy == "Always" {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(path, policy, &["Never", "OnFailure"]));
    }
    for name in ["selector", "completionMode"] {
        errors.extend(immutable(
            &format!("spec.{name}"),
            &spec[name],
            old.map(|old| &old[name]),
        ));
    }
    errors
}

pub(super) fn lease(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (name, least, words) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        let value = &spec[name];
        if value.as_i64().is_some_and(|number| number < least) {
            errors.push(FieldError::invalid(format!("spec.{name}"), value, words));
        }
    }
    errors
}

pub(super) fn binding(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &object["roleRef"];
    let kind = &role["kind"];
    if !["Role", "ClusterRole"].contains(&kind.as_str().unwrap_or_default()) {
        errors.push(FieldError::not_supported(
            "roleRef.kind",
            kind,
            &["Role", "ClusterRole"],
        ));
    }
    if role["name"].as_str().unwrap_or_default().is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    if let Some(old) = old
        && !same(role, &old["roleRef"])
    {
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
    errors
}
