//! Output of the builders, and the arguments of their setters.

use std::collections::BTreeMap;

use pilothouse_plugin::k8s::apps::v1::Deployment;
use pilothouse_plugin::k8s::autoscaling::v2::HorizontalPodAutoscaler;
use pilothouse_plugin::k8s::core::v1::{
    ConfigMap, Container, ContainerPort, EmptyDirVolumeSource, EnvVar, PodTemplateSpec, Probe, ResourceRequirements,
    Service, ServicePort, TCPSocketAction, Volume, VolumeMount,
};
use pilothouse_plugin::k8s::meta::v1::{LabelSelector, ObjectMeta};
use pilothouse_plugin::k8s::networking::v1::{HTTPIngressPath, Ingress};
use pilothouse_plugin::k8s::rbac::v1::{PolicyRule, Role};
use pilothouse_plugin::testing::describe;
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Fields, Kind, Manifest, NoConfig, Outcome, Plugin, Request,
    Resource,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

fn json_of(object: impl Serialize) -> Value {
    serde_json::to_value(object).expect("a builder is JSON")
}

#[test]
fn an_object_has_the_fields_that_were_set_and_no_others() {
    let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    let container = Container::new("web")
        .image("nginx:1.27")
        .port(ContainerPort::new(8080u16).name("http"))
        .add_env(EnvVar::new("A").value("b"))
        .resources(
            ResourceRequirements::new()
                .limit("cpu", "100m")
                .requests([("memory", "1Gi")]),
        )
        .readiness_probe(Probe::new().tcp_socket(TCPSocketAction::new("http")).period_seconds(5))
        .volume_mount(VolumeMount::new("tmp", "/tmp"));
    let template = PodTemplateSpec::new()
        .labels(&labels)
        .annotation("a.b/c", "d")
        .container(container)
        .volume(Volume::new("tmp").empty_dir(EmptyDirVolumeSource::new()));
    let deployment = Deployment::new("web")
        .namespace("shop".to_owned())
        .labels(&labels)
        .replicas(2)
        .selector(LabelSelector::new().match_labels(labels))
        .template(template);
    let expected = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"a.b/c": "d"}},
                "spec": {
                    "containers": [{
                        "name": "web", "image": "nginx:1.27",
                        "ports": [{"containerPort": 8080, "name": "http"}],
                        "env": [{"name": "A", "value": "b"}],
                        "resources": {"limits": {"cpu": "100m"}, "requests": {"memory": "1Gi"}},
                        "readinessProbe": {"tcpSocket": {"port": "http"}, "periodSeconds": 5},
                        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    }],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    });
    assert_eq!(json_of(deployment), expected);
}

#[test]
fn none_and_empty_lists_leave_a_field_as_it_is() {
    let nothing: Option<String> = None;
    let service = Service::new("web")
        .namespace(&nothing)
        .type_(nothing.as_deref())
        .ports(Vec::<ServicePort>::new())
        .port(None::<ServicePort>)
        .selector([("app", "web")])
        .selector([("tier", nothing)])
        .external_name(Some("a.example.com"))
        .external_name(None::<&str>);
    assert_eq!(
        json_of(service),
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}, "externalName": "a.example.com"},
        })
    );
}

#[test]
fn shortcuts_reach_the_pods_of_a_workload() {
    let short = Deployment::new("web")
        .pod_labels([("app", "web")])
        .init_container(Container::new("first"))
        .container(Container::new("web"))
        .volume(Volume::new("tmp"));
    let template = PodTemplateSpec::new()
        .label("app", "web")
        .init_container(Container::new("first"))
        .container(Container::new("web"))
        .volume(Volume::new("tmp"));
    let long = Deployment::new("web")
        .selector(LabelSelector::new().match_label("app", "web"))
        .template(template);
    assert_eq!(json_of(short), json_of(long));
}

#[test]
fn metadata_is_added_to_what_is_there_and_any_field_can_be_set() {
    let metadata = ObjectMeta::new().finalizers(["a/b"]);
    let config_map = ConfigMap::new("settings")
        .metadata(metadata)
        .data([("a", "b")])
        .add_data("c", "d".to_owned())
        .field("futureField", json!({"e": 1}));
    assert_eq!(
        json_of(config_map),
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "finalizers": ["a/b"]},
            "data": {"a": "b", "c": "d"}, "futureField": {"e": 1},
        })
    );
}

#[test]
fn objects_of_other_groups_have_their_kinds() {
    for (object, api_version, kind) in [
        (
            json_of(Role::new("a").rule(PolicyRule::new().verb("get").api_group(""))),
            "rbac.authorization.k8s.io/v1",
            Role::KIND,
        ),
        (
            json_of(Ingress::new("a").ingress_class_name("nginx")),
            "networking.k8s.io/v1",
            Ingress::KIND,
        ),
        (
            json_of(HorizontalPodAutoscaler::new("a").max_replicas(3)),
            "autoscaling/v2",
            HorizontalPodAutoscaler::KIND,
        ),
    ] {
        assert_eq!(object["apiVersion"], api_version);
        assert_eq!(
            (api_version, object["kind"].as_str().unwrap()),
            (kind.api_version().as_str(), kind.kind)
        );
    }
    assert_eq!(
        json_of(HTTPIngressPath::new("Prefix").path("/")),
        json!({"pathType": "Prefix", "path": "/"})
    );
}

/// Resource that has a part of a built-in kind, and reads its children.
#[derive(Deserialize, Resource)]
#[resource(group = "example.com", version = "v1", kind = "App")]
struct App {
    spec: AppSpec,
}

#[derive(Deserialize, Fields)]
#[serde(rename_all = "camelCase")]
struct AppSpec {
    pod_template: PodTemplateSpec,
    #[serde(default)]
    env: Vec<Env>,
}

#[derive(Deserialize, Fields)]
struct Env {
    name: String,
    #[serde(flatten)]
    source: Source,
}

#[derive(Deserialize, Fields)]
#[serde(rename_all = "camelCase")]
struct Source {
    #[serde(default)]
    words: Vec<String>,
    #[expect(dead_code, reason = "only that it is declared is of interest")]
    #[serde(skip)]
    cached: String,
}

#[derive(Deserialize, Resource)]
#[resource(group = "apps", version = "v1", kind = "Deployment")]
struct LiveDeployment {
    #[expect(dead_code, reason = "only that it is declared is of interest")]
    status: Option<Value>,
}

struct Apps;

impl Plugin for Apps {
    type Config = NoConfig;
    type Controllers = Self;

    fn manifest(_: &NoConfig) -> Manifest {
        let controller = ControllerManifest::of::<App>("app")
            .owns::<Deployment>()
            .reads::<LiveDeployment>()
            .contributes_with::<ConfigMap>(|touch| touch.named(["shared"]));
        Manifest::new("apps", "0.1.0", "Deployments.").controller(controller)
    }
}

impl Controller for Apps {
    type Config = NoConfig;
    type Object = App;

    fn reconcile(request: Request<App>, _: &Cluster) -> Result<Outcome, Failure> {
        let AppSpec { pod_template, env } = request.object.spec;
        let words = env.iter().map(|env| (env.name.clone(), env.source.words.join(" ")));
        Ok(Outcome::new()
            .owned(Deployment::new("web").template(pod_template))
            .contributed(ConfigMap::new("shared").data(words)))
    }
}

pilothouse_plugin::export!(Apps);

#[test]
fn the_manifest_follows_from_the_types() {
    let manifest = describe::<Apps>(None).unwrap();
    assert_eq!(
        manifest["controllers"][0],
        json!({
            "name": "app",
            "kind": {"group": "example.com", "version": "v1", "kind": "App"},
            "fields": [".spec.podTemplate", ".spec.env[].name", ".spec.env[].words"],
            "touches": [
                {
                    "kind": {"group": "apps", "version": "v1", "kind": "Deployment"},
                    "access": ["owned", "read"], "fields": [".status"],
                },
                {
                    "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
                    "access": ["contributed"], "names": ["shared"],
                },
            ],
        })
    );
}

#[test]
fn what_a_type_reads_is_visible_and_passed_on() {
    let app = json!({
        "apiVersion": "example.com/v1", "kind": "App", "metadata": {"name": "a", "namespace": "n"},
        "spec": {
            "podTemplate": {"spec": {"containers": [{"name": "web"}], "anything": 1}},
            "env": [{"name": "A", "words": ["b", "c"], "other": true}],
        },
    });
    let answer = pilothouse_plugin::testing::FakeCluster::new()
        .reconcile::<Apps>(app)
        .unwrap();
    assert_eq!(
        answer.object("Deployment", "web")["spec"]["template"],
        json!({"spec": {"containers": [{"name": "web"}], "anything": 1}})
    );
    assert_eq!(answer.object("ConfigMap", "shared")["data"], json!({"A": "b c"}));
}

#[test]
fn the_status_of_a_primary_is_none_of_its_fields() {
    assert_eq!(LiveDeployment::fields(), [".status"]);
    let manifest = Manifest::new("a", "0.1.0", "").controller(ControllerManifest::of::<LiveDeployment>("a"));
    assert_eq!(json_of(manifest)["controllers"][0]["fields"], Value::Null);
    assert_eq!(LiveDeployment::KIND, Kind::new("apps", "v1", "Deployment"));
}
