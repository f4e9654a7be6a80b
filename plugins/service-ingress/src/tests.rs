//! Behaviour of annotated Services, and the effects of the configuration.

use pilothouse_plugin::testing::{FakeCluster, Ownership, describe};
use serde_json::{Value, json};

use crate::{ANNOTATION, ServiceIngressPlugin};

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "annotations": {ANNOTATION: ""}},
        "spec": {"ports": [{"port": 80}]},
    })
}

fn ingress(host: &str, port: u16) -> Value {
    let backend = json!({"service": {"name": "web", "port": {"number": port}}});
    let paths = json!([{"path": "/", "pathType": "Prefix", "backend": backend}]);
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"rules": [{"host": host, "http": {"paths": paths}}]},
    })
}

#[test]
fn an_annotated_service_gets_an_ingress_and_nothing_else() {
    let cluster = FakeCluster::new();
    let answer = cluster.reconcile::<ServiceIngressPlugin>(service()).unwrap();
    assert_eq!(answer.objects(), ["Ingress web"]);
    assert_eq!(answer.desired[0].ownership, Ownership::Owned);
    assert_eq!(*answer.object("Ingress", "web"), ingress("example.com", 80));
    assert!(answer.status.is_none() && answer.conditions.is_empty() && answer.events.is_empty());
    assert!(cluster.reads().is_empty());
}

#[test]
fn the_sample_is_annotated() {
    let yaml = include_str!("../../../deploy/samples/service-ingress.yaml");
    let mut sample: Value = serde_saphyr::from_str(yaml).unwrap();
    assert!(sample["metadata"]["annotations"][ANNOTATION].is_string());
    sample["metadata"]["namespace"] = json!("default");
    let answer = FakeCluster::new().reconcile::<ServiceIngressPlugin>(sample).unwrap();
    assert_eq!(answer.objects(), ["Ingress example-service"]);
}

#[test]
fn host_and_port_are_the_configurations() {
    let cluster = FakeCluster::new().configuration(json!({"host": "*.shop.test", "servicePort": 8080}));
    let answer = cluster.reconcile::<ServiceIngressPlugin>(service()).unwrap();
    assert_eq!(*answer.object("Ingress", "web"), ingress("*.shop.test", 8080));
}

#[test]
fn a_malformed_configuration_is_refused_by_field() {
    for (config, message) in [
        (json!({"hosts": []}), "unknown field `hosts`"),
        (json!({"host": 1}), "host: invalid type: integer `1`"),
        (json!({"servicePort": 0}), "servicePort: invalid value: integer `0`"),
        (
            json!({"servicePort": 65536}),
            "servicePort: invalid value: integer `65536`",
        ),
        (
            json!({"servicePort": "http"}),
            "servicePort: invalid type: string \"http\"",
        ),
        (json!({"host": ""}), "host: \"\" is no DNS name"),
        (json!({"host": "Example.com"}), "host: \"Example.com\" is no DNS name"),
        (json!({"host": "a..b"}), "host: \"a..b\" is no DNS name"),
        (json!({"host": "a; b"}), "host: \"a; b\" is no DNS name"),
        (json!({"host": "a.*.b"}), "host: \"a.*.b\" is no DNS name"),
        (json!({"host": "x".repeat(64)}), "host: \"xxx"),
        (json!({"host": vec!["x"; 128].join(".")}), "host: \"x.x.x"),
    ] {
        let refused = describe::<ServiceIngressPlugin>(Some(&config)).unwrap_err();
        assert!(refused.starts_with(message), "{config}: {refused}");
    }
}

#[test]
fn only_annotated_services_are_asked_for_and_no_field_of_them() {
    let manifest = describe::<ServiceIngressPlugin>(None).unwrap();
    let controller = json!([{
        "name": "service-ingress",
        "kind": {"group": "", "version": "v1", "kind": "Service"},
        "filter": {"annotation": "ingress/http"},
        "touches": [{"kind": {"group": "networking.k8s.io", "version": "v1", "kind": "Ingress"}, "access": ["owned"]}],
    }]);
    assert_eq!(manifest["controllers"], controller);
    assert_eq!(
        manifest["configurationSchema"]["properties"]["host"]["default"],
        "example.com"
    );
    assert_eq!(
        manifest["configurationSchema"]["properties"]["servicePort"]["default"],
        80
    );
    assert_eq!(manifest["crds"], Value::Null);
}

mod isolated {
    use pilothouse_testkit::isolation::Isolated;
    use serde_json::json;

    /// Component as built by `cargo xtask plugins`.
    const COMPONENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/plugins/service-ingress.wasm");

    #[test]
    fn the_component_answers_as_the_crate_does() {
        let plugin = Isolated::load(COMPONENT).unwrap();
        let reconciled = plugin.reconcile(&super::service()).unwrap();
        assert_eq!(reconciled.titles(), ["Ingress shop/web"]);
        assert_eq!(
            reconciled.object("Ingress", "web").unwrap()["spec"],
            super::ingress("example.com", 80)["spec"]
        );
        assert!(reconciled.reads.is_empty() && reconciled.log.is_empty());
    }

    #[test]
    fn the_component_refuses_a_configuration_by_its_field() {
        let refused = Isolated::load(COMPONENT).unwrap().configured(json!({"host": "a b"}));
        let refused = refused.err().expect("it is refused").to_string();
        assert!(refused.contains("host: \"a b\" is no DNS name"), "{refused}");
    }
}
