//! Checks pods and the templates of workloads, of which the containers and volumes have files of their own.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::container::{container, host_ports, seccomp};
use super::handler::handlers;
use super::volume::volumes;
use super::{list, names, same, text};
use crate::failure::FieldError;

pub(super) fn pod(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = spec(&object["spec"], "spec", &BTreeSet::new());
    let Some(old) = old else { return errors };
    for group in ["containers", "initContainers"] {
        let path = format!("spec.{group}");
        let (new, before) = (list(&object["spec"][group]), list(&old["spec"][group]));
        if new.len() != before.len() {
            errors.push(FieldError::forbidden(
                path,
                "pod updates may not add or remove containers",
            ));
            return errors;
        }
        for (index, container) in new.iter().enumerate() {
            let (image, path) = (text(&container["image"]), format!("{path}[{index}].image"));
            if image.is_empty() {
                errors.push(FieldError::required(&path, ""));
            }
            if image.trim() != image {
                let detail = "must not have leading or trailing whitespace";
                errors.push(FieldError::invalid(path, &container["image"], detail));
            }
        }
    }
    if !same(&mutable_parts_reset(&object["spec"], &old["spec"]), &old["spec"]) {
        errors.push(FieldError::forbidden(
            "spec",
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n",
        ));
    }
    errors
}

/// Returns the new spec with its mutable parts as they were.
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

/// Checks the template of a workload; `claimed` are the names of a StatefulSet's claim templates.
pub(super) fn template(template: &Value, path: &str, claimed: &BTreeSet<&str>) -> Vec<FieldError> {
    let mut errors = names::labels(&template["metadata"]["labels"], &format!("{path}.labels"));
    errors.extend(spec(&template["spec"], &format!("{path}.spec"), claimed));
    errors
}

fn spec(spec: &Value, path: &str, claimed: &BTreeSet<&str>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = volumes(spec, path, claimed, &mut errors);
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
            if group == "containers" || item["restartPolicy"] == "Always" {
                handlers(item, &path, &spec["terminationGracePeriodSeconds"], &mut errors);
            } else {
                let forbidden = ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"];
                let present = forbidden.into_iter().filter(|name| item[*name].is_object());
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.extend(present.map(|name| FieldError::forbidden(format!("{path}.{name}"), detail)));
            }
        }
    }
    host_ports(list(&spec["containers"]), &format!("{path}.containers"), &mut errors);
    if spec["hostNetwork"] == true {
        host_network(spec, path, &mut errors);
    }
    for (name, supported) in [
        ("restartPolicy", ["Always", "OnFailure", "Never"].as_slice()),
        (
            "dnsPolicy",
            &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
        ),
    ] {
        let value = &spec[name];
        if value.is_string() && !supported.contains(&text(value)) {
            errors.push(FieldError::not_supported(format!("{path}.{name}"), value, supported));
        }
    }
    if spec["shareProcessNamespace"] == true && spec["hostPID"] == true {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        let path = format!("{path}.securityContext.shareProcessNamespace");
        errors.push(FieldError::invalid(path, &json!(true), detail));
    }
    let profile = &spec["securityContext"]["seccompProfile"];
    seccomp(profile, &format!("{path}.securityContext.seccompProfile"), &mut errors);
    for (index, toleration) in list(&spec["tolerations"]).iter().enumerate() {
        let path = format!("{path}.tolerations[{index}]");
        let (operator, value) = (text(&toleration["operator"]), &toleration["value"]);
        if operator == "Exists" && !text(value).is_empty() {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(format!("{path}.operator"), value, detail));
        }
        if text(&toleration["key"]).is_empty() && operator != "Exists" {
            let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            errors.push(FieldError::invalid(
                format!("{path}.operator"),
                &json!(operator),
                detail,
            ));
        }
    }
    errors.extend(names::labels(&spec["nodeSelector"], &format!("{path}.nodeSelector")));
    if spec["dnsPolicy"] == "None" {
        if spec["dnsConfig"].is_null() {
            let detail = "must provide `dnsConfig` when `dnsPolicy` is None";
            errors.push(FieldError::required(format!("{path}.dnsConfig"), detail));
        } else if list(&spec["dnsConfig"]["nameservers"]).is_empty() {
            let detail = "must provide at least one DNS nameserver when `dnsPolicy` is None";
            errors.push(FieldError::required(format!("{path}.dnsConfig.nameservers"), detail));
        }
    }
    errors
}

/// In the host's network a port of a container is one of the host.
fn host_network(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (index, container) in list(&spec["containers"]).iter().enumerate() {
        for (port_index, port) in list(&container["ports"]).iter().enumerate() {
            let number = |name: &str| port[name].as_i64().unwrap_or(0);
            let host = number("hostPort");
            if host != 0 && host != number("containerPort") {
                let path = format!("{path}.containers[{index}].ports[{port_index}].hostPort");
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.push(FieldError::invalid(path, &json!(host), detail));
            }
        }
    }
}
