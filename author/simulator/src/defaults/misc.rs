//! Defaults of kinds that have only a few.

use serde_json::{Value, json};

use super::{items, member, set};

pub(super) fn other(group: &str, kind: &str, object: &mut Value) {
    match (group, kind) {
        ("", "Secret") => set(object, "type", "Opaque"),
        ("", "Namespace") => namespace(object),
        ("", "PersistentVolumeClaim") => {
            set(&mut object["spec"], "volumeMode", "Filesystem");
            set(&mut object["status"], "phase", "Pending");
        }
        ("", "PersistentVolume") => {
            set(&mut object["spec"], "volumeMode", "Filesystem");
            set(&mut object["spec"], "persistentVolumeReclaimPolicy", "Retain");
            set(&mut object["status"], "phase", "Pending");
        }
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(object),
        ("scheduling.k8s.io", "PriorityClass") => set(object, "preemptionPolicy", "PreemptLowerPriority"),
        ("storage.k8s.io", "StorageClass") => {
            set(object, "reclaimPolicy", "Delete");
            set(object, "volumeBindingMode", "Immediate");
        }
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration") => {
            items(object, "webhooks").for_each(webhook);
        }
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration") => {
            for item in items(object, "webhooks") {
                webhook(item);
                set(item, "reinvocationPolicy", "Never");
            }
        }
        _ => {}
    }
}

fn namespace(object: &mut Value) {
    let name = object["metadata"]["name"].clone();
    // Generated names are not known yet; the label follows when they are.
    if name.as_str().is_some_and(|name| !name.is_empty()) {
        set(&mut object["metadata"], "labels", json!({}));
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
    }
    set(object, "status", json!({}));
    set(&mut object["status"], "phase", "Active");
}

fn network_policy(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    for rules in ["ingress", "egress"] {
        for rule in items(spec, rules) {
            items(rule, "ports").for_each(|port| set(port, "protocol", "TCP"));
        }
    }
    if spec.get("policyTypes").is_none() {
        let egress = spec["egress"].as_array().is_some_and(|rules| !rules.is_empty());
        let types = if egress {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        };
        set(spec, "policyTypes", types);
        if let Some(members) = spec.as_object_mut() {
            members.retain(|_, value| !value.is_null());
        }
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn binding(object: &mut Value) {
    if let Some(role) = member(object, "roleRef")
        && role["apiGroup"].as_str().unwrap_or_default().is_empty()
    {
        role["apiGroup"] = json!(RBAC);
    }
    for subject in items(object, "subjects") {
        if subject["kind"] == "User" || subject["kind"] == "Group" {
            set(subject, "apiGroup", RBAC);
        }
    }
}

fn autoscaler(object: &mut Value) {
    let Some(spec) = member(object, "spec") else { return };
    set(spec, "minReplicas", 1);
    if spec["metrics"].as_array().is_none_or(Vec::is_empty) {
        spec["metrics"] = json!([{"type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
    }
    if let Some(behavior) = member(spec, "behavior") {
        let percent = json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        let pods = json!({"type": "Pods", "value": 4, "periodSeconds": 15});
        for (name, policies) in [("scaleUp", json!([pods, percent])), ("scaleDown", json!([percent]))] {
            set(behavior, name, json!({}));
            set(&mut behavior[name], "selectPolicy", "Max");
            set(&mut behavior[name], "policies", policies);
        }
        set(&mut behavior["scaleUp"], "stabilizationWindowSeconds", 0);
    }
}

fn webhook(webhook: &mut Value) {
    set(webhook, "failurePolicy", "Fail");
    set(webhook, "matchPolicy", "Equivalent");
    set(webhook, "namespaceSelector", json!({}));
    set(webhook, "objectSelector", json!({}));
    set(webhook, "timeoutSeconds", 10);
    if let Some(service) = webhook
        .get_mut("clientConfig")
        .and_then(|client| member(client, "service"))
    {
        set(service, "port", 443);
    }
    items(webhook, "rules").for_each(|rule| set(rule, "scope", "*"));
}
