//! Owns the checks of objects before they are stored: metadata of every kind, the schemas of custom resources, and the usual
//! mistakes in built-in kinds, in the server's words.

mod metadata;
pub(crate) mod names;
mod network;
mod pod;
mod workload;

use serde_json::Value;

use crate::apply::types::same;
use crate::custom::definition;
use crate::failure::FieldError;
use crate::kinds::Resource;

/// What is wrong with a new object.
pub(crate) fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::check(resource, object);
    errors.extend(of_kind(resource, object, None));
    errors
}

/// What is wrong with the new form of an object.
pub(crate) fn update(resource: &Resource, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = metadata::check(resource, object);
    if let Some(custom) = &resource.custom {
        errors.extend(match subresource {
            "status" => custom.validate_status(object, old),
            _ => custom.validate(object, Some(old)),
        });
    } else if subresource.is_empty() {
        errors.extend(of_kind(resource, object, Some(old)));
    }
    errors
}

fn of_kind(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    if let Some(custom) = &resource.custom {
        return custom.validate(object, old);
    }
    let spec = &object["spec"];
    let old_spec = old.map(|old| &old["spec"]);
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pod::pod(object, old),
        ("", "services") => network::service(object, old),
        ("", "configmaps") => data(object, old, &["data", "binaryData"]),
        ("", "secrets") => secret(object, old),
        ("networking.k8s.io", "ingresses") => network::ingress(spec),
        ("apps", "deployments") => workload::deployment(spec, old_spec),
        ("apps", "replicasets") => workload::replica_set(spec, old_spec),
        ("apps", "statefulsets") => workload::stateful_set(spec, old_spec),
        ("apps", "daemonsets") => workload::daemon_set(spec, old_spec),
        ("batch", "jobs") => workload::job(spec, old_spec),
        ("coordination.k8s.io", "leases") => workload::lease(spec),
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => workload::binding(object, old),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::validate(object),
        _ => Vec::new(),
    }
}

/// Keys of config maps and secrets, and that immutable ones stay as they are.
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
        if object["immutable"] != true {
            errors.push(FieldError::forbidden(
                "immutable",
                "field is immutable when `immutable` is set",
            ));
        }
        for member in members {
            if !same(&object[*member], &old[*member]) {
                errors.push(FieldError::forbidden(
                    *member,
                    "field is immutable when `immutable` is set",
                ));
            }
        }
    }
    errors
}

fn secret(object: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = data(object, old, &["data"]);
    if let Some(old) = old
        && object["type"] != old["type"]
    {
        errors.push(FieldError::invalid("type", &object["type"], "field is immutable"));
    }
    let required: &[&str] = match object["type"].as_str() {
        Some("kubernetes.io/tls") => &["tls.crt", "tls.key"],
        Some("kubernetes.io/dockerconfigjson") => &[".dockerconfigjson"],
        _ => &[],
    };
    for key in required {
        if object["data"].get(*key).is_none() {
            errors.push(FieldError::required(format!("data[{key}]"), ""));
        }
    }
    errors
}

/// A field that an update may not change.
pub(super) fn immutable(path: &str, new: &Value, old: Option<&Value>) -> Option<FieldError> {
    let old = old?;
    (!same(new, old)).then(|| FieldError::invalid(path, new, "field is immutable"))
}

/// A number that must not be negative.
pub(super) fn not_negative(path: &str, value: &Value) -> Option<FieldError> {
    value
        .as_i64()
        .filter(|number| *number < 0)
        .map(|_| FieldError::invalid(path, value, "must be greater than or equal to 0"))
}
