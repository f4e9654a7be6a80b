//! The SDK takes the types of kube's `CustomResource` and of k8s-openapi, as what is reconciled, read and owned.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use k8s_openapi::api::core::v1::{ConfigMap, Service};
use kube::CustomResource;
use pilothouse_plugin::testing::{FakeCluster, describe};
use pilothouse_plugin::{
    Cluster, Controller, ControllerManifest, Failure, Kind, Manifest, NoConfig, Outcome, Plugin, Request, Resource,
    Touch,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

/// What kube's derive makes the kind `Site` of.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, CustomResource, Resource)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Site",
    namespaced,
    status = "SiteStatus"
)]
#[serde(rename_all = "camelCase")]
struct SiteSpec {
    service_name: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
struct SiteStatus {
    port: Option<i32>,
}

struct Sites;

impl Plugin for Sites {
    type Config = NoConfig;
    type Controllers = (SiteController, ServiceController);

    fn manifest(_: &NoConfig) -> Manifest {
        let sites = ControllerManifest::of::<Site>("site")
            .owns::<ConfigMap>()
            .touches(Touch::of::<Service>().read([".spec.ports"]));
        let services = ControllerManifest::of::<Service>("service").fields([".spec.type"]);
        Manifest::new("sites", "0.1.0", "Sites.")
            .controller(sites)
            .controller(services)
    }
}

struct SiteController;

impl Controller for SiteController {
    type Config = NoConfig;
    type Object = Site;

    fn reconcile(request: Request<Site>, cluster: &Cluster) -> Result<Outcome, Failure> {
        let Site { metadata, spec, .. } = request.object;
        let namespace = metadata.namespace.as_deref();
        let service: Option<Service> = cluster.get(namespace, &spec.service_name)?;
        let ports = service.and_then(|service| service.spec?.ports);
        let port = ports.and_then(|ports| ports.first().map(|port| port.port));
        let config_map = ConfigMap {
            metadata: kube::api::ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                ..kube::api::ObjectMeta::default()
            },
            data: Some([("service".to_owned(), spec.service_name)].into()),
            ..ConfigMap::default()
        };
        Ok(Outcome::new().owned(config_map).status(SiteStatus { port }))
    }
}

struct ServiceController;

impl Controller for ServiceController {
    type Config = NoConfig;
    type Object = Service;

    fn reconcile(request: Request<Service>, _: &Cluster) -> Result<Outcome, Failure> {
        let status = request.object.status.map(|_| "its own status is visible");
        let spec = request.object.spec.and_then(|spec| spec.type_);
        Ok(Outcome::new().status(json!({"type": spec, "status": status})))
    }
}

pilothouse_plugin::export!(Sites);

#[test]
fn the_kind_and_fields_of_a_type_of_kube_come_from_its_derives() {
    assert_eq!(Site::KIND, Kind::new("example.com", "v1", "Site"));
    let manifest = describe::<Sites>(None).unwrap();
    assert_eq!(manifest["controllers"][0]["fields"], json!([".spec.serviceName"]));
    assert_eq!(manifest["controllers"][1]["fields"], json!([".spec.type"]));
}

#[test]
fn types_of_kube_and_k8s_openapi_are_reconciled_read_and_owned() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"type": "NodePort", "ports": [{"port": 80}]}, "status": {"loadBalancer": {}},
    });
    let site = json!({
        "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "a", "namespace": "shop"},
        "spec": {"serviceName": "web"}, "status": {"port": 1},
    });
    let cluster = FakeCluster::new().with(service.clone());
    let answer = cluster.reconcile::<Sites>(site).unwrap();
    assert_eq!(answer.status, Some(json!({"port": 80})));
    assert_eq!(answer.object("ConfigMap", "a")["data"], json!({"service": "web"}));
    let answer = cluster.reconcile::<Sites>(service).unwrap();
    assert_eq!(answer.status, Some(json!({"type": "NodePort"})));
}
