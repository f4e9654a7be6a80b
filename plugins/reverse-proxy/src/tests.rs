//! Behaviour of proxies: the children of both samples, field by field, the defaults, and the refusals. nginx's
//! treatment of the configuration is tested in `tests/nginx`.

use pilothouse_plugin::testing::{Answer, FakeCluster, Finalized, Ownership, describe};
use pilothouse_plugin::{Failure, FieldError};
use serde_json::{Value, json};

use crate::nginx::http::COMBINED;
use crate::{ReverseProxy, ReverseProxyPlugin, TcpReverseProxy};

fn object(kind: &str, spec: Value) -> Value {
    let mut object = json!({
        "apiVersion": "nginx.lin2ur.cn/v1", "kind": kind,
        "metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "generation": 1},
    });
    object["spec"] = spec;
    object
}

fn http(spec: Value) -> Value {
    object("ReverseProxy", spec)
}

fn tcp(spec: Value) -> Value {
    object("TCPReverseProxy", spec)
}

fn reconcile(object: Value) -> Result<Answer, Failure> {
    FakeCluster::new().reconcile::<ReverseProxyPlugin>(object)
}

fn defaulted(object: Value) -> Value {
    FakeCluster::new().apply_defaults::<ReverseProxyPlugin>(object).unwrap()["spec"].clone()
}

fn refused(object: Value) -> Vec<FieldError> {
    FakeCluster::new()
        .validate::<ReverseProxyPlugin>(object)
        .expect_err("this is to be refused")
}

/// A sample in a namespace.
fn sample(text: &str) -> Value {
    let mut sample: Value = serde_saphyr::from_str(text).unwrap();
    sample["metadata"]["namespace"] = json!("default");
    sample
}

#[test]
fn the_first_sample_gives_a_config_map_deployment_and_service() {
    let sample = sample(include_str!("../../../deploy/samples/reverse-proxy.yaml"));
    let answer = reconcile(sample).unwrap();
    let name = "ngx-proxy-example-whoami";
    assert_eq!(
        answer.objects(),
        [
            format!("ConfigMap {name}"),
            format!("Deployment {name}"),
            format!("Service {name}")
        ]
    );
    assert!(
        answer
            .desired
            .iter()
            .all(|desired| desired.ownership == Ownership::Owned)
    );

    let config_map = answer.object("ConfigMap", name);
    let sum = &config_map["metadata"]["labels"]["nginx-operator/configsum"];
    assert_eq!(sum.as_str().unwrap().len(), 32);
    let labels = json!({"app.kubernetes.io/managed-by": "nginx-operator", "app.kubernetes.io/instance": name});
    let mut with_sum = labels.clone();
    with_sum["nginx-operator/configsum"] = sum.clone();
    assert_eq!(
        config_map["metadata"],
        json!({"name": name, "namespace": "default", "labels": with_sum})
    );
    assert_eq!(config_map["data"]["nginx.conf"], include_str!("../tests/whoami.conf"));

    let probe = json!({
        "httpGet": {"path": "/_/ping", "port": 3001}, "periodSeconds": 5, "timeoutSeconds": 5, "failureThreshold": 10,
    });
    let mut liveness = probe.clone();
    liveness["initialDelaySeconds"] = json!(5);
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": with_sum},
                "spec": {
                    "automountServiceAccountToken": false,
                    "enableServiceLinks": false,
                    "containers": [{
                        "name": "nginx", "image": "nginx:1.27-alpine",
                        "ports": [{"name": "nginx", "containerPort": 8080, "protocol": "TCP"}],
                        "livenessProbe": liveness,
                        "readinessProbe": probe,
                        "securityContext": {
                            "runAsUser": 101, "runAsGroup": 101, "runAsNonRoot": true, "readOnlyRootFilesystem": true,
                            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
                        },
                        "volumeMounts": [
                            {"name": "config", "mountPath": "/etc/nginx/nginx.conf", "subPath": "nginx.conf", "readOnly": true},
                            {"name": "tmp", "mountPath": "/tmp"},
                        ],
                    }],
                    "volumes": [{"name": "config", "configMap": {"name": name}}, {"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    });
    assert_eq!(*answer.object("Deployment", name), deployment);
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {
            "type": "ClusterIP", "selector": labels,
            "ports": [{"port": 80, "targetPort": "nginx", "protocol": "TCP"}],
        },
    });
    assert_eq!(*answer.object("Service", name), service);
}

#[test]
fn the_second_sample_is_a_stream() {
    let sample = sample(include_str!("../../../deploy/samples/tcp-reverse-proxy.yaml"));
    let answer = reconcile(sample).unwrap();
    let name = "ngx-tcpproxy-example-database";
    assert_eq!(
        answer.objects(),
        [
            format!("ConfigMap {name}"),
            format!("Deployment {name}"),
            format!("Service {name}")
        ]
    );
    assert_eq!(
        answer.object("ConfigMap", name)["data"]["nginx.conf"],
        include_str!("../tests/database.conf")
    );
}

#[test]
fn the_protocol_is_that_of_listener_container_port_and_service() {
    let answer = reconcile(tcp(
        json!({"servers": [{"server": "a:53"}], "protocol": "UDP", "servicePort": 53}),
    ))
    .unwrap();
    let name = "ngx-tcpproxy-web";
    let text = answer.object("ConfigMap", name)["data"]["nginx.conf"].as_str().unwrap();
    assert!(text.contains("listen 8080 udp;"), "{text}");
    let container = &answer.object("Deployment", name)["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(
        container["ports"],
        json!([{"name": "nginx", "containerPort": 8080, "protocol": "UDP"}])
    );
    let ports = &answer.object("Service", name)["spec"]["ports"];
    assert_eq!(*ports, json!([{"port": 53, "targetPort": "nginx", "protocol": "UDP"}]));
}

#[test]
fn what_is_said_of_the_pods_is_theirs() {
    let given = json!({
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
        "env": [{"name": "TZ", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "nodeSelector": {"a/b": "c"},
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}},
    });
    let mut spec = given.clone();
    spec["proxyPass"] = json!("http://a");
    spec["podLabels"] = json!({"team": "shop"});
    spec["replicas"] = json!(3);
    spec["image"] = json!("nginx:2");
    let answer = reconcile(http(spec)).unwrap();
    let deployment = &answer.object("Deployment", "ngx-proxy-web")["spec"];
    let pod = &deployment["template"]["spec"];
    assert_eq!(deployment["replicas"], 3);
    assert_eq!(deployment["template"]["metadata"]["labels"]["team"], "shop");
    assert_eq!(
        deployment["selector"]["matchLabels"]["team"],
        Value::Null,
        "a selector can't be changed"
    );
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "nginx:2");
    assert_eq!(
        (&container["resources"], &container["env"]),
        (&given["resources"], &given["env"])
    );
    assert_eq!(
        (&pod["nodeSelector"], &pod["affinity"]),
        (&given["nodeSelector"], &given["affinity"])
    );
}

#[test]
fn a_configuration_change_changes_the_checksum_and_only_that() {
    let sum = |spec| {
        let answer = reconcile(http(spec)).unwrap();
        let on = |object: &Value, path: &str| object.pointer(path).unwrap().clone();
        let config_map = on(
            answer.object("ConfigMap", "ngx-proxy-web"),
            "/metadata/labels/nginx-operator~1configsum",
        );
        let template = "/spec/template/metadata/labels/nginx-operator~1configsum";
        assert_eq!(on(answer.object("Deployment", "ngx-proxy-web"), template), config_map);
        config_map
    };
    let first = sum(json!({"proxyPass": "http://a"}));
    assert_eq!(
        sum(json!({"proxyPass": "http://a", "replicas": 7, "servicePort": 81, "image": "b"})),
        first
    );
    assert_ne!(sum(json!({"proxyPass": "http://b"})), first);
    // Defaults that the defaulter writes out change nothing.
    assert_eq!(sum(defaulted(http(json!({"proxyPass": "http://a"})))), first);
}

#[test]
fn a_reverse_proxy_is_completed() {
    let spec = defaulted(http(
        json!({"proxyPass": "https://a.test:8443/x", "proxySetHeader": {"X-A": "B"}, "image": ""}),
    ));
    let expected = json!({
        "proxyPass": "https://a.test:8443/x",
        "proxySetHeader": {"x-a": "B", "host": "a.test:8443"},
        "image": "nginx:1.27-alpine",
        "logFormat": COMBINED,
    });
    assert_eq!(spec, expected);
    let spec = defaulted(http(
        json!({"proxyPass": "http://a", "proxySetHeader": {"HOST": "b"}, "logFormat": ""}),
    ));
    assert_eq!(spec["proxySetHeader"], json!({"host": "b"}));
    assert_eq!(spec["logFormat"], "", "empty means no access log");
    for refused in ["https://$noexists", "ftp://a", "http://a b"] {
        let spec = defaulted(http(json!({"proxyPass": refused})));
        assert_eq!(spec["proxySetHeader"], json!({}), "{refused} is told once");
    }
    assert_eq!(
        defaulted(tcp(json!({"servers": []}))),
        json!({"servers": [], "image": "nginx:1.27-alpine"})
    );
}

#[test]
fn an_image_that_is_not_given_is_that_of_the_configuration() {
    let cluster = FakeCluster::new().configuration(json!({"defaultImage": "mine:1"}));
    let object = http(json!({"proxyPass": "http://a"}));
    let spec = &cluster.apply_defaults::<ReverseProxyPlugin>(object.clone()).unwrap()["spec"];
    assert_eq!(spec["image"], "mine:1");
    let answer = cluster.reconcile::<ReverseProxyPlugin>(object).unwrap();
    let containers = &answer.object("Deployment", "ngx-proxy-web")["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers[0]["image"], "mine:1");
}

#[test]
fn what_has_another_form_is_not_completed() {
    for spec in [
        json!(7),
        json!({"proxyPass": 7, "image": 1, "proxySetHeader": [], "logFormat": 1}),
    ] {
        assert_eq!(defaulted(http(spec.clone())), spec);
    }
}

#[test]
fn an_invalid_resource_can_be_deleted() {
    let mut leaving = tcp(json!("of no form at all"));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    assert_eq!(
        FakeCluster::new().finalize::<ReverseProxyPlugin>(leaving),
        Ok(Finalized::Done)
    );
}

#[test]
fn all_that_is_wrong_is_said_at_once_and_by_field() {
    let object = http(json!({
        "podLabels": {"-": "y", "ok": "-"}, "nodeSelector": {"A_B/c": "d"},
        "proxyPass": "https://$noexists", "resolver": ["valid=x"], "logFormat": "$nope",
        "rewrite": [{"regex": "(", "replacement": ""}], "proxyHideHeader": ["a b"],
        "proxySetHeader": {"x-a": "1", "X-A": "2"}, "proxyReadTimeout": "1m",
    }));
    let mut paths: Vec<_> = refused(object.clone()).into_iter().map(|error| error.path).collect();
    paths.sort();
    let expected = [
        "spec.image",
        "spec.logFormat",
        "spec.nodeSelector[A_B/c]",
        "spec.podLabels[-]",
        "spec.podLabels[ok]",
        "spec.proxyHideHeader[0]",
        "spec.proxyPass",
        "spec.proxyReadTimeout",
        "spec.proxySetHeader[x-a]",
        "spec.resolver[0]",
        "spec.rewrite[0].regex",
        "spec.rewrite[0].replacement",
    ];
    assert_eq!(paths, expected);
    let Err(Failure::Permanent(message)) = reconcile(object) else {
        panic!("this is to be refused for good")
    };
    assert!(message.starts_with("ReverseProxy shop/web: spec."), "{message}");
    assert!(
        message.contains("spec.proxyPass: Invalid value: unknown \"noexists\" variable"),
        "{message}"
    );
}

#[test]
fn a_host_that_nobody_would_look_up_is_warned_of() {
    let warnings = |spec| FakeCluster::new().validate::<ReverseProxyPlugin>(http(spec)).unwrap();
    let said = warnings(json!({"proxyPass": "http://$host/x", "image": "a"}));
    assert!(said.len() == 1 && said[0].contains("spec.resolver"), "{said:?}");
    let none: [String; 0] = [];
    assert_eq!(
        warnings(json!({"proxyPass": "http://$host/x", "image": "a", "resolver": ["10.0.0.10"]})),
        none
    );
    assert_eq!(warnings(json!({"proxyPass": "http://a/$host", "image": "a"})), none);
}

#[test]
fn a_stream_is_refused_by_field_too() {
    let object = tcp(json!({
        "image": "a", "servers": [{"server": "a:1"}, {"server": "b"}],
        "hash": "$host", "proxyTimeout": "1h",
    }));
    let paths: Vec<_> = refused(object).into_iter().map(|error| error.path).collect();
    let expected = ["spec.hash", "spec.servers[1].server", "spec.proxyTimeout"];
    assert_eq!(paths, expected);
    let wrong_form = refused(tcp(json!({"servers": [{"server": 7}]})));
    assert_eq!(wrong_form[0].path, "spec.servers[0].server");
}

#[test]
fn the_longest_accepted_names_give_valid_names_of_services() {
    for (mut object, definition) in [
        (
            http(json!({"proxyPass": "http://a"})),
            pilothouse_plugin::crd::<ReverseProxy>(),
        ),
        (
            tcp(json!({"servers": [{"server": "a:1"}]})),
            pilothouse_plugin::crd::<TcpReverseProxy>(),
        ),
    ] {
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let rule = schema["x-kubernetes-validations"][0]["rule"].as_str().unwrap();
        let (_, bound) = rule.split_once("self.metadata.name.size() <= ").unwrap();
        let longest = bound.split(' ').next().unwrap().parse().unwrap();
        object["metadata"]["name"] = "a".repeat(longest).into();
        let answer = reconcile(object).unwrap();
        for child in &answer.desired {
            assert_eq!(child.object["metadata"]["name"].as_str().unwrap().len(), 63, "{rule}");
        }
    }
}

#[test]
fn the_manifest_declares_both_kinds_and_brings_their_crds() {
    let manifest = describe::<ReverseProxyPlugin>(None).unwrap();
    let controllers = manifest["controllers"].as_array().unwrap();
    let names: Vec<_> = controllers.iter().map(|controller| &controller["name"]).collect();
    assert_eq!(names, ["http", "tcp"]);
    assert_eq!(
        controllers[0]["finalizer"],
        Value::Null,
        "the garbage collector does it"
    );
    assert_eq!(controllers[1]["finalizer"], "nginx.lin2ur.cn/finalizer");
    for controller in controllers {
        assert_eq!(controller["touches"].as_array().unwrap().len(), 3);
        assert_eq!(controller["failureReason"], "Failure", "users of the original know it");
    }
    assert_eq!(manifest["crds"].as_array().unwrap().len(), 2);
    assert_eq!(
        manifest["configurationSchema"]["properties"]["defaultImage"]["default"],
        "nginx:1.27-alpine"
    );
}

#[test]
fn a_configuration_of_the_wrong_shape_is_refused_by_field() {
    for (configuration, field) in [
        (json!({"defaultImage": ""}), "defaultImage"),
        (json!({"defaultImage": "a b"}), "defaultImage"),
        (json!({"defaultImage": 1}), "defaultImage"),
        (
            json!({"defaultImage": "x".repeat(513)}),
            "defaultImage: it has 513 bytes",
        ),
        (json!({"image": "a"}), "unknown field `image`"),
    ] {
        let refused = describe::<ReverseProxyPlugin>(Some(&configuration)).unwrap_err();
        assert!(refused.contains(field), "{configuration}: {refused}");
    }
    let longest = json!({"defaultImage": "x".repeat(512)});
    assert!(describe::<ReverseProxyPlugin>(Some(&longest)).is_ok());
}
