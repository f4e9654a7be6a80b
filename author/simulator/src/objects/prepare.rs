//! Prepares an object between decoding and storing: fields that the server sets or resets itself, the generation, and
//! the checks of every kind.

use serde_json::{Map, Value, json};

use crate::apply::types::same;
use crate::custom::definition;
use crate::defaults::TEMPLATE_GENERATION;
use crate::failure::FieldError;
use crate::kinds::Resource;

/// Kinds that have no generation.
const WITHOUT_GENERATION: &[&str] = &[
    "bindings",
    "clusterrolebindings",
    "clusterroles",
    "configmaps",
    "controllerrevisions",
    "endpoints",
    "events",
    "horizontalpodautoscalers",
    "leases",
    "limitranges",
    "namespaces",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "resourcequotas",
    "rolebindings",
    "roles",
    "secrets",
    "serviceaccounts",
    "services",
    "storageclasses",
    "csinodes",
    "csidrivers",
    "csistoragecapacities",
    "volumeattachments",
    "ipaddresses",
    "servicecidrs",
];

fn has_generation(resource: &Resource) -> bool {
    resource.custom.is_some() || !WITHOUT_GENERATION.contains(&resource.plural.as_str())
}

/// Metadata that clients cannot set, and the status, which a create leaves empty.
pub(crate) fn for_create(resource: &Resource, object: &mut Value, uid: &str, now: &str) {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "resourceVersion",
            "generation",
        ] {
            metadata.remove(name);
        }
        metadata.insert("uid".to_owned(), json!(uid));
        metadata.insert("creationTimestamp".to_owned(), json!(now));
        if has_generation(resource) {
            metadata.insert("generation".to_owned(), json!(1));
        }
        if resource.plural == "namespaces" && resource.group.is_empty() {
            metadata.remove("finalizers");
        }
    }
    if resource.has_status() {
        reset_status(resource, object);
    }
    drop_disabled(resource, object, &Value::Null);
    special_for_create(resource, object);
}

/// The status of an object that was just created.
fn reset_status(resource: &Resource, object: &mut Value) {
    let status = match (resource.group.as_str(), resource.plural.as_str()) {
        _ if resource.custom.is_some() => None,
        ("", "namespaces") => Some(json!({"phase": "Active"})),
        ("", "pods") => Some(json!({"phase": "Pending", "qosClass": quality(object)})),
        ("", "services") | ("networking.k8s.io", "ingresses") => Some(json!({"loadBalancer": {}})),
        ("", "persistentvolumes" | "persistentvolumeclaims") => Some(json!({"phase": "Pending"})),
        // Nodes report what they are themselves.
        ("", "nodes") => Some(object["status"].clone()),
        ("apps", "statefulsets") => Some(json!({"replicas": 0, "availableReplicas": 0})),
        ("apps", "replicasets") | ("", "replicationcontrollers") => Some(json!({"replicas": 0})),
        ("apps", "daemonsets") => Some(json!({
            "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
        })),
        ("policy", "poddisruptionbudgets") => {
            Some(json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}))
        }
        ("autoscaling", _) => Some(json!({"desiredReplicas": 0, "currentMetrics": null})),
        ("apiextensions.k8s.io", _) => Some(json!({
            "conditions": null,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": definition::stored_versions(object),
        })),
        _ => Some(json!({})),
    };
    let Some(members) = object.as_object_mut() else { return };
    match status {
        Some(Value::Null) | None => {
            members.remove("status");
        }
        Some(status) => {
            members.insert("status".to_owned(), status);
        }
    }
}

/// Quality of service, from requests and limits.
fn quality(pod: &Value) -> &'static str {
    let containers = || {
        ["containers", "initContainers"]
            .into_iter()
            .flat_map(|name| pod["spec"][name].as_array().into_iter().flatten())
    };
    let any = |name: &str| {
        containers().any(|container| {
            container["resources"][name]
                .as_object()
                .is_some_and(|set| !set.is_empty())
        })
    };
    if !any("requests") && !any("limits") {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        let resources = &container["resources"];
        ["cpu", "memory"].iter().all(|name| {
            resources["limits"][*name].is_string() && resources["limits"][*name] == resources["requests"][*name]
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

fn special_for_create(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "namespaces") => {
            let finalizers = &mut object["spec"]["finalizers"];
            let has_ours = finalizers
                .as_array()
                .is_some_and(|list| list.iter().any(|name| name == "kubernetes"));
            if !has_ours {
                let mut list = finalizers.as_array().cloned().unwrap_or_default();
                list.push(json!("kubernetes"));
                *finalizers = Value::Array(list);
            }
        }
        ("", "persistentvolumeclaims") => {
            let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
            if !finalizers.iter().any(|name| name == PROTECTION) {
                finalizers.push(json!(PROTECTION));
            }
            object["metadata"]["finalizers"] = Value::Array(finalizers);
        }
        ("batch", "jobs") => label_job(object),
        _ => {}
    }
}

/// `stringData` goes into `data`.
pub(crate) fn merge_string_data(object: &mut Value) {
    use base64::Engine as _;
    let Some(members) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = members.remove("stringData") else {
        return;
    };
    let data = members.entry("data").or_insert_with(|| json!({}));
    for (name, text) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(text.as_str().unwrap_or_default());
        data[name] = json!(encoded);
    }
}

/// A job selects its pods by its own uid.
fn label_job(object: &mut Value) {
    let metadata = object["metadata"].clone();
    let template = &mut object["spec"]["template"]["metadata"];
    if template["labels"].is_null() {
        template["labels"] = json!({});
    }
    for prefix in ["", "batch.kubernetes.io/"] {
        template["labels"][format!("{prefix}job-name")] = metadata["name"].clone();
        template["labels"][format!("{prefix}controller-uid")] = metadata["uid"].clone();
    }
    if object["metadata"]["labels"].is_null() {
        object["metadata"]["labels"] = object["spec"]["template"]["metadata"]["labels"].clone();
    }
    object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": metadata["uid"]}});
}

/// Fields that an update cannot change, and the generation.
pub(crate) fn for_update(resource: &Resource, subresource: &str, object: &mut Value, old: &Value) {
    carry_metadata(object, old);
    match subresource {
        "status" => keep_all_but_status(resource, object, old),
        "" if resource.has_status() => carry(object, old, "status"),
        "finalize" => carry(object, old, "status"),
        _ => {}
    }
    if subresource.is_empty() && resource.is_builtin("", "namespaces") {
        object["spec"]["finalizers"] = old["spec"]["finalizers"].clone();
    }
    drop_disabled(resource, object, old);
    if subresource.is_empty() && resource.is_builtin("apps", "daemonsets") {
        count_template(object, old);
    }
    if subresource != "status" && has_generation(resource) {
        let generation = old["metadata"]["generation"].as_i64().unwrap_or(0);
        let bump = i64::from(spec_changed(resource, object, old));
        if generation + bump > 0 {
            object["metadata"]["generation"] = json!(generation + bump);
        }
    }
}

/// Removes fields of feature gates that are off by default, unless the object has them already.
fn drop_disabled(resource: &Resource, object: &mut Value, old: &Value) {
    let name = "maxUnavailable";
    if resource.is_builtin("apps", "statefulsets")
        && old["spec"]["updateStrategy"]["rollingUpdate"][name].is_null()
        && let Some(rolling) = object["spec"]["updateStrategy"]["rollingUpdate"].as_object_mut()
    {
        rolling.remove(name);
    }
}

/// Counts the templates that a DaemonSet has had, in an annotation that clients cannot set.
fn count_template(object: &mut Value, old: &Value) {
    let count = &old["metadata"]["annotations"][TEMPLATE_GENERATION];
    let count: u64 = count.as_str().and_then(|count| count.parse().ok()).unwrap_or(1);
    let changed = !same(&object["spec"]["template"], &old["spec"]["template"]);
    object["metadata"]["annotations"][TEMPLATE_GENERATION] = json!((count + u64::from(changed)).to_string());
}

/// Copies a member of the old object, or takes it away where the old one had none.
fn carry(object: &mut Value, old: &Value, name: &str) {
    let Some(members) = object.as_object_mut() else { return };
    match old.get(name) {
        Some(value) => members.insert(name.to_owned(), value.clone()),
        None => members.remove(name),
    };
}

fn carry_metadata(object: &mut Value, old: &Value) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    let before = &old["metadata"];
    let given = |metadata: &Map<String, Value>, name: &str| metadata.get(name).is_some_and(|value| !value.is_null());
    if !given(metadata, "uid") {
        metadata.insert("uid".to_owned(), before["uid"].clone());
    }
    for name in ["creationTimestamp", "deletionTimestamp", "generation"] {
        match before.get(name) {
            Some(value) => metadata.insert(name.to_owned(), value.clone()),
            None => metadata.remove(name),
        };
    }
    if let Some(seconds) = before.get("deletionGracePeriodSeconds") {
        metadata.insert("deletionGracePeriodSeconds".to_owned(), seconds.clone());
    }
}

fn keep_all_but_status(resource: &Resource, object: &mut Value, old: &Value) {
    if resource.custom.is_some() {
        // Of a custom resource, only the status and the book of managers come from the request.
        let status = object.get("status").cloned();
        let managed = object["metadata"].get("managedFields").cloned();
        let version = object["metadata"].get("resourceVersion").cloned();
        let api_version = object["apiVersion"].clone();
        *object = old.clone();
        object["apiVersion"] = api_version;
        set_or_remove(object, "status", status);
        set_or_remove(&mut object["metadata"], "managedFields", managed);
        set_or_remove(&mut object["metadata"], "resourceVersion", version);
        return;
    }
    carry(object, old, "spec");
    if resource.plural == "deployments" {
        let labels = old["metadata"].get("labels").cloned();
        set_or_remove(&mut object["metadata"], "labels", labels);
    }
}

fn set_or_remove(object: &mut Value, name: &str, value: Option<Value>) {
    let Some(members) = object.as_object_mut() else { return };
    match value {
        Some(value) => members.insert(name.to_owned(), value),
        None => members.remove(name),
    };
}

/// Returns `true` if the update changes a part that the generation counts.
fn spec_changed(resource: &Resource, object: &Value, old: &Value) -> bool {
    if resource.custom.is_none() && resource.has_status() {
        let annotations = resource.group == "apps"
            && resource.plural == "deployments"
            && !same(&object["metadata"]["annotations"], &old["metadata"]["annotations"]);
        return annotations || !same(&object["spec"], &old["spec"]);
    }
    // Everything but metadata, and but the status where that has a path of its own.
    let status = resource.has_status();
    let counted = |value: &Value| -> Map<String, Value> {
        let members = value.as_object().into_iter().flatten();
        members
            .filter(|(name, _)| !["apiVersion", "kind", "metadata"].contains(&name.as_str()))
            .filter(|(name, _)| !status || *name != "status")
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    };
    !same(&Value::Object(counted(object)), &Value::Object(counted(old)))
}

/// Checks of metadata that every update must pass.
pub(crate) fn validate_update(object: &Value, old: &Value) -> Vec<FieldError> {
    let (new, before) = (&object["metadata"], &old["metadata"]);
    let mut errors = Vec::new();
    if before["deletionTimestamp"].is_string() {
        let list = |metadata: &Value| metadata["finalizers"].as_array().cloned().unwrap_or_default();
        let known = list(before);
        let added: Vec<Value> = list(new).into_iter().filter(|name| !known.contains(name)).collect();
        if !added.is_empty() {
            let detail = format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                added.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
            );
            errors.push(FieldError::forbidden("metadata.finalizers", detail));
        }
    }
    for name in ["name", "namespace", "uid"] {
        if new[name].as_str().unwrap_or_default() != before[name].as_str().unwrap_or_default() {
            errors.push(FieldError::invalid(
                format!("metadata.{name}"),
                &new[name],
                "field is immutable",
            ));
        }
    }
    errors
}

/// Holds a claim while a pod uses it.
pub(crate) const PROTECTION: &str = "kubernetes.io/pvc-protection";
