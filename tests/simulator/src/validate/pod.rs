//! Owns the checks of pods and of the templates of workloads: containers, ports, volumes.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names;
use crate::apply::types::same;
use crate::failure::FieldError;

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

pub(super) fn pod(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = spec(&object["spec"], "spec");
    if let Some(old) = old
        && errors.is_empty()
        && !same(&mutable_parts_reset(&object["spec"], &old["spec"]), &old["spec"])
    {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        ));
    }
    errors
}

/// The new spec with what may change as it was.
fn mutable_parts_reset(new: &Value, old: &Value) -> Value {
    let mut reset = new.clone();
    for containers in ["containers", "initContainers"] {
        let olds = list(&old[containers]);
        for (index, container) in reset[containers].as_array_mut().into_iter().flatten().enumerate() {
            if let Some(old) = olds.get(index) {
                container["image"] = old["image"].clone();
            }
        }
    }
    for name in ["activeDeadlineSeconds", "tolerations", "schedulingGates", "nodeName"] {
        if let Some(members) = reset.as_object_mut() {
            match old.get(name) {
                Some(value) => members.insert(name.to_owned(), value.clone()),
                None => members.remove(name),
            };
        }
    }
    if reset["initContainers"].is_null()
        && let Some(members) = reset.as_object_mut()
    {
        members.remove("initContainers");
    }
    reset
}

/// The spec of a pod or of a template.
pub(super) fn spec(spec: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = volumes(spec, path, &mut errors);
    if list(&spec["containers"]).is_empty() {
        errors.push(FieldError::required(format!("{path}.containers"), ""));
    }
    let mut taken = BTreeSet::new();
    for group in ["containers", "initContainers"] {
        for (index, item) in list(&spec[group]).iter().enumerate() {
            let path = format!("{path}.{group}[{index}]");
            container(item, &path, &volumes, &mut errors);
            let name = text(&item["name"]);
            if !name.is_empty() && !taken.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &item["name"]));
            }
        }
    }
    for (name, supported) in [
        ("restartPolicy", ["Always", "Never", "OnFailure"].as_slice()),
        (
            "dnsPolicy",
            ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"].as_slice(),
        ),
    ] {
        let value = &spec[name];
        if value.is_string() && !supported.contains(&text(value)) {
            errors.push(FieldError::not_supported(format!("{path}.{name}"), value, supported));
        }
    }
    errors
}

fn volumes<'a>(spec: &'a Value, path: &str, errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut names_seen = BTreeSet::new();
    for (index, volume) in list(&spec["volumes"]).iter().enumerate() {
        let path = format!("{path}.volumes[{index}].name");
        let name = text(&volume["name"]);
        if name.is_empty() {
            errors.push(FieldError::required(path, ""));
        } else if !names::is_label(name) {
            errors.extend(names::label(name, &path));
        } else if !names_seen.insert(name) {
            errors.push(FieldError::duplicate(path, &volume["name"]));
        }
    }
    names_seen
}

fn container(container: &Value, path: &str, volumes: &BTreeSet<&str>, errors: &mut Vec<FieldError>) {
    let name = text(&container["name"]);
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    } else {
        errors.extend(names::label(name, &format!("{path}.name")));
    }
    let image = text(&container["image"]);
    if image.is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.push(FieldError::invalid(
            format!("{path}.image"),
            &container["image"],
            detail,
        ));
    }
    ports(container, path, errors);
    environment(container, path, errors);
    for (index, mount) in list(&container["volumeMounts"]).iter().enumerate() {
        let path = format!("{path}.volumeMounts[{index}]");
        if text(&mount["name"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        } else if !volumes.contains(text(&mount["name"])) {
            errors.push(FieldError::not_found(format!("{path}.name"), &mount["name"]));
        }
        if text(&mount["mountPath"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.mountPath"), ""));
        }
    }
    let policy = &container["imagePullPolicy"];
    let policies = ["Always", "IfNotPresent", "Never"];
    if policy.is_string() && !policies.contains(&text(policy)) {
        errors.push(FieldError::not_supported(
            format!("{path}.imagePullPolicy"),
            policy,
            &policies,
        ));
    }
    resources(container, path, errors);
}

fn ports(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut names_seen = BTreeSet::new();
    for (index, port) in list(&container["ports"]).iter().enumerate() {
        let path = format!("{path}.ports[{index}]");
        let name = text(&port["name"]);
        if !name.is_empty() {
            let faults = names::port_name(name, &format!("{path}.name"));
            if faults.is_empty() && !names_seen.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), &port["name"]));
            }
            errors.extend(faults);
        }
        if port["containerPort"].as_i64().unwrap_or(0) == 0 {
            errors.push(FieldError::required(format!("{path}.containerPort"), ""));
        } else {
            errors.extend(names::port_number(
                &port["containerPort"],
                &format!("{path}.containerPort"),
            ));
        }
        let protocols = ["SCTP", "TCP", "UDP"];
        let protocol = &port["protocol"];
        if protocol.is_string() && !protocols.contains(&text(protocol)) {
            errors.push(FieldError::not_supported(
                format!("{path}.protocol"),
                protocol,
                &protocols,
            ));
        }
    }
}

fn environment(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, variable) in list(&container["env"]).iter().enumerate() {
        let path = format!("{path}.env[{index}]");
        if text(&variable["name"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        if variable["valueFrom"].is_object() && !text(&variable["value"]).is_empty() {
            let detail = "may not be specified when `value` is not empty";
            errors.push(FieldError::invalid(format!("{path}.valueFrom"), &json!(""), detail));
        }
    }
}

fn resources(container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let resources = &container["resources"];
    for (name, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][name];
        let (Some(asked), Some(allowed)) = (
            request.as_str().and_then(crate::quantity::millis),
            limit.as_str().and_then(crate::quantity::millis),
        ) else {
            continue;
        };
        if asked > allowed {
            let detail = format!("must be less than or equal to {name} limit of {}", text(limit));
            errors.push(FieldError::invalid(
                format!("{path}.resources.requests"),
                request,
                detail,
            ));
        }
    }
}
