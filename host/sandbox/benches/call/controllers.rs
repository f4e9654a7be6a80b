//! Controllers that are called: each with its sample as the API server would serve it, the objects around it in a
//! healthy cluster, and the same logic as native code.

use std::path::{Path, PathBuf};

use pilothouse_core::Limits;
use pilothouse_core::plugin::contract::Request;
use pilothouse_core::plugin::grants::Grants;
use pilothouse_core::plugin::manifest;
use pilothouse_plugin::testing::{Answer, FakeCluster};
use pilothouse_plugin::{Controller, Failure, Outcome};
use pilothouse_sandbox::{CallResult, PluginComponent};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cache::{Cache, View, shown};

/// The uid of every primary.
const UID: &str = "8d2c9f4e-7a56-4c0f-9a53-0d6e4d0b8f11";

/// A controller of which there is a sample.
pub struct Definition {
    /// Its name, which is its sample's.
    pub name: &'static str,
    /// The plugin that has it.
    pub component: &'static str,
    native: fn(&Request, &FakeCluster) -> Result<Outcome, Failure>,
    /// None where the kind belongs to no namespace.
    namespace: Option<&'static str>,
    around: fn() -> Vec<Value>,
}

/// All of them.
pub const CONTROLLERS: [Definition; 6] = [
    Definition {
        name: "app-service",
        component: "app-service",
        native: native::<app_service::AppServicePlugin>,
        namespace: Some("default"),
        around: || vec![deployment()],
    },
    Definition {
        name: "reverse-proxy",
        component: "reverse-proxy",
        native: native::<reverse_proxy::Http>,
        namespace: Some("default"),
        around: Vec::new,
    },
    Definition {
        name: "tcp-reverse-proxy",
        component: "reverse-proxy",
        native: native::<reverse_proxy::Tcp>,
        namespace: Some("default"),
        around: Vec::new,
    },
    Definition {
        name: "stream-ingress",
        component: "stream-ingress",
        native: native::<stream_ingress::StreamIngressPlugin>,
        namespace: Some("default"),
        around: ingress_nginx,
    },
    Definition {
        name: "service-ingress",
        component: "service-ingress",
        native: native::<service_ingress::ServiceIngressPlugin>,
        namespace: Some("default"),
        around: Vec::new,
    },
    Definition {
        name: "ecs-binding",
        component: "ecs-binding",
        native: native::<ecs_binding::EcsBindingPlugin>,
        namespace: None,
        around: || vec![node()],
    },
];

/// A controller that can be called both ways.
pub struct Case {
    /// Its name.
    pub name: &'static str,
    /// The plugin that has it.
    pub plugin: PluginComponent,
    /// Input of both sides.
    pub request: Request,
    native: fn(&Request, &FakeCluster) -> Result<Outcome, Failure>,
    cache: Cache,
}

impl Case {
    /// The sample as the controller sees it. Panics where the plugin has no controller of its kind.
    pub fn new(definition: &Definition, plugin: PluginComponent) -> Self {
        let Definition {
            name,
            component: _,
            native,
            namespace,
            around,
        } = *definition;
        let primary = served(name, namespace);
        let manifest = plugin.describe(None, &Limits::default()).unwrap();
        let manifest = manifest::parse(&manifest).unwrap().manifest;
        let kind = |object: &Value| {
            let text = |member: &str| object[member].as_str().unwrap();
            pilothouse_core::Kind::from_api_version(text("apiVersion"), text("kind"))
        };
        let is_its = |controller: &&manifest::Controller| controller.kind == kind(&primary);
        let grants = Grants::new(manifest.controllers.iter().find(is_its).unwrap());
        let request = Request {
            object: shown(&primary, grants.primary_projection(), grants.primary()),
            configuration: "{}".to_owned(),
            attempt: 0,
        };
        let metadata = &primary["metadata"];
        let its_name = pilothouse_core::Name::new(metadata["namespace"].as_str(), metadata["name"].as_str().unwrap());
        let mut objects = around();
        // A controller may look at others of its own kind, and finds this one among them.
        if grants.get(grants.primary()).is_some() {
            objects.push(primary);
        }
        let objects = objects.into_iter().map(|object| (kind(&object), object));
        Self {
            name,
            plugin,
            request,
            native,
            cache: Cache::new(grants, its_name, objects),
        }
    }

    /// A call in the sandbox, on a fresh instance.
    pub fn sandboxed(&self) -> CallResult<View> {
        self.plugin
            .reconcile(&self.request, &Limits::default(), self.cache.view())
    }

    /// The same as native code.
    pub fn native(&self, cluster: &FakeCluster) -> Outcome {
        (self.native)(&self.request, cluster).unwrap()
    }

    /// The cluster of the native side. It remembers every read, so nobody should keep one for long.
    pub fn pretended(&self) -> FakeCluster {
        self.cache.pretended()
    }

    /// Panics unless both sides want the same, and something; gives the size of the answer in bytes, and the reads.
    pub fn same_answers(&self) -> (usize, usize) {
        let call = self.sandboxed();
        let (ours, reads) = (call.result.unwrap(), call.imports.reads());
        let cluster = self.pretended();
        let theirs = Answer::of(self.native(&cluster)).unwrap();
        let read = |object: &String| serde_json::from_str::<Value>(object).unwrap();
        let objects: Vec<_> = ours.desired.iter().map(|desired| read(&desired.object)).collect();
        let expected: Vec<_> = theirs.desired.iter().map(|desired| desired.object.clone()).collect();
        assert_eq!(objects, expected, "{}", self.name);
        assert!(!objects.is_empty(), "{} refuses its sample: {ours:?}", self.name);
        assert_eq!(ours.status.as_ref().map(read), theirs.status, "{}", self.name);
        let told: Vec<_> = ours.conditions.iter().map(|condition| &condition.message).collect();
        let expected: Vec<_> = theirs.conditions.iter().map(|condition| &condition.message).collect();
        assert_eq!(told, expected, "{}", self.name);
        assert_eq!(reads, cluster.reads().len(), "{}", self.name);
        let desired = ours.desired.iter().map(|desired| desired.object.len());
        (
            desired.sum::<usize>() + ours.status.map_or(0, |status| status.len()),
            reads,
        )
    }
}

/// Does the component's work for a call without the contract: from JSON to JSON.
fn native<C>(request: &Request, cluster: &FakeCluster) -> Result<Outcome, Failure>
where
    C: Controller,
    C::Config: DeserializeOwned,
{
    let object: C::Object = serde_json::from_str(&request.object).unwrap();
    let config: C::Config = serde_json::from_str(&request.configuration).unwrap();
    C::reconcile(pilothouse_plugin::Request::new(object, config), &cluster.cluster())
}

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns a sample with the fields that the API server adds, and those that people write beside a spec.
fn served(name: &str, namespace: Option<&str>) -> Value {
    let path = root().join(format!("deploy/samples/{name}.yaml"));
    let mut object: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let metadata = &mut object["metadata"];
    if let Some(namespace) = namespace {
        metadata["namespace"] = json!(namespace);
    }
    metadata["uid"] = json!(UID);
    metadata["generation"] = json!(3);
    metadata["resourceVersion"] = json!("123456");
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["labels"] =
        json!({"team": "checkout", "environment": "production", "app.kubernetes.io/part-of": "storefront"});
    let note = "a note of the length that people write into annotations ".repeat(20);
    metadata["annotations"]["example.com/note"] = json!(note);
    object
}

/// Returns the Deployment of the app-service sample, whose status the sample takes over.
fn deployment() -> Value {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "example-appservice", "namespace": "default", "uid": "d", "ownerReferences": [{
            "apiVersion": "kosmos.io/v1", "kind": "AppService", "name": "example-appservice", "uid": UID, "controller": true,
        }]},
        "status": {
            "observedGeneration": 1, "replicas": 2, "updatedReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
            "conditions": [
                condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability."),
                condition("Progressing", "NewReplicaSetAvailable", "ReplicaSet \"example-appservice\" has progressed."),
            ],
        },
    })
}

/// An ingress-nginx as its chart makes it, and the Service that the stream-ingress sample leads to.
fn ingress_nginx() -> Vec<Value> {
    let config_map = |name: &str| {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "ingress-nginx"},
            "data": {"9": "by/hand:9"},
        })
    };
    let service = |namespace: &str, name: &str, ports: Value| {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": namespace},
            "spec": {"ports": ports},
        })
    };
    let http =
        json!([{"name": "http", "port": 80, "protocol": "TCP"}, {"name": "https", "port": 443, "protocol": "TCP"}]);
    vec![
        config_map("tcp-services"),
        config_map("udp-services"),
        service("ingress-nginx", "ingress-nginx-controller", http),
        service("default", "postgres", json!([{"port": 5432, "protocol": "TCP"}])),
    ]
}

/// The node of the ecs-binding sample.
fn node() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1", "labels": {"kubernetes.io/hostname": "node-1"}},
        "status": {"addresses": [
            {"type": "InternalIP", "address": "192.168.0.10"}, {"type": "Hostname", "address": "node-1"},
        ]},
    })
}
