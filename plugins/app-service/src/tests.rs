//! Behaviour of an AppService, row by row: the children, the ports, the status, and the refusals.

use pilothouse_plugin::Failure;
use pilothouse_plugin::testing::{Answer, FakeCluster, Ownership, describe};
use serde_json::{Value, json};

use crate::AppServicePlugin;

/// An AppService named `web` in `shop`.
fn app(spec: &Value) -> Value {
    json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "generation": 1},
        "spec": spec,
    })
}

fn with_ports(ports: &Value) -> Value {
    app(&json!({"size": 2, "image": "nginx:1.7.9", "ports": ports}))
}

fn reconcile(object: Value) -> Result<Answer, Failure> {
    FakeCluster::new().reconcile::<AppServicePlugin>(object)
}

fn container_ports(ports: &Value) -> Value {
    let answer = reconcile(with_ports(ports)).unwrap();
    answer.object("Deployment", "web")["spec"]["template"]["spec"]["containers"][0]["ports"].clone()
}

fn refusal(object: Value) -> String {
    match reconcile(object) {
        Err(Failure::Permanent(message)) => message,
        other => panic!("this was to be refused for good, and was answered with {other:?}"),
    }
}

fn refused_ports(ports: &Value) -> String {
    let message = refusal(with_ports(ports));
    message
        .strip_prefix("AppService shop/web: ")
        .expect("the message names the object")
        .to_owned()
}

/// The Deployment as it is in the cluster.
fn live_deployment(owner: &str, status: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop",
            "ownerReferences": [
                {"apiVersion": "kosmos.io/v1", "kind": "AppService", "name": "web", "uid": owner, "controller": true},
            ],
        },
        "spec": {"replicas": 7},
        "status": status,
    })
}

#[test]
fn the_sample_stands_for_a_deployment_and_a_node_port_service() {
    let yaml = include_str!("../../../deploy/samples/app-service.yaml");
    let mut sample: Value = serde_saphyr::from_str(yaml).unwrap();
    sample["metadata"]["namespace"] = json!("default");
    let answer = reconcile(sample).unwrap();
    let name = "example-appservice";
    assert_eq!(
        answer.objects(),
        [format!("Deployment {name}"), format!("Service {name}")]
    );
    assert!(
        answer
            .desired
            .iter()
            .all(|desired| desired.ownership == Ownership::Owned)
    );
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{
                    "name": name, "image": "nginx:1.29", "imagePullPolicy": "IfNotPresent",
                    "ports": [{"containerPort": 80, "protocol": "TCP"}],
                }]},
            },
        },
    });
    assert_eq!(*answer.object("Deployment", name), deployment);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "type": "NodePort", "selector": {"app": name},
            "ports": [{"port": 80, "targetPort": 80}],
        },
    });
    assert_eq!(*answer.object("Service", name), service);
}

#[test]
fn an_app_without_ports_has_neither_service_nor_container_ports() {
    for spec in [
        json!({"size": 0, "image": "a"}),
        json!({"size": 0, "image": "a", "ports": []}),
        json!({"size": 0, "image": "a", "ports": null}),
    ] {
        let answer = reconcile(app(&spec)).unwrap();
        assert_eq!(answer.objects(), ["Deployment web"]);
        let deployment = answer.object("Deployment", "web");
        assert_eq!(deployment["spec"]["replicas"], 0);
        let container = json!({"name": "web", "image": "a", "imagePullPolicy": "IfNotPresent"});
        assert_eq!(deployment["spec"]["template"]["spec"]["containers"], json!([container]));
    }
}

#[test]
fn ports_go_to_the_service_as_they_are_given() {
    let ports = json!([
        {"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"},
        {"name": "admin", "port": 8080, "nodePort": 31000},
        {"name": "dns", "port": 53, "protocol": "UDP", "targetPort": 5353},
    ]);
    let answer = reconcile(with_ports(&ports)).unwrap();
    assert_eq!(answer.object("Service", "web")["spec"]["ports"], ports);
}

#[test]
fn nothing_is_said_of_what_the_server_allocates() {
    let answer = reconcile(with_ports(&json!([{"port": 80}]))).unwrap();
    let service = answer.object("Service", "web");
    assert_eq!(service["spec"]["clusterIP"], Value::Null);
    assert_eq!(service["spec"]["ports"], json!([{"port": 80}]));
}

#[test]
fn the_container_port_is_the_numeric_target_or_the_port() {
    let ports = json!([{"name": "a", "port": 80, "targetPort": 8080}, {"name": "b", "port": 90}]);
    let expected = json!([
        {"containerPort": 8080, "protocol": "TCP"},
        {"containerPort": 90, "protocol": "TCP"},
    ]);
    assert_eq!(container_ports(&ports), expected);
}

#[test]
fn targets_that_kubernetes_takes_for_none_are_none() {
    for none in [json!(0), json!(""), json!(null)] {
        let ports = json!([{"port": 80, "targetPort": none}]);
        assert_eq!(
            container_ports(&ports),
            json!([{"containerPort": 80, "protocol": "TCP"}]),
            "{none}"
        );
    }
}

#[test]
fn two_ports_with_the_same_target_share_one_container_port() {
    let ports = json!([
        {"name": "a", "port": 80, "targetPort": 8080},
        {"name": "b", "port": 81, "targetPort": 8080},
        {"name": "c", "port": 8080},
    ]);
    assert_eq!(
        container_ports(&ports),
        json!([{"containerPort": 8080, "protocol": "TCP"}])
    );
}

#[test]
fn the_same_number_over_tcp_and_udp_is_two_container_ports() {
    let ports = json!([
        {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
        {"name": "dns-udp", "port": 53, "protocol": "UDP"},
        {"name": "dns-sctp", "port": 53, "protocol": "SCTP"},
    ]);
    let expected = json!([
        {"containerPort": 53, "protocol": "TCP"},
        {"containerPort": 53, "protocol": "UDP"},
        {"containerPort": 53, "protocol": "SCTP"},
    ]);
    assert_eq!(container_ports(&ports), expected);
}

#[test]
fn a_named_target_becomes_a_named_container_port() {
    let ports = json!([
        {"name": "a", "port": 8080, "targetPort": "web"},
        {"name": "b", "port": 8081, "targetPort": "web"},
        {"name": "c", "port": 9090, "targetPort": "admin"},
    ]);
    let expected = json!([
        {"name": "web", "containerPort": 8080, "protocol": "TCP"},
        {"name": "admin", "containerPort": 9090, "protocol": "TCP"},
    ]);
    assert_eq!(container_ports(&ports), expected);
}

#[test]
fn a_name_and_a_number_of_the_same_port_share_it() {
    let shared = json!([{"name": "web", "containerPort": 80, "protocol": "TCP"}]);
    let number_first =
        json!([{"name": "a", "port": 8080, "targetPort": 80}, {"name": "b", "port": 80, "targetPort": "web"}]);
    assert_eq!(container_ports(&number_first), shared);
    let name_first =
        json!([{"name": "b", "port": 80, "targetPort": "web"}, {"name": "a", "port": 8080, "targetPort": 80}]);
    assert_eq!(container_ports(&name_first), shared);
}

#[test]
fn the_status_is_that_of_the_deployment() {
    let status = json!({
        "observedGeneration": 4, "replicas": 2, "readyReplicas": 1, "availableReplicas": 1, "unavailableReplicas": 1,
        "updatedReplicas": 2, "somethingNew": {"of": "a later Kubernetes"},
        "conditions": [{
            "type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable", "message": "one is missing",
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        }],
    });
    let cluster = FakeCluster::new().with(live_deployment("u-1", &status));
    let answer = cluster.reconcile::<AppServicePlugin>(with_ports(&json!([]))).unwrap();
    assert_eq!(answer.status, Some(status));
    assert!(
        answer.conditions.is_empty(),
        "the host keeps Reconciled, the Deployment the others"
    );
    let reads: Vec<_> = cluster.reads().iter().map(ToString::to_string).collect();
    assert_eq!(reads, ["get apps/v1 Deployment shop/web"]);
}

#[test]
fn there_is_no_status_before_the_deployment_has_one() {
    assert_eq!(reconcile(with_ports(&json!([]))).unwrap().status, None);
    let cluster = FakeCluster::new().with(live_deployment("u-1", &Value::Null));
    assert_eq!(
        cluster
            .reconcile::<AppServicePlugin>(with_ports(&json!([])))
            .unwrap()
            .status,
        None
    );
}

#[test]
fn the_status_of_a_foreign_deployment_is_not_ours() {
    let cluster = FakeCluster::new().with(live_deployment("u-2", &json!({"readyReplicas": 7})));
    let answer = cluster.reconcile::<AppServicePlugin>(with_ports(&json!([]))).unwrap();
    assert_eq!(answer.status, None);
}

#[test]
fn a_changed_spec_changes_both_children() {
    let before = reconcile(with_ports(&json!([{"port": 80}]))).unwrap();
    let changed = app(&json!({"size": 3, "image": "nginx:1.27", "ports": [{"port": 81}]}));
    let after = reconcile(changed).unwrap();
    for (kind, path, old, new) in [
        ("Deployment", "/spec/replicas", json!(2), json!(3)),
        (
            "Deployment",
            "/spec/template/spec/containers/0/image",
            json!("nginx:1.7.9"),
            json!("nginx:1.27"),
        ),
        (
            "Deployment",
            "/spec/template/spec/containers/0/ports/0/containerPort",
            json!(80),
            json!(81),
        ),
        ("Service", "/spec/ports/0/port", json!(80), json!(81)),
    ] {
        assert_eq!(before.object(kind, "web").pointer(path), Some(&old), "{path}");
        assert_eq!(after.object(kind, "web").pointer(path), Some(&new), "{path}");
    }
}

#[test]
fn a_spec_of_another_form_is_refused_by_the_name_of_the_field() {
    for (spec, cause) in [
        (json!({"image": "a"}), "spec: missing field `size`"),
        (json!({"size": 1}), "spec: missing field `image`"),
        (
            json!({"size": "two", "image": "a"}),
            "spec.size: invalid type: string \"two\", expected i32",
        ),
        (
            json!({"size": 1, "image": "a", "ports": 80}),
            "spec.ports: invalid type: integer `80`, expected a sequence",
        ),
        (
            json!({"size": 1, "image": "a", "ports": [{"port": 80}, {"port": 70000}]}),
            "spec.ports[1].port: invalid value: integer `70000`, expected u16",
        ),
        (
            json!({"size": 1, "image": "a", "ports": [{"port": 80, "protocol": "ICMP"}]}),
            "spec.ports[0].protocol: unknown variant `ICMP`, expected one of `TCP`, `UDP`, `SCTP`",
        ),
        (
            json!({"size": 1, "image": "a", "ports": [{"port": 80, "targetPort": 1.5}]}),
            "spec.ports[0].targetPort: invalid type: floating point `1.5`, expected a number or a string",
        ),
    ] {
        let expected = format!("AppService shop/web cannot be read: {cause}; correct the field");
        assert_eq!(refusal(app(&spec)), expected);
    }
}

#[test]
fn one_target_name_for_two_protocols_is_refused() {
    let ports = json!([
        {"name": "a", "port": 53, "targetPort": "dns"},
        {"name": "b", "port": 53, "targetPort": "dns", "protocol": "UDP"},
    ]);
    assert_eq!(
        refused_ports(&ports),
        "spec.ports[1].targetPort is \"dns\" with UDP, which stands for TCP already: a container has a port's name once; \
         use another name or a number"
    );
}

#[test]
fn the_manifest_declares_what_is_touched_and_brings_the_crd() {
    let manifest = describe::<AppServicePlugin>(None).unwrap();
    assert_eq!(manifest["name"], "app-service");
    let controller = json!([{
        "name": "app-service",
        "kind": {"group": "kosmos.io", "version": "v1", "kind": "AppService"},
        "fields": [".spec"],
        "touches": [
            {
                "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                "access": ["owned", "read"],
                "fields": [".status"],
            },
            {"kind": {"group": "", "version": "v1", "kind": "Service"}, "access": ["owned"]},
        ],
    }]);
    assert_eq!(manifest["controllers"], controller);
    let definition: Value = serde_saphyr::from_str(manifest["crds"][0].as_str().unwrap()).unwrap();
    assert_eq!(definition["metadata"]["name"], "appservices.kosmos.io");
}

#[test]
fn a_configuration_is_refused_because_there_is_none() {
    let refused = describe::<AppServicePlugin>(Some(&json!({"replicas": 3}))).unwrap_err();
    assert!(refused.starts_with("unknown field `replicas`"), "{refused}");
}
