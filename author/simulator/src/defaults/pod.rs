//! Defaults of pods and of the pod templates of workloads.

use serde_json::{Value, json};

use super::{items, member, set};

/// Permissions of files in mounted volumes: rw-r--r--.
const FILE_MODE: i64 = 0o644;

/// A pod of its own has a few defaults more than a template.
pub(super) fn pod(object: &mut Value) {
    let spec = &mut object["spec"];
    for containers in ["containers", "initContainers"] {
        items(spec, containers).for_each(requests_from_limits);
    }
    set(spec, "enableServiceLinks", true);
    pod_spec(spec);
}

pub(super) fn template(template: &mut Value) {
    if let Some(spec) = member(template, "spec") {
        pod_spec(spec);
    }
}

fn requests_from_limits(container: &mut Value) {
    let Some(limits) = container["resources"]["limits"].as_object().cloned() else {
        return;
    };
    let requests = &mut container["resources"]["requests"];
    if requests.is_null() {
        *requests = json!({});
    }
    for (name, quantity) in limits {
        set(requests, &name, quantity);
    }
}

fn pod_spec(spec: &mut Value) {
    set(spec, "dnsPolicy", "ClusterFirst");
    set(spec, "restartPolicy", "Always");
    set(spec, "securityContext", json!({}));
    set(spec, "terminationGracePeriodSeconds", 30);
    set(spec, "schedulerName", "default-scheduler");
    let host_network = spec["hostNetwork"] == true;
    for containers in ["containers", "initContainers", "ephemeralContainers"] {
        items(spec, containers).for_each(|item| container(item, host_network));
    }
    items(spec, "volumes").for_each(volume);
}

fn container(container: &mut Value, host_network: bool) {
    set(container, "terminationMessagePath", "/dev/termination-log");
    set(container, "terminationMessagePolicy", "File");
    let policy = if is_latest(container["image"].as_str().unwrap_or_default()) {
        "Always"
    } else {
        "IfNotPresent"
    };
    set(container, "imagePullPolicy", policy);
    for port in items(container, "ports") {
        set(port, "protocol", "TCP");
        if host_network {
            let number = port["containerPort"].clone();
            set(port, "hostPort", number);
        }
    }
    for variable in items(container, "env") {
        if let Some(reference) = member(&mut variable["valueFrom"], "fieldRef") {
            set(reference, "apiVersion", "v1");
        }
        drop_null(variable, "valueFrom");
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = member(container, name) {
            set(probe, "timeoutSeconds", 1);
            set(probe, "periodSeconds", 10);
            set(probe, "successThreshold", 1);
            set(probe, "failureThreshold", 3);
            http_get(probe);
            if let Some(grpc) = member(probe, "grpc") {
                set(grpc, "service", "");
            }
        }
    }
    if let Some(lifecycle) = member(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = member(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
}

/// Indexing for writing creates nulls; they must not stay.
fn drop_null(object: &mut Value, name: &str) {
    if object.get(name).is_some_and(Value::is_null)
        && let Some(members) = object.as_object_mut()
    {
        members.remove(name);
    }
}

fn http_get(holder: &mut Value) {
    if let Some(request) = member(holder, "httpGet") {
        set(request, "path", "/");
        set(request, "scheme", "HTTP");
    }
}

/// No tag and no digest means the tag `latest`.
fn is_latest(image: &str) -> bool {
    if image.contains('@') {
        return false;
    }
    let last = image.rsplit('/').next().unwrap_or_default();
    last.split_once(':').is_none_or(|(_, tag)| tag == "latest")
}

fn volume(volume: &mut Value) {
    let has_source = volume
        .as_object()
        .is_some_and(|members| members.keys().any(|name| name != "name"));
    if !has_source {
        set(volume, "emptyDir", json!({}));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        let Some(source) = member(volume, source) else { continue };
        set(source, "defaultMode", FILE_MODE);
        items(source, "items").for_each(field_reference);
        for part in items(source, "sources") {
            if let Some(token) = member(part, "serviceAccountToken") {
                set(token, "expirationSeconds", 3600);
            }
            if let Some(downward) = member(part, "downwardAPI") {
                items(downward, "items").for_each(field_reference);
            }
        }
    }
    if let Some(path) = member(volume, "hostPath") {
        set(path, "type", "");
    }
}

fn field_reference(item: &mut Value) {
    if let Some(reference) = member(item, "fieldRef") {
        set(reference, "apiVersion", "v1");
    }
}
