//! Tests of the children of a Bundle.

use pilothouse_plugin::testing::{FakeCluster, Ownership};
use serde_json::{Value, json};

use crate::BundlePlugin;

fn bundle() -> Value {
    json!({
        "apiVersion": "bench.example.dev/v1", "kind": "Bundle",
        "metadata": {"name": "b-1", "namespace": "bench", "uid": "u", "generation": 1},
        "spec": {"payload": "words", "port": 8080, "image": "web:1"},
    })
}

#[test]
fn a_bundle_stands_for_three_children_and_is_ready() {
    let answer = FakeCluster::new().reconcile::<BundlePlugin>(bundle()).unwrap();
    assert_eq!(answer.objects(), ["ConfigMap b-1", "Service b-1", "Deployment b-1"]);
    assert!(answer.desired.iter().all(|child| child.ownership == Ownership::Owned));
    let labels = json!({"app": "b-1"});
    let metadata = json!({"name": "b-1", "namespace": "bench", "labels": labels});
    assert_eq!(
        *answer.object("ConfigMap", "b-1"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"payload": "words"}})
    );
    assert_eq!(
        *answer.object("Service", "b-1"),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {
            "type": "ClusterIP", "selector": labels, "ports": [{"port": 8080, "protocol": "TCP"}]}})
    );
    assert_eq!(
        *answer.object("Deployment", "b-1"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "web:1"}]}}}})
    );
    assert_eq!(answer.status, Some(json!({"ready": true})));
}
