//! The port that a StreamIngress gets, or the reason why it gets none: row by row.

use pilothouse_plugin::ConditionStatus;
use pilothouse_plugin::testing::{Answer, FakeCluster, Ownership, describe};
use serde_json::{Value, json};

use crate::StreamIngressPlugin;

/// A StreamIngress in `shop` that was made in this second.
fn stream(name: &str, second: u32, spec: &Value) -> Value {
    json!({
        "apiVersion": "nginx-stream.jeffthecoder.xyz/v1beta1", "kind": "StreamIngress",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-of-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z"),
        },
        "spec": spec,
    })
}

fn postgres() -> Value {
    stream(
        "db",
        5,
        &json!({"listen": 5432, "protocol": "TCP", "upstream": {"service": "postgres", "port": 5433}, "is_service": true}),
    )
}

fn service(namespace: &str, name: &str, ports: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
        "spec": {"ports": ports},
    })
}

fn config_map(namespace: &str, name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace},
        "data": {"9": "by/hand:9"},
    })
}

/// An ingress-nginx as its chart makes it, and the Service that `postgres` leads to.
fn cluster() -> FakeCluster {
    FakeCluster::new()
        .with(config_map("ingress-nginx", "tcp-services"))
        .with(config_map("ingress-nginx", "udp-services"))
        .with(service(
            "ingress-nginx",
            "ingress-nginx-controller",
            &json!([{"name": "http", "port": 80, "protocol": "TCP"}]),
        ))
        .with(service("shop", "postgres", &json!([{"port": 5433, "protocol": "TCP"}])))
}

fn reconcile(cluster: &FakeCluster, object: Value) -> Answer {
    cluster.reconcile::<StreamIngressPlugin>(object).unwrap()
}

/// Returns status and reason of the condition Accepted, and its message.
fn accepted(answer: &Answer) -> (ConditionStatus, &str, &str) {
    let condition = answer.condition("Accepted").expect("it is always said");
    (condition.status, &condition.reason, &condition.message)
}

/// Checks that a StreamIngress gets nothing, with this reason and message.
fn assert_refused(cluster: &FakeCluster, object: Value, reason: &str, message: &str) {
    let answer = reconcile(cluster, object);
    assert_eq!(accepted(&answer), (ConditionStatus::False, reason, message));
    assert!(answer.desired.is_empty(), "nothing is written");
}

#[test]
fn a_port_becomes_a_config_map_entry_and_a_service_port() {
    let answer = reconcile(&cluster(), postgres());
    let config_map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "tcp-services", "namespace": "ingress-nginx"},
        "data": {"5432": "shop/postgres:5433"},
    });
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "ingress-nginx-controller", "namespace": "ingress-nginx"},
        "spec": {"ports": [{"name": "tcp-5432", "protocol": "TCP", "port": 5432, "targetPort": 5432}]},
    });
    assert_eq!(*answer.object("ConfigMap", "tcp-services"), config_map);
    assert_eq!(*answer.object("Service", "ingress-nginx-controller"), service);
    assert!(
        answer
            .desired
            .iter()
            .all(|desired| desired.ownership == Ownership::Contributed)
    );
    let message = "TCP 5432 is held for shop/postgres:5433";
    assert_eq!(accepted(&answer), (ConditionStatus::True, "Accepted", message));
}

#[test]
fn a_udp_port_goes_to_the_other_config_map() {
    let dns = stream(
        "dns",
        0,
        &json!({"listen": 53, "protocol": "UDP", "upstream": {"namespace": "kube-system", "service": "dns", "port": 53}}),
    );
    let ports = json!([{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]);
    let mut service = service("kube-system", "dns", &ports);
    service["metadata"]["annotations"] = json!({"nginx-stream.jeffthecoder.xyz/allowed-from": "web, shop"});
    let answer = reconcile(&cluster().with(service), dns);
    assert_eq!(
        answer.object("ConfigMap", "udp-services")["data"],
        json!({"53": "kube-system/dns:53"})
    );
    assert_eq!(
        answer.object("Service", "ingress-nginx-controller")["spec"]["ports"],
        json!([{"name": "udp-53", "protocol": "UDP", "port": 53, "targetPort": 53}])
    );
}

#[test]
fn what_may_be_left_out_has_its_default() {
    let answer = reconcile(
        &cluster(),
        stream(
            "db",
            0,
            &json!({"listen": 1, "upstream": {"service": "postgres", "port": 5433}}),
        ),
    );
    assert_eq!(
        answer.object("ConfigMap", "tcp-services")["data"],
        json!({"1": "shop/postgres:5433"})
    );
    let missing = stream("db", 0, &json!({"listen": 1, "upstream": {"service": "no", "port": 1}}));
    let message = "TCP 1 is held for shop/no:1, but there is no Service shop/no; correct spec.upstream, or create it";
    assert_refused(&cluster(), missing, "UpstreamNotFound", message);
}

#[test]
fn the_older_one_holds_a_port_and_the_others_say_who() {
    let held = |by: &str| {
        format!(
            "TCP 5432 is held by StreamIngress shop/{by}, which is older; choose another spec.listen, or wait for it to go"
        )
    };
    let rival = |name: &str, second: u32| stream(name, second, &postgres()["spec"]);
    let older = cluster().with(postgres()).with(rival("b", 4)).with(rival("c", 3));
    assert_refused(&older, postgres(), "PortConflict", &held("c"));
    let younger = cluster().with(postgres()).with(rival("b", 6));
    assert_eq!(accepted(&reconcile(&younger, postgres())).0, ConditionStatus::True);
    // In the same second, the uid decides: that of `a` comes before that of `db`.
    let at_once = cluster().with(rival("a", 5)).with(rival("z", 5));
    assert_refused(&at_once, postgres(), "PortConflict", &held("a"));
}

/// A StreamIngress of the namespace `evil` that is older than `postgres` and wants its port.
fn older_rival(upstream: &Value) -> Value {
    let mut rival = stream("rival", 0, &json!({"listen": 5432, "upstream": upstream}));
    rival["metadata"]["namespace"] = json!("evil");
    rival
}

/// A StreamIngress with this condition.
fn saying(mut stream: Value, status: &str, message: &str) -> Value {
    stream["status"] = json!({"conditions": [{"type": "Accepted", "status": status, "message": message}]});
    stream
}

/// The cluster, with an entry in the ConfigMap.
fn with_entry(entry: &str) -> FakeCluster {
    let mut map = config_map("ingress-nginx", "tcp-services");
    map["data"]["5432"] = json!(entry);
    cluster().with(map).with(service("evil", "db", &json!([{"port": 1}])))
}

const OWN: &str = "TCP 5432 is held for shop/postgres:5433";
const FORGED: &str = "TCP 5432 is held for evil/db:1";

#[test]
fn the_entrys_holder_keeps_the_port_despite_age_and_status() {
    let rival = older_rival(&json!({"service": "db", "port": 1}));
    let held = "TCP 5432 is held by StreamIngress shop/db, which had it first; choose another spec.listen, or wait for it to go";
    for rival in [rival.clone(), saying(rival, "True", FORGED)] {
        let cluster = with_entry("shop/postgres:5433").with(rival.clone()).with(postgres());
        assert_eq!(accepted(&reconcile(&cluster, postgres())).0, ConditionStatus::True);
        assert_refused(&cluster, rival, "PortConflict", held);
    }
    let nobodys = with_entry("by/hand:1").with(older_rival(&json!({"service": "db", "port": 1})));
    assert_eq!(
        accepted(&reconcile(&nobodys, postgres())).1,
        "PortConflict",
        "age decides"
    );
}

#[test]
fn a_holder_without_an_entry_keeps_the_port_by_its_condition() {
    let rival = older_rival(&json!({"service": "db", "port": 1}));
    let away = saying(
        postgres(),
        "False",
        &format!("{OWN}, but there is no Service shop/postgres"),
    );
    let empty = || cluster().with(service("evil", "db", &json!([{"port": 1}])));
    let cluster = empty().with(rival.clone()).with(away.clone());
    assert_eq!(accepted(&reconcile(&cluster, away)).0, ConditionStatus::True);
    assert_eq!(accepted(&reconcile(&cluster, rival.clone())).1, "PortConflict");
    for other in [
        "TCP 5431 is held for shop/postgres:5433",
        "UDP 5432 is held for shop/postgres:5433",
        "TCP 5432 is held by StreamIngress a/b",
    ] {
        let says_otherwise = saying(postgres(), "True", other);
        let cluster = empty().with(rival.clone()).with(says_otherwise.clone());
        assert_eq!(
            accepted(&reconcile(&cluster, says_otherwise)).1,
            "PortConflict",
            "{other}"
        );
    }
}

#[test]
fn a_holder_that_is_led_elsewhere_keeps_the_port() {
    let rival = saying(older_rival(&json!({"service": "db", "port": 1})), "True", FORGED);
    let moved = saying(postgres(), "True", "TCP 5432 is held for shop/before:1");
    let cluster = with_entry("shop/before:1").with(rival.clone()).with(moved.clone());
    assert_eq!(accepted(&reconcile(&cluster, moved)).0, ConditionStatus::True);
    assert_eq!(accepted(&reconcile(&cluster, rival)).1, "PortConflict");
}

#[test]
fn a_service_of_another_namespace_has_to_permit_it() {
    let across = older_rival(&json!({"namespace": "shop", "service": "postgres", "port": 5433}));
    let message = "Service shop/postgres is in another namespace, which does not permit it; annotate that Service with \
                   nginx-stream.jeffthecoder.xyz/allowed-from: evil, or name shop in upstreamNamespaces of the plugin's configuration";
    assert_refused(&cluster(), across.clone(), "RefNotPermitted", message);
    let mut unchecked = across.clone();
    unchecked["spec"]["is_service"] = json!(false);
    assert_refused(&cluster(), unchecked, "RefNotPermitted", message);
    let annotated = |from: &str| {
        let mut service = service("shop", "postgres", &json!([{"port": 5433}]));
        service["metadata"]["annotations"] = json!({"nginx-stream.jeffthecoder.xyz/allowed-from": from});
        cluster().with(service)
    };
    for from in ["", "evi", "evil2", "shop"] {
        assert_eq!(
            accepted(&reconcile(&annotated(from), across.clone())).1,
            "RefNotPermitted",
            "{from}"
        );
    }
    for from in ["evil", "a, evil", "*"] {
        assert_eq!(
            accepted(&reconcile(&annotated(from), across.clone())).0,
            ConditionStatus::True,
            "{from}"
        );
    }
    for (namespaces, reason) in [
        (json!(["shop"]), "Accepted"),
        (json!(["*"]), "Accepted"),
        (json!(["evil"]), "RefNotPermitted"),
    ] {
        let configured = cluster().configuration(json!({"upstreamNamespaces": namespaces}));
        assert_eq!(accepted(&reconcile(&configured, across.clone())).1, reason);
    }
    // It holds nothing: not by its age, and not by an entry that leads where it would like to lead.
    for cluster in [cluster(), with_entry("shop/postgres:5433")] {
        let cluster = cluster.with(across.clone()).with(postgres());
        assert_eq!(accepted(&reconcile(&cluster, postgres())).0, ConditionStatus::True);
    }
}

#[test]
fn who_is_going_or_wants_another_port_stands_in_nobodys_way() {
    let mut going = stream("going", 0, &postgres()["spec"]);
    going["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:01:00Z");
    let other = |name: &str, listen: u16, protocol: &str| {
        let upstream = json!({"service": "postgres", "port": 5433});
        stream(
            name,
            0,
            &json!({"listen": listen, "protocol": protocol, "upstream": upstream}),
        )
    };
    let cluster = cluster()
        .with(going)
        .with(other("number", 5431, "TCP"))
        .with(other("protocol", 5432, "UDP"))
        .with(other("odd", 5432, "SCTP"));
    assert_eq!(accepted(&reconcile(&cluster, postgres())).0, ConditionStatus::True);
}

#[test]
fn a_holder_whose_upstream_is_missing_keeps_its_port() {
    let upstream = json!({"service": "gone", "port": 1});
    let holder = stream(
        "holder",
        0,
        &json!({"listen": 5432, "protocol": "TCP", "upstream": upstream}),
    );
    let cluster = cluster().with(holder.clone());
    let message =
        "TCP 5432 is held for shop/gone:1, but there is no Service shop/gone; correct spec.upstream, or create it";
    assert_refused(&cluster, holder, "UpstreamNotFound", message);
    let answer = reconcile(&cluster, postgres());
    assert_eq!(accepted(&answer).1, "PortConflict");
}

#[test]
fn an_upstream_without_the_port_in_that_protocol_is_closed() {
    let message = "TCP 5432 is held for shop/postgres:5433, but Service shop/postgres has no port TCP 5433; correct \
                   spec.upstream.port, or add the port to the Service";
    for ports in [
        json!([]),
        json!([{"port": 5432, "protocol": "TCP"}]),
        json!([{"port": 5433, "protocol": "UDP"}]),
        json!([{"port": 5433, "protocol": "SCTP"}]),
    ] {
        let closed = cluster().with(service("shop", "postgres", &ports));
        assert_refused(&closed, postgres(), "UpstreamPortClosed", message);
    }
    let open = cluster().with(service("shop", "postgres", &json!([{"port": 5433}])));
    assert_eq!(accepted(&reconcile(&open, postgres())).0, ConditionStatus::True);
}

#[test]
fn an_upstream_that_is_no_service_is_not_looked_at() {
    let mut elsewhere = postgres();
    elsewhere["spec"]["is_service"] = json!(false);
    elsewhere["spec"]["upstream"] = json!({"namespace": "far", "service": "away", "port": 7});
    let cluster = cluster().configuration(json!({"upstreamNamespaces": ["far"]}));
    let answer = reconcile(&cluster, elsewhere);
    assert_eq!(
        answer.object("ConfigMap", "tcp-services")["data"],
        json!({"5432": "far/away:7"})
    );
    assert!(cluster.reads().iter().all(|read| !read.to_string().contains("away")));
}

#[test]
fn without_an_ingress_nginx_nothing_is_written() {
    let text = |missing: &str| {
        format!(
            "TCP 5432 is held for shop/postgres:5433, but there is no {missing}, on which it would be opened; install \
             ingress-nginx, or configure where it is"
        )
    };
    let map = cluster().without("v1", "ConfigMap", Some("ingress-nginx"), "tcp-services");
    let message = text("ConfigMap ingress-nginx/tcp-services");
    assert_refused(&map, postgres(), "TargetNotFound", &message);
    let service = cluster().without("v1", "Service", Some("ingress-nginx"), "ingress-nginx-controller");
    let message = text("Service ingress-nginx/ingress-nginx-controller");
    assert_refused(&service, postgres(), "TargetNotFound", &message);
    let other = cluster().without("v1", "ConfigMap", Some("ingress-nginx"), "udp-services");
    assert_eq!(accepted(&reconcile(&other, postgres())).0, ConditionStatus::True);
}

#[test]
fn where_the_ingress_nginx_is_is_the_configurations() {
    let config = json!({"namespace": "edge", "tcpConfigMap": "tcp", "udpConfigMap": "udp", "service": "nginx"});
    let cluster = FakeCluster::new()
        .with(config_map("edge", "tcp"))
        .with(service("edge", "nginx", &json!([])))
        .with(service("shop", "postgres", &json!([{"port": 5433}])))
        .configuration(config);
    let answer = reconcile(&cluster, postgres());
    assert_eq!(answer.objects(), ["ConfigMap tcp", "Service nginx"]);
    assert!(
        answer
            .desired
            .iter()
            .all(|desired| desired.object["metadata"]["namespace"] == "edge")
    );
}

#[test]
fn an_answer_depends_on_claimants_and_the_forwarded_service() {
    let cluster = cluster();
    reconcile(&cluster, postgres());
    let reads: Vec<_> = cluster.reads().iter().map(ToString::to_string).collect();
    assert_eq!(
        reads,
        [
            "get v1 ConfigMap ingress-nginx/tcp-services",
            "list nginx-stream.jeffthecoder.xyz/v1beta1 StreamIngress with .spec.listen=5432",
            "get v1 Service shop/postgres",
            "get v1 Service ingress-nginx/ingress-nginx-controller",
        ]
    );
}

#[test]
fn the_sample_opens_a_port() {
    let yaml = include_str!("../../../deploy/samples/stream-ingress.yaml");
    let mut sample: Value = serde_saphyr::from_str(yaml).unwrap();
    sample["metadata"]["namespace"] = json!("default");
    let cluster = cluster().with(service("default", "postgres", &json!([{"port": 5432}])));
    let answer = reconcile(&cluster, sample);
    assert_eq!(
        answer.object("ConfigMap", "tcp-services")["data"],
        json!({"5432": "default/postgres:5432"})
    );
}

#[test]
fn a_spec_of_another_form_is_refused_by_the_name_of_the_field() {
    for (spec, cause) in [
        (
            json!({"upstream": {"service": "a", "port": 1}}),
            "spec: missing field `listen`",
        ),
        (
            json!({"listen": 0, "upstream": {"service": "a", "port": 1}}),
            "spec.listen: invalid value: integer `0`, expected a nonzero u16",
        ),
        (
            json!({"listen": 1, "protocol": "tcp", "upstream": {"service": "a", "port": 1}}),
            "spec.protocol: unknown variant `tcp`, expected `TCP` or `UDP`",
        ),
        (
            json!({"listen": 1, "upstream": {"service": "a"}}),
            "spec.upstream: missing field `port`",
        ),
    ] {
        let refused = cluster()
            .reconcile::<StreamIngressPlugin>(stream("db", 0, &spec))
            .unwrap_err();
        let expected = format!("StreamIngress shop/db cannot be read: {cause}; correct the field");
        assert_eq!(refused.to_string(), expected);
    }
}

#[test]
fn a_malformed_configuration_is_refused_by_field() {
    for (config, message) in [
        (json!({"configMap": "a"}), "unknown field `configMap`"),
        (json!({"tcpConfigMap": ["a"]}), "tcpConfigMap: invalid type: sequence"),
        (json!({"namespace": ""}), "namespace: \"\" is no name"),
        (json!({"namespace": "a.b"}), "namespace: \"a.b\" is no name"),
        (json!({"namespace": "x".repeat(64)}), "namespace: \"xxx"),
        (json!({"service": "A"}), "service: \"A\" is no name"),
        (json!({"service": "x".repeat(64)}), "service: \"xxx"),
        (json!({"tcpConfigMap": ""}), "tcpConfigMap: \"\" is no name"),
        (
            json!({"udpConfigMap": vec!["x"; 128].join(".")}),
            "udpConfigMap: \"x.x.x",
        ),
        (json!({"tcpConfigMap": "a/b"}), "tcpConfigMap: \"a/b\" is no name"),
        (json!({"udpConfigMap": "-a"}), "udpConfigMap: \"-a\" is no name"),
        (
            json!({"upstreamNamespaces": ["a", "a/b"]}),
            "upstreamNamespaces: \"a/b\" is no name",
        ),
        (
            json!({"udpConfigMap": "tcp-services"}),
            "udpConfigMap: \"tcp-services\" is the tcpConfigMap too",
        ),
    ] {
        let refused = describe::<StreamIngressPlugin>(Some(&config)).unwrap_err();
        assert!(refused.starts_with(message), "{config}: {refused}");
    }
}

#[test]
fn the_manifest_reaches_no_further_than_the_configuration() {
    let manifest = describe::<StreamIngressPlugin>(Some(&json!({"namespace": "edge"}))).unwrap();
    let stream = json!({"group": "nginx-stream.jeffthecoder.xyz", "version": "v1beta1", "kind": "StreamIngress"});
    let controller = json!([{
        "name": "stream-ingress",
        "kind": stream,
        "fields": [".spec"],
        "touches": [
            {
                "kind": stream,
                "scope": "Any",
                "access": ["read"],
                "fields": [
                    ".spec.listen",
                    ".spec.protocol",
                    ".spec.upstream.namespace",
                    ".spec.upstream.service",
                    ".spec.upstream.port",
                    ".status.conditions[].type",
                    ".status.conditions[].message",
                ],
            },
            {
                "kind": {"group": "", "version": "v1", "kind": "Service"},
                "scope": "Any",
                "access": ["read", "contributed"],
                "fields": [".spec.ports[].port", ".spec.ports[].protocol"],
            },
            {
                "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                "scope": "Any",
                "access": ["read", "contributed"],
                "fields": [".data"],
                "namespaces": ["edge"],
                "names": ["tcp-services", "udp-services"],
            },
        ],
    }]);
    assert_eq!(manifest["controllers"], controller);
    let definition: Value = serde_saphyr::from_str(manifest["crds"][0].as_str().unwrap()).unwrap();
    assert_eq!(
        definition["metadata"]["name"],
        "streamingresses.nginx-stream.jeffthecoder.xyz"
    );
}

mod isolated {
    use pilothouse_testkit::isolation::Isolated;
    use serde_json::{Value, json};

    /// Component as built by `cargo xtask plugins`.
    const COMPONENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/plugins/stream-ingress.wasm");

    /// The component, with these objects in the cache.
    fn plugin(objects: impl IntoIterator<Item = Value>) -> Isolated {
        let plugin = Isolated::load(COMPONENT).unwrap();
        objects
            .into_iter()
            .fold(plugin, |plugin, object| plugin.with(object).unwrap())
    }

    fn ingress_nginx() -> [Value; 3] {
        [
            super::config_map("ingress-nginx", "tcp-services"),
            super::service("ingress-nginx", "ingress-nginx-controller", &json!([])),
            super::service("shop", "postgres", &json!([{"port": 5433, "protocol": "TCP"}])),
        ]
    }

    #[test]
    fn the_component_contributes_an_entry_and_a_port() {
        let reconciled = plugin(ingress_nginx()).reconcile(&super::postgres()).unwrap();
        let entry = reconciled.contribution("ConfigMap", "tcp-services").unwrap();
        assert_eq!(entry["data"], json!({"5432": "shop/postgres:5433"}));
        let port = reconciled.contribution("Service", "ingress-nginx-controller").unwrap();
        assert_eq!(port["spec"]["ports"][0]["name"], "tcp-5432");
        assert!(reconciled.titles().is_empty(), "nothing is owned");
        assert_eq!(reconciled.condition("Accepted").unwrap().reason, "Accepted");
    }

    #[test]
    fn the_component_leaves_the_port_to_an_older_one() {
        let older = super::stream("older", 0, &super::postgres()["spec"]);
        let reconciled = plugin(ingress_nginx().into_iter().chain([older]))
            .reconcile(&super::postgres())
            .unwrap();
        assert_eq!(reconciled.condition("Accepted").unwrap().reason, "PortConflict");
        assert_eq!(reconciled.contribution("ConfigMap", "tcp-services"), None);
    }

    #[test]
    fn the_component_refuses_a_configuration_by_its_field() {
        let refused = plugin([]).configured(json!({"service": "A"}));
        let refused = refused.err().expect("it is refused").to_string();
        assert!(refused.contains("service: \"A\" is no name"), "{refused}");
    }
}
