//! The label of an EcsBinding, and its condition `Bound`.

use pilothouse_plugin::ConditionStatus;
use pilothouse_plugin::testing::{Answer, FakeCluster, Ownership, describe};
use serde_json::{Value, json};

use crate::EcsBindingPlugin;

fn binding(innerip: &str) -> Value {
    json!({
        "apiVersion": "hopegi.com/v1", "kind": "EcsBinding",
        "metadata": {"name": "web-1", "uid": "u-1", "labels": {"team": "shop"}},
        "spec": {"id": "i-1", "name": "web", "nodename": "node-1", "innerip": innerip},
    })
}

fn node(addresses: &[&str]) -> Value {
    let addresses: Vec<_> = addresses
        .iter()
        .map(|address| json!({"type": "InternalIP", "address": address}))
        .collect();
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"},
        "status": {"addresses": addresses, "conditions": [{"type": "Ready", "lastHeartbeatTime": "now"}]},
    })
}

/// Returns status and reason of the condition Bound, and its message.
fn bound(answer: &Answer) -> (ConditionStatus, &str, &str) {
    let condition = answer.condition("Bound").expect("it is always said");
    (condition.status, &condition.reason, &condition.message)
}

#[test]
fn a_binding_is_given_the_label_of_the_cluster_and_nothing_else() {
    let answer = FakeCluster::new()
        .reconcile::<EcsBindingPlugin>(binding("10.0.0.1"))
        .unwrap();
    let label = json!({
        "apiVersion": "hopegi.com/v1", "kind": "EcsBinding",
        "metadata": {"name": "web-1", "labels": {"hopegi.com/cluster": "k8s-cluster"}},
    });
    assert_eq!(*answer.object("EcsBinding", "web-1"), label);
    assert_eq!(answer.desired.len(), 1);
    assert_eq!(answer.desired[0].ownership, Ownership::Contributed);
}

#[test]
fn the_clusters_name_is_the_configurations() {
    let cluster = FakeCluster::new().configuration(json!({"clusterName": "Prod_1"}));
    let answer = cluster.reconcile::<EcsBindingPlugin>(binding("10.0.0.1")).unwrap();
    let labels = &answer.object("EcsBinding", "web-1")["metadata"]["labels"];
    assert_eq!(*labels, json!({"hopegi.com/cluster": "Prod_1"}));
}

#[test]
fn it_is_bound_when_the_node_has_the_address_among_others() {
    let cluster = FakeCluster::new().with(node(&["node-1", "10.0.0.1", "fd00::1"]));
    for innerip in ["10.0.0.1", "fd00::1", "FD00:0:0:0::1"] {
        let answer = cluster.reconcile::<EcsBindingPlugin>(binding(innerip)).unwrap();
        let message = format!("Node node-1 has the address {innerip}");
        assert_eq!(
            bound(&answer),
            (ConditionStatus::True, "AddressFound", message.as_str())
        );
    }
    assert_eq!(cluster.reads()[0].to_string(), "get v1 Node node-1");
}

#[test]
fn it_is_not_bound_without_the_node() {
    let answer = FakeCluster::new()
        .reconcile::<EcsBindingPlugin>(binding("10.0.0.1"))
        .unwrap();
    let message = "there is no Node node-1; correct spec.nodename, or wait for the node to join";
    assert_eq!(bound(&answer), (ConditionStatus::False, "NodeNotFound", message));
}

#[test]
fn it_is_not_bound_when_the_node_has_other_addresses() {
    let many: Vec<String> = (1..=10).map(|last| format!("10.0.1.{last}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let eight = many[..8].join(", ");
    for (addresses, has) in [
        (vec![], "no addresses".to_owned()),
        (vec!["node-1", "10.0.0.10"], "node-1, 10.0.0.10".to_owned()),
        (many.clone(), format!("{eight} and 2 more")),
    ] {
        let cluster = FakeCluster::new().with(node(&addresses));
        let answer = cluster.reconcile::<EcsBindingPlugin>(binding("10.0.0.1")).unwrap();
        let message = format!("Node node-1 has {has}, and not 10.0.0.1; correct spec.innerip or spec.nodename");
        assert_eq!(
            bound(&answer),
            (ConditionStatus::False, "AddressMismatch", message.as_str())
        );
    }
}

#[test]
fn a_node_without_a_status_has_no_addresses() {
    let new = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}});
    let answer = FakeCluster::new()
        .with(new)
        .reconcile::<EcsBindingPlugin>(binding("10.0.0.1"))
        .unwrap();
    assert_eq!(bound(&answer).1, "AddressMismatch");
}

#[test]
fn the_sample_can_be_read() {
    let yaml = include_str!("../../../deploy/samples/ecs-binding.yaml");
    let sample: Value = serde_saphyr::from_str(yaml).unwrap();
    let answer = FakeCluster::new().reconcile::<EcsBindingPlugin>(sample).unwrap();
    assert_eq!(answer.objects(), ["EcsBinding example-ecs"]);
}

#[test]
fn a_malformed_configuration_is_refused_by_field() {
    for (config, message) in [
        (json!({"cluster": "a"}), "unknown field `cluster`"),
        (json!({"clusterName": 1}), "clusterName: invalid type: integer `1`"),
        (
            json!({"clusterName": ""}),
            "clusterName: \"\" cannot be a label's value",
        ),
        (json!({"clusterName": "a b"}), "clusterName: \"a b\" cannot be"),
        (json!({"clusterName": "-a"}), "clusterName: \"-a\" cannot be"),
        (json!({"clusterName": "é"}), "clusterName: \"é\" cannot be"),
        (json!({"clusterName": "x".repeat(64)}), "clusterName: \"xxx"),
    ] {
        let refused = describe::<EcsBindingPlugin>(Some(&config)).unwrap_err();
        assert!(refused.starts_with(message), "{config}: {refused}");
    }
}

#[test]
fn of_nodes_only_the_addresses_are_asked_for() {
    let manifest = describe::<EcsBindingPlugin>(None).unwrap();
    let controller = json!([{
        "name": "ecs-binding",
        "kind": {"group": "hopegi.com", "version": "v1", "kind": "EcsBinding"},
        "fields": [".spec"],
        "touches": [
            {"kind": {"group": "hopegi.com", "version": "v1", "kind": "EcsBinding"}, "scope": "Any", "access": ["contributed"]},
            {
                "kind": {"group": "", "version": "v1", "kind": "Node"},
                "scope": "Any",
                "access": ["read"],
                "fields": [".status.addresses"],
            },
        ],
    }]);
    assert_eq!(manifest["controllers"], controller);
    let definition: Value = serde_saphyr::from_str(manifest["crds"][0].as_str().unwrap()).unwrap();
    assert_eq!(definition["metadata"]["name"], "ecsbinding.hopegi.com");
    assert_eq!(definition["spec"]["scope"], "Cluster");
    let names = json!({"kind": "EcsBinding", "plural": "ecsbinding", "singular": "ecsbinding", "shortNames": ["ecsb"]});
    assert_eq!(definition["spec"]["names"], names);
    let columns = definition["spec"]["versions"][0]["additionalPrinterColumns"].as_array();
    let columns: Vec<_> = columns.unwrap().iter().map(|column| &column["name"]).collect();
    assert_eq!(columns, ["Age", "NodeName", "InnerIp"]);
}

mod isolated {
    use pilothouse_core::reads::dependencies::read::Read;
    use pilothouse_core::{Kind, Name};
    use pilothouse_testkit::isolation::Isolated;
    use serde_json::json;

    /// Component as built by `cargo xtask plugins`.
    const COMPONENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/plugins/ecs-binding.wasm");

    #[test]
    fn the_component_labels_and_is_bound_by_the_addresses_alone() {
        let plugin = Isolated::load(COMPONENT).unwrap();
        let plugin = plugin.with(super::node(&["10.0.0.1"])).unwrap();
        let reconciled = plugin.reconcile(&super::binding("10.0.0.1")).unwrap();
        let label = &reconciled.contribution("EcsBinding", "web-1").unwrap()["metadata"]["labels"];
        assert_eq!(*label, json!({"hopegi.com/cluster": "k8s-cluster"}));
        assert_eq!(reconciled.condition("Bound").unwrap().reason, "AddressFound");
        let node = Read::Get(Kind::new("", "v1", "Node").into(), Name::new(None, "node-1"));
        assert_eq!(reconciled.reads.iter().collect::<Vec<_>>(), [&node]);
    }

    #[test]
    fn the_component_refuses_a_configuration_by_its_field() {
        let refused = Isolated::load(COMPONENT)
            .unwrap()
            .configured(json!({"clusterName": ""}));
        let refused = refused.err().expect("it is refused").to_string();
        assert!(
            refused.contains("clusterName: \"\" cannot be a label's value"),
            "{refused}"
        );
    }
}
