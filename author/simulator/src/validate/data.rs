//! Checks ConfigMaps, Secrets and the small kinds that have no file of their own.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::{immutable, list, names, same, text};
use crate::failure::FieldError;

/// The most bytes of all values of a ConfigMap or Secret.
const MOST_BYTES: usize = 1024 * 1024;

/// Checks the keys and the size of a ConfigMap, and that one that is immutable stays as it is.
pub(super) fn config_map(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = data(object, old, &["data", "binaryData"]);
    let plain: usize = object["data"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(_, value)| text(value).len())
        .sum();
    if plain + decoded(&object["binaryData"]) > MOST_BYTES {
        // The path of the whole object.
        errors.push(FieldError::too_long("[]", MOST_BYTES));
    }
    for name in object["data"].as_object().into_iter().flatten().map(|(name, _)| name) {
        if object["binaryData"].get(name).is_some() {
            let detail = "duplicate of key present in binaryData";
            errors.push(FieldError::invalid(format!("data[{name}]"), &json!(name), detail));
        }
    }
    errors
}

fn data(object: &Value, old: Option<&Value>, members: &[&str]) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for member in members {
        for name in object[*member].as_object().into_iter().flatten().map(|(name, _)| name) {
            errors.extend(names::config_key(name, &format!("{member}[{name}]")));
        }
    }
    if let Some(old) = old
        && old["immutable"] == true
    {
        let detail = "field is immutable when `immutable` is set";
        if object["immutable"] != true {
            errors.push(FieldError::forbidden("immutable", detail));
        }
        let changed = members.iter().filter(|member| !same(&object[**member], &old[**member]));
        errors.extend(changed.map(|member| FieldError::forbidden(*member, detail)));
    }
    errors
}

/// The bytes of all values of a map, which are base64.
fn decoded(map: &Value) -> usize {
    let values = map.as_object().into_iter().flatten();
    values
        .map(|(_, value)| STANDARD.decode(text(value)).map_or(0, |bytes| bytes.len()))
        .sum()
}

pub(super) fn secret(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = data(object, old, &["data"]);
    if decoded(&object["data"]) > MOST_BYTES {
        errors.push(FieldError::too_long("data", MOST_BYTES));
    }
    if let Some(old) = old
        && object["type"] != old["type"]
    {
        errors.push(FieldError::invalid("type", &object["type"], "field is immutable"));
    }
    let missing = |key: &str| object["data"].get(key).is_none();
    let mut require = |key: &str| errors.push(FieldError::required(format!("data[{key}]"), ""));
    match text(&object["type"]) {
        "kubernetes.io/tls" => ["tls.crt", "tls.key"]
            .into_iter()
            .filter(|key| missing(key))
            .for_each(require),
        "kubernetes.io/basic-auth" if missing("username") && missing("password") => {
            ["username", "password"].into_iter().for_each(require);
        }
        "kubernetes.io/ssh-auth" if text(&object["data"]["ssh-privatekey"]).is_empty() => require("ssh-privatekey"),
        "kubernetes.io/dockerconfigjson" if missing(".dockerconfigjson") => require(".dockerconfigjson"),
        "kubernetes.io/dockercfg" if missing(".dockercfg") => require(".dockercfg"),
        kind @ ("kubernetes.io/dockerconfigjson" | "kubernetes.io/dockercfg") => {
            let key = if kind.ends_with("json") {
                ".dockerconfigjson"
            } else {
                ".dockercfg"
            };
            let bytes = STANDARD.decode(text(&object["data"][key])).unwrap_or_default();
            if let Err(fault) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
                let shown = json!("<secret contents redacted>");
                errors.push(FieldError::invalid(format!("data[{key}]"), &shown, fault.to_string()));
            }
        }
        "kubernetes.io/service-account-token" => {
            let name = "kubernetes.io/service-account.name";
            if text(&object["metadata"]["annotations"][name]).is_empty() {
                errors.push(FieldError::required(format!("metadata.annotations[{name}]"), ""));
            }
        }
        _ => {}
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

const RBAC: &str = "rbac.authorization.k8s.io";

/// Checks a RoleBinding or ClusterRoleBinding, whose role is fixed.
pub(super) fn binding(object: &Value, old: Option<&Value>, namespaced: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let role = &object["roleRef"];
    let kind = &role["kind"];
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    if !kinds.contains(&text(kind)) {
        errors.push(FieldError::not_supported("roleRef.kind", kind, kinds));
    }
    if text(&role["name"]).is_empty() {
        errors.push(FieldError::required("roleRef.name", ""));
    }
    for (index, subject) in list(&object["subjects"]).iter().enumerate() {
        let path = format!("subjects[{index}]");
        if text(&subject["name"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.name"), ""));
        }
        let (group, path_of_group) = (json!(text(&subject["apiGroup"])), format!("{path}.apiGroup"));
        match text(&subject["kind"]) {
            "ServiceAccount" => {
                if group != "" {
                    errors.push(FieldError::not_supported(path_of_group, &group, &[""]));
                }
                if !namespaced && text(&subject["namespace"]).is_empty() {
                    errors.push(FieldError::required(format!("{path}.namespace"), ""));
                }
            }
            "User" | "Group" if group != RBAC => {
                errors.push(FieldError::not_supported(path_of_group, &group, &[RBAC]));
            }
            "User" | "Group" => {}
            other => {
                let supported = ["ServiceAccount", "User", "Group"];
                errors.push(FieldError::not_supported(
                    format!("{path}.kind"),
                    &json!(other),
                    &supported,
                ));
            }
        }
    }
    if let Some(old) = old
        && !same(role, &old["roleRef"])
    {
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
    errors
}

pub(super) fn budget(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (least, most) = (&spec["minAvailable"], &spec["maxUnavailable"]);
    if !least.is_null() && !most.is_null() {
        let shown = json!({
            "MinAvailable": least, "Selector": spec["selector"], "MaxUnavailable": most,
            "UnhealthyPodEvictionPolicy": spec["unhealthyPodEvictionPolicy"],
        });
        let detail = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", &shown, detail));
    }
    for name in ["minAvailable", "maxUnavailable"] {
        if !spec[name].is_null() {
            super::workload::portion_is_valid(&spec[name], &format!("spec.{name}"), &mut errors);
        }
    }
    errors
}

pub(super) fn priority_class(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(old) = old else { return errors };
    if object["value"] != old["value"] {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    let name = "preemptionPolicy";
    errors.extend(immutable(name, &object[name], Some(&old[name])));
    errors
}

pub(super) fn storage_class(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Some(old) = old else { return Vec::new() };
    let fixed = ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];
    let errors = fixed
        .into_iter()
        .map(|name| immutable(name, &object[name], Some(&old[name])));
    errors.flatten().collect()
}
