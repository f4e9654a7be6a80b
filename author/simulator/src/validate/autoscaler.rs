//! Checks HorizontalPodAutoscalers: each metric has the one source that its type names.

use serde_json::{Value, json};

use super::{list, names, quantity_of, text};
use crate::failure::FieldError;

/// The types of metrics in the order in which the server looks for their sources.
const TYPES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// The types as an error lists them.
const LISTED: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];

/// The longest window of a rule and the longest period of a policy, in seconds.
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

pub(super) fn autoscaler(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (least, most) = (&spec["minReplicas"], spec["maxReplicas"].as_i64().unwrap_or(0));
    if least.as_i64().is_some_and(|number| number < 1) {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid("spec.minReplicas", least, detail));
    }
    let path = "spec.maxReplicas";
    if most == 0 {
        errors.push(FieldError::required(path, "must be set and greater than 0"));
    } else if most < 0 {
        let detail = "must be greater than or equal to 1";
        errors.push(FieldError::invalid(path, &json!(most), detail));
    }
    if least.as_i64().is_some_and(|least| most < least) {
        let detail = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid(path, &json!(most), detail));
    }
    target(&spec["scaleTargetRef"], "spec.scaleTargetRef", &mut errors);
    let metrics = list(&spec["metrics"]);
    for (index, item) in metrics.iter().enumerate() {
        metric(item, &format!("spec.metrics[{index}]"), &mut errors);
    }
    let counts = |item: &Value| item["type"] == "Object" || item["type"] == "External";
    if least == 0 && !metrics.iter().any(counts) {
        let detail = "must specify at least one Object or External metric to support scaling to zero replicas";
        errors.push(FieldError::forbidden("spec.metrics", detail));
    }
    for name in ["scaleUp", "scaleDown"] {
        let rules = &spec["behavior"][name];
        if rules.is_object() {
            scaling(rules, &format!("spec.behavior.{name}"), &mut errors);
        }
    }
    errors
}

/// A reference to an object of any kind.
fn target(reference: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["kind", "name"] {
        let path = format!("{path}.{name}");
        match text(&reference[name]) {
            "" => errors.push(FieldError::required(path, "")),
            name => errors.extend(names::object_name(names::NameForm::PathSegment, name, &path)),
        }
    }
}

fn metric(metric: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kind = &metric["type"];
    let unknown = || FieldError::not_supported(format!("{path}.type"), &json!(text(kind)), &LISTED);
    if text(kind).is_empty() {
        let detail = "must specify a metric source type";
        errors.push(FieldError::required(format!("{path}.type"), detail));
    }
    let expected = TYPES.iter().find(|(name, _)| kind == name).map(|(_, field)| *field);
    if expected.is_none() {
        errors.push(unknown());
    }
    let present = TYPES.iter().map(|(_, field)| *field);
    let present: Vec<&str> = present.filter(|field| metric[*field].is_object()).collect();
    if let Some(first) = present.first() {
        source(first, &metric[*first], &format!("{path}.{first}"), errors);
    }
    match expected {
        Some(field) if !present.contains(&field) => {
            let detail = "must populate information for the given metric source";
            errors.push(FieldError::required(format!("{path}.{field}"), detail));
        }
        Some(_) => {}
        None => errors.push(unknown()),
    }
    if present.len() > 1 {
        let others = present.into_iter().filter(|field| Some(*field) != expected);
        let detail = "must populate the given metric source only";
        errors.extend(others.map(|field| FieldError::forbidden(format!("{path}.{field}"), detail)));
    }
}

fn source(kind: &str, source: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let target_path = format!("{path}.target");
    let wanted = &source["target"];
    let has = |name: &str| !wanted[name].is_null();
    let is_resource = kind == "resource" || kind == "containerResource";
    if kind == "object" {
        target(&source["describedObject"], &format!("{path}.describedObject"), errors);
    }
    let (name, detail) = if is_resource {
        (&source["name"], "must specify a resource name")
    } else {
        (&source["metric"]["name"], "must specify a metric name")
    };
    if text(name).is_empty() {
        let member = if is_resource { "name" } else { "metric.name" };
        errors.push(FieldError::required(format!("{path}.{member}"), detail));
    }
    if kind == "containerResource" {
        match text(&source["container"]) {
            "" => errors.push(FieldError::required(
                format!("{path}.container"),
                "must specify a container",
            )),
            name => errors.extend(names::label(name, &format!("{path}.container"))),
        }
    }
    amounts(wanted, &target_path, errors);
    let required = match kind {
        "object" if !has("value") && !has("averageValue") => {
            Some(("averageValue", "must set either a target value or averageValue"))
        }
        "external" if !has("value") && !has("averageValue") => Some((
            "averageValue",
            "must set either a target value for metric or a per-pod target",
        )),
        "pods" if !has("averageValue") => Some(("averageValue", "must specify a positive target averageValue")),
        "resource" | "containerResource" if !has("averageUtilization") && !has("averageValue") => Some((
            "averageUtilization",
            "must set either a target raw value or a target utilization",
        )),
        _ => None,
    };
    errors.extend(required.map(|(name, detail)| FieldError::required(format!("{target_path}.{name}"), detail)));
    let forbidden = match kind {
        "external" if has("value") && has("averageValue") => Some((
            "value",
            "may not set both a target value for metric and a per-pod target",
        )),
        "resource" | "containerResource" if has("averageUtilization") && has("averageValue") => Some((
            "averageValue",
            "may not set both a target raw value and a target utilization",
        )),
        _ => None,
    };
    errors.extend(forbidden.map(|(name, detail)| FieldError::forbidden(format!("{target_path}.{name}"), detail)));
}

fn amounts(target: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let kind = text(&target["type"]);
    if kind.is_empty() {
        let detail = "must specify a metric target type";
        errors.push(FieldError::required(format!("{path}.type"), detail));
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind) {
        let detail = "must be either Utilization, Value, or AverageValue";
        errors.push(FieldError::invalid(format!("{path}.type"), &json!(kind), detail));
    }
    for name in ["value", "averageValue"] {
        if target[name].is_string() && quantity_of(&target[name]) <= 0 {
            errors.push(FieldError::invalid(
                format!("{path}.{name}"),
                &target[name],
                "must be positive",
            ));
        }
    }
    let utilization = &target["averageUtilization"];
    if utilization.as_i64().is_some_and(|number| number < 1) {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid(
            format!("{path}.averageUtilization"),
            utilization,
            detail,
        ));
    }
}

fn scaling(rules: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let window = &rules["stabilizationWindowSeconds"];
    let path_of_window = format!("{path}.stabilizationWindowSeconds");
    match window.as_i64() {
        Some(seconds) if seconds < 0 => {
            let detail = "must be greater than or equal to zero";
            errors.push(FieldError::invalid(path_of_window, window, detail));
        }
        Some(seconds) if seconds > LONGEST_WINDOW => {
            let detail = format!("must be less than or equal to {LONGEST_WINDOW}");
            errors.push(FieldError::invalid(path_of_window, window, detail));
        }
        _ => {}
    }
    let select = &rules["selectPolicy"];
    let selects = ["Disabled", "Max", "Min"];
    if select.is_string() && !selects.contains(&text(select)) {
        errors.push(FieldError::not_supported(
            format!("{path}.selectPolicy"),
            select,
            &selects,
        ));
    }
    let policies = list(&rules["policies"]);
    if policies.is_empty() {
        let detail = "must specify at least one Policy";
        errors.push(FieldError::required(format!("{path}.policies"), detail));
    }
    for (index, policy) in policies.iter().enumerate() {
        let path = format!("{path}.policies[{index}]");
        if !["Pods", "Percent"].contains(&text(&policy["type"])) {
            let supported = ["Percent", "Pods"];
            errors.push(FieldError::not_supported(
                format!("{path}.type"),
                &policy["type"],
                &supported,
            ));
        }
        for name in ["value", "periodSeconds"] {
            if policy[name].as_i64().unwrap_or(0) <= 0 {
                let detail = "must be greater than zero";
                errors.push(FieldError::invalid(format!("{path}.{name}"), &policy[name], detail));
            }
        }
        let period = &policy["periodSeconds"];
        if period.as_i64().is_some_and(|seconds| seconds > LONGEST_PERIOD) {
            let detail = format!("must be less than or equal to {LONGEST_PERIOD}");
            errors.push(FieldError::invalid(format!("{path}.periodSeconds"), period, detail));
        }
    }
}
