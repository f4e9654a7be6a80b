//! Checks objects before they are stored: metadata of every kind, the schemas of custom resources, and in the kinds that
//! operators own what the server's own validation refuses, in its words.

mod autoscaler;
mod container;
mod data;
mod handler;
mod ingress;
mod job;
mod metadata;
pub(crate) mod names;
mod pod;
mod service;
mod volume;
mod workload;

use serde_json::Value;

pub(crate) use service::addresses as service_addresses;

use crate::apply::types::same;
use crate::custom::definition;
use crate::failure::FieldError;
use crate::kinds::Resource;
use crate::quantity;
use crate::resource::text;

/// Returns the errors of a new object.
pub(crate) fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = metadata::check(resource, object);
    errors.extend(of_kind(resource, object, None));
    errors
}

/// Returns the errors of the new form of an object.
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
        ("", "services") => service::service(object, old),
        ("", "configmaps") => data::config_map(object, old),
        ("", "secrets") => data::secret(object, old),
        ("", "persistentvolumeclaims") => volume::claim(object, old),
        ("networking.k8s.io", "ingresses") => ingress::ingress(spec),
        ("networking.k8s.io", "networkpolicies") => ingress::network_policy(spec),
        ("autoscaling", "horizontalpodautoscalers") if resource.version == "v2" => autoscaler::autoscaler(spec),
        ("apps", "deployments") => workload::deployment(spec, old_spec),
        ("apps", "replicasets") => workload::replica_set(spec, old_spec),
        ("apps", "statefulsets") => workload::stateful_set(spec, old_spec),
        ("apps", "daemonsets") => workload::daemon_set(spec, old_spec),
        ("batch", "jobs") => job::job(object, old),
        ("batch", "cronjobs") => job::cron_job(spec),
        ("policy", "poddisruptionbudgets") => data::budget(spec),
        ("coordination.k8s.io", "leases") => data::lease(spec),
        ("scheduling.k8s.io", "priorityclasses") => data::priority_class(object, old),
        ("storage.k8s.io", "storageclasses") => data::storage_class(object, old),
        ("rbac.authorization.k8s.io", "rolebindings") => data::binding(object, old, true),
        ("rbac.authorization.k8s.io", "clusterrolebindings") => data::binding(object, old, false),
        ("apiextensions.k8s.io", "customresourcedefinitions") => definition::validate(object),
        _ => Vec::new(),
    }
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The thousandths of a quantity; none counts as zero.
fn quantity_of(value: &Value) -> i128 {
    value.as_str().and_then(quantity::millis).unwrap_or(0)
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
