//! The types of k8s-openapi, with the feature of that name, are read like an author's own.
#![cfg(feature = "k8s-openapi")]

use k8s_openapi::api::core::v1::{Node, Service};
use pilothouse_plugin::testing::FakeCluster;
use pilothouse_plugin::{Kind, ListOptions, Resource};
use serde_json::json;

#[test]
fn types_of_the_crate_are_found_by_their_kind() {
    assert_eq!(Service::KIND, Kind::new("", "v1", "Service"));
    let fake = FakeCluster::new()
        .with(json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"ports": [{"port": 80}]},
        }))
        .with(json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
        }));
    let cluster = fake.cluster();
    let service = cluster.get::<Service>("shop", "web").unwrap().unwrap();
    assert_eq!(service.spec.unwrap().ports.unwrap()[0].port, 80);
    let nodes = cluster
        .list::<Node>(ListOptions::new().field(".status.addresses[].address", "10.0.0.1"))
        .unwrap();
    assert_eq!(nodes[0].metadata.name.as_deref(), Some("n"));
}
