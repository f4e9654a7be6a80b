//! Checks the kinds that make pods and keep them: Deployments, ReplicaSets, StatefulSets, DaemonSets.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::volume::claim_spec;
use super::{immutable, list, names, not_negative, pod, same, text};
use crate::failure::FieldError;

/// Checks a label selector and the template whose labels it must match; `word` is the kind in an error's text.
fn selector_and_template(spec: &Value, word: &str, claimed: &BTreeSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selector = &spec["selector"];
    let empty = |value: &Value, name: &str| match &value[name] {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => true,
    };
    if selector.is_null() {
        // A DaemonSet's selector matches nothing, which is said of its template.
        if word != "daemonset" {
            errors.push(FieldError::required("spec.selector", ""));
        }
    } else {
        errors.extend(names::labels(&selector["matchLabels"], "spec.selector.matchLabels"));
        if empty(selector, "matchLabels") && empty(selector, "matchExpressions") {
            let detail = format!("empty selector is invalid for {word}");
            errors.push(FieldError::invalid("spec.selector", &json!({}), detail));
        }
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if selector.is_null() || !matches(selector, labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, detail));
    }
    errors.extend(pod::template(&spec["template"], "spec.template", claimed));
    let pods = &spec["template"]["spec"];
    let policy = &pods["restartPolicy"];
    if policy.is_string() && policy != "Always" {
        let path = "spec.template.spec.restartPolicy";
        errors.push(FieldError::not_supported(path, policy, &["Always"]));
    }
    if pods["activeDeadlineSeconds"].is_number() {
        let kind = match word {
            "daemonset" => "DaemonSet",
            "statefulset" => "StatefulSet",
            _ => "ReplicaSet",
        };
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.push(FieldError::forbidden(
            "spec.template.spec.activeDeadlineSeconds",
            detail,
        ));
    }
    errors.extend(
        ["replicas", "minReadySeconds", "revisionHistoryLimit"]
            .into_iter()
            .filter_map(|name| {
                // Nobody looks at the limit of a StatefulSet.
                let skipped = name == "revisionHistoryLimit" && word == "statefulset";
                not_negative(&format!("spec.{name}"), &spec[name]).filter(|_| !skipped)
            }),
    );
    errors
}

/// Returns `true` if a label selector selects these labels.
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

fn selector_is_fixed(spec: &Value, old: Option<&Value>) -> Option<FieldError> {
    immutable("spec.selector", &spec["selector"], old.map(|old| &old["selector"]))
}

/// A strategy as Go shows it.
fn shown(strategy: &Value) -> Value {
    let rolling = strategy["rollingUpdate"].as_object().map(|members| {
        let capital = |name: &str| name[..1].to_uppercase() + &name[1..];
        let given = members.iter().map(|(name, value)| (capital(name), value.clone()));
        let mut shown = Map::from_iter([("MaxUnavailable".to_owned(), Value::Null)]);
        shown.extend(given);
        shown
    });
    json!({"RollingUpdate": rolling, "Type": strategy["type"]})
}

/// Parses a number or a percentage; None if it is neither.
fn portion(value: &Value) -> Option<i64> {
    value.as_i64().or_else(|| text(value).strip_suffix('%')?.parse().ok())
}

/// Checks a number or percentage that must not be negative, and a percentage also for not being more than 100.
pub(super) fn portion_is_valid(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let words = text(value);
    let is_percent = words
        .strip_suffix('%')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if value.is_string() && !is_percent {
        let detail = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
            regex used for validation is '[0-9]+%')";
        errors.push(FieldError::invalid(path, value, detail));
    }
    errors.extend(not_negative(path, value));
    if is_percent && portion(value).is_some_and(|percent| percent > 100) {
        errors.push(FieldError::invalid(path, value, "must not be greater than 100%"));
    }
}

pub(super) fn deployment(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = selector_and_template(spec, "deployment", &BTreeSet::new());
    let (strategy, path) = (&spec["strategy"], "spec.strategy");
    let rolling = &strategy["rollingUpdate"];
    match text(&strategy["type"]) {
        "Recreate" if rolling.is_object() => {
            let detail = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(format!("{path}.rollingUpdate"), detail));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let within = |name: &str| format!("{path}.rollingUpdate.{name}");
            let most = |name: &str| portion(&rolling[name]).unwrap_or(0);
            for name in ["maxUnavailable", "maxSurge"] {
                portion_is_valid(&rolling[name], &within(name), &mut errors);
            }
            if most("maxUnavailable") == 0 && most("maxSurge") == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(
                    within("maxUnavailable"),
                    &rolling["maxUnavailable"],
                    detail,
                ));
            }
        }
        _ => {
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(path, &shown(strategy), &supported));
        }
    }
    let deadline = &spec["progressDeadlineSeconds"];
    errors.extend(not_negative("spec.progressDeadlineSeconds", deadline));
    if deadline
        .as_i64()
        .is_some_and(|seconds| seconds <= spec["minReadySeconds"].as_i64().unwrap_or(0))
    {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline, detail));
    }
    errors.extend(selector_is_fixed(spec, old));
    errors
}

pub(super) fn replica_set(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = selector_and_template(spec, "deployment", &BTreeSet::new());
    errors.extend(selector_is_fixed(spec, old));
    errors
}

/// Fields of a StatefulSet's spec that an update may change.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn stateful_set(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let templates = list(&spec["volumeClaimTemplates"]);
    let claimed = templates.iter().map(|claim| text(&claim["metadata"]["name"])).collect();
    let mut errors = selector_and_template(spec, "statefulset", &claimed);
    let management = &spec["podManagementPolicy"];
    if !["OrderedReady", "Parallel"].contains(&text(management)) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", management, detail));
    }
    stateful_strategy(&spec["updateStrategy"], &mut errors);
    for name in ["whenDeleted", "whenScaled"] {
        let policy = &spec["persistentVolumeClaimRetentionPolicy"][name];
        if policy.is_string() && !["Retain", "Delete"].contains(&text(policy)) {
            let path = format!("spec.persistentVolumeClaimRetentionPolicy.{name}");
            errors.push(FieldError::not_supported(path, policy, &["Retain", "Delete"]));
        }
    }
    let Some(old) = old else {
        for (index, claim) in templates.iter().enumerate() {
            let path = format!("spec.volumeClaimTemplates[{index}].spec");
            errors.extend(claim_spec(&claim["spec"], &path));
        }
        let service = text(&spec["serviceName"]);
        if !service.is_empty() {
            errors.extend(names::label(service, "spec.serviceName"));
        }
        return errors;
    };
    let fixed = |spec: &Value| {
        let mut spec = spec.clone();
        if let Some(members) = spec.as_object_mut() {
            members.retain(|name, _| !MUTABLE.contains(&name.as_str()));
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
    errors
}

fn stateful_strategy(strategy: &Value, errors: &mut Vec<FieldError>) {
    let (rolling, path) = (&strategy["rollingUpdate"], "spec.updateStrategy");
    match text(&strategy["type"]) {
        "OnDelete" if rolling.is_object() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            let value = &shown(strategy)["RollingUpdate"];
            errors.push(FieldError::invalid(format!("{path}.rollingUpdate"), value, detail));
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            let within = |name: &str| format!("{path}.rollingUpdate.{name}");
            errors.extend(not_negative(&within("partition"), &rolling["partition"]));
            let most = &rolling["maxUnavailable"];
            if !most.is_null() {
                portion_is_valid(most, &within("maxUnavailable"), errors);
                if portion(most).unwrap_or(0) == 0 {
                    errors.push(FieldError::invalid(within("maxUnavailable"), most, "cannot be 0"));
                }
            }
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid(path, &shown(strategy), detail));
        }
    }
}

pub(super) fn daemon_set(spec: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors: Vec<_> = selector_is_fixed(spec, old).into_iter().collect();
    errors.extend(selector_and_template(spec, "daemonset", &BTreeSet::new()));
    let (strategy, path) = (&spec["updateStrategy"], "spec.updateStrategy");
    let rolling = &strategy["rollingUpdate"];
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let within = |name: &str| format!("{path}.rollingUpdate.{name}");
            let most = |name: &str| portion(&rolling[name]).unwrap_or(0);
            for name in ["maxUnavailable", "maxSurge"] {
                portion_is_valid(&rolling[name], &within(name), &mut errors);
            }
            match (most("maxUnavailable") != 0, most("maxSurge") != 0) {
                (true, true) => {
                    let detail = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(within("maxSurge"), &rolling["maxSurge"], detail));
                }
                (false, false) => {
                    let detail = "cannot be 0 when maxSurge is 0";
                    errors.push(FieldError::required(within("maxUnavailable"), detail));
                }
                _ => {}
            }
        }
        _ => {
            let supported = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(path, &shown(strategy), &supported));
        }
    }
    errors
}
