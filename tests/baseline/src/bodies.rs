//! Builds the requests: a Bundle and its four writes. `tests/guests/bundle` wants the same objects.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

/// The collection of all Bundles.
pub const BUNDLES: &str = "/apis/bench.example.dev/v1/bundles";

/// The collection of all Hostiles.
pub const HOSTILES: &str = "/apis/hostile.test.dev/v1/hostiles";

const NAMESPACE: &str = "default";

/// Needed part of a Bundle; other objects are read as one too, for their number.
#[derive(Debug, Deserialize)]
pub struct Bundle {
    metadata: Metadata,
    #[serde(default)]
    spec: Value,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    name: String,
    uid: String,
}

/// One request.
#[derive(Debug)]
pub struct Write {
    pub method: Method,
    pub path: String,
    pub kind: &'static str,
    pub body: Vec<u8>,
}

/// The request that makes a Bundle, of about a kilobyte.
pub fn make(number: usize) -> Write {
    let body = json!({
        "apiVersion": "bench.example.dev/v1", "kind": "Bundle",
        "metadata": {"name": format!("b-{number}"), "namespace": NAMESPACE},
        "spec": {"payload": "payload ".repeat(75), "port": 8080, "image": "registry.example.dev/web:1"},
    });
    Write {
        method: Method::POST,
        path: format!("/apis/bench.example.dev/v1/namespaces/{NAMESPACE}/bundles"),
        kind: "application/json",
        body: body.to_string().into_bytes(),
    }
}

/// Returns the writes for a Bundle, in order.
pub fn writes(bundle: &Bundle) -> [Write; 4] {
    let Bundle { metadata, spec } = bundle;
    let Metadata { name, uid } = metadata;
    let owner = json!({
        "apiVersion": "bench.example.dev/v1", "kind": "Bundle", "name": name, "uid": uid, "controller": true,
    });
    let labels = json!({"app": name});
    let child = json!({"name": name, "namespace": NAMESPACE, "labels": labels, "ownerReferences": [owner]});
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": child, "data": {"payload": spec["payload"]},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": child,
        "spec": {"type": "ClusterIP", "selector": labels, "ports": [{"port": spec["port"], "protocol": "TCP"}]},
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": child,
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": spec["image"]}]},
            },
        },
    });
    let status = json!({
        "apiVersion": "bench.example.dev/v1", "kind": "Bundle",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid},
        "status": {"ready": true, "observedGeneration": 1, "conditions": [{
            "type": "Reconciled", "status": "True", "reason": "Success", "message": "all is as desired",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        }]},
    });
    let at = |collection: &str, subresource: &str| format!("{collection}/{name}{subresource}");
    [
        apply(&at("/api/v1/namespaces/default/configmaps", ""), &config_map),
        apply(&at("/api/v1/namespaces/default/services", ""), &service),
        apply(&at("/apis/apps/v1/namespaces/default/deployments", ""), &deployment),
        apply(
            &at("/apis/bench.example.dev/v1/namespaces/default/bundles", "/status"),
            &status,
        ),
    ]
}

/// Returns the writes for a Hostile that behaves, in order.
pub fn writes_of_hostile(hostile: &Bundle) -> [Write; 2] {
    let Bundle { metadata, spec } = hostile;
    let Metadata { name, uid } = metadata;
    let owner = json!({
        "apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "name": name, "uid": uid, "controller": true,
    });
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": NAMESPACE, "ownerReferences": [owner]}, "data": {"text": spec["text"]},
    });
    let condition = |name: &str| {
        json!({
            "type": name, "status": "True", "reason": "Success", "message": "all is as desired",
            "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": 1,
        })
    };
    let status = json!({
        "apiVersion": "hostile.test.dev/v1", "kind": "Hostile",
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": uid},
        "status": {
            "text": spec["text"], "observedGeneration": 1, "conditions": [condition("Behaved"), condition("Reconciled")],
        },
    });
    let hostiles = "/apis/hostile.test.dev/v1/namespaces/default/hostiles";
    [
        apply(&format!("/api/v1/namespaces/default/configmaps/{name}"), &config_map),
        apply(&format!("{hostiles}/{name}/status"), &status),
    ]
}

fn apply(path: &str, body: &Value) -> Write {
    Write {
        method: Method::PATCH,
        path: format!("{path}?fieldManager=baseline&force=true"),
        kind: "application/apply-patch+yaml",
        body: body.to_string().into_bytes(),
    }
}
