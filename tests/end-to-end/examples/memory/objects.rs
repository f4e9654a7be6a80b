//! Primaries of the memory benchmark: their number for each kind, their namespaces, and the check that all are
//! converged.

use std::fmt;

use futures::{StreamExt as _, TryStreamExt as _};
use kube::api::{ApiResource, DynamicObject, ListParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use pilothouse_testkit::cluster::Cluster;
use serde_json::{Value, json};

use crate::Outcome;

/// The plugins, and the number of their controllers.
pub const PLUGINS: [&str; 5] = [
    "app-service",
    "ecs-binding",
    "reverse-proxy",
    "service-ingress",
    "stream-ingress",
];
pub const CONTROLLERS: u64 = 6;

const NAMESPACES: usize = 100;

/// Requests in flight.
const IN_FLIGHT: usize = 16;

/// Objects that are listed at once.
const PAGE: u32 = 500;

/// The namespace of the ingress-nginx that stream-ingress contributes to, by its default configuration.
const INGRESS: &str = "ingress-nginx";

/// Count of primaries of each kind.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    app_services: usize,
    proxies: usize,
    /// Services that ask for an Ingress.
    services: usize,
    /// Bindings, of cluster scope, so that no replica shares them with another. Each names a Node.
    bindings: usize,
    /// Streams, which contribute to one ConfigMap and one Service; neither is divided.
    streams: usize,
}

impl Mix {
    /// Returns the mix of so many primaries. Most are of kinds whose work is divided by namespace; a cluster has fewer
    /// nodes, and opens fewer ports. Each AppService has a node port, of which a cluster has 2,768.
    pub fn of(objects: usize) -> Self {
        let percent = |part: usize| objects * part / 100;
        let [app_services, proxies, bindings, streams] = [24, 30, 5, 1].map(percent);
        Self {
            app_services,
            proxies,
            services: objects - app_services - proxies - bindings - streams,
            bindings,
            streams,
        }
    }

    /// Makes all of it.
    pub async fn make(&self, cluster: &Cluster) -> Outcome<()> {
        let client = cluster.client().await?;
        let namespaces = (0..NAMESPACES).map(tenant).chain([INGRESS.to_owned()]);
        let namespace = |name: String| object("v1", "Namespace", None, &name, json!({}));
        create_all(&client, namespaces.map(namespace).collect()).await?;
        let service = json!({"spec": {"ports": [{"name": "http", "port": 80}]}});
        let shared = vec![
            object("v1", "ConfigMap", Some(INGRESS), "tcp-services", json!({})),
            object("v1", "Service", Some(INGRESS), "ingress-nginx-controller", service),
        ];
        create_all(&client, shared).await?;
        create_all(&client, (0..self.bindings).map(node).collect()).await?;
        let services = (0..self.services).map(service_with_ingress);
        let primaries = services
            .chain((0..self.app_services).map(app_service))
            .chain((0..self.proxies).map(proxy))
            .chain((0..self.bindings).map(binding))
            .chain((0..self.streams).map(stream));
        create_all(&client, primaries.collect()).await
    }

    /// Returns `true` if every primary has the status of a reconciled one; a Service has none, but an Ingress.
    pub async fn is_reconciled(&self, client: &Client) -> Outcome<bool> {
        let is_reconciled = |object: &DynamicObject| {
            let conditions = object.data["status"]["conditions"].as_array();
            let mut conditions = conditions.into_iter().flatten();
            conditions.any(|it| it["type"] == "Reconciled" && it["status"] == "True")
        };
        let expected = [
            ("kosmos.io/v1", "AppService", self.app_services),
            ("nginx.lin2ur.cn/v1", "ReverseProxy", self.proxies),
            ("hopegi.com/v1", "EcsBinding", self.bindings),
            ("nginx-stream.jeffthecoder.xyz/v1beta1", "StreamIngress", self.streams),
        ];
        for (api_version, kind, count) in expected {
            if count_of(client, api_version, kind, is_reconciled).await? != count {
                return Ok(false);
            }
        }
        Ok(count_of(client, "networking.k8s.io/v1", "Ingress", |_| true).await? == self.services)
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            app_services,
            proxies,
            services,
            bindings,
            streams,
        } = self;
        let all = app_services + proxies + services + bindings + streams;
        write!(
            formatter,
            "{all} primaries in {NAMESPACES} namespaces: {services} Services with an Ingress, {proxies} ReverseProxies, \
             {app_services} AppServices, {bindings} EcsBindings, {streams} StreamIngresses"
        )
    }
}

fn tenant(number: usize) -> String {
    format!("tenant-{:02}", number % NAMESPACES)
}

fn object(api_version: &str, kind: &str, namespace: Option<&str>, name: &str, rest: Value) -> Value {
    let mut object = rest;
    object["apiVersion"] = json!(api_version);
    object["kind"] = json!(kind);
    object["metadata"]["name"] = json!(name);
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn service_with_ingress(number: usize) -> Value {
    let rest = json!({
        "metadata": {"annotations": {"ingress/http": "example.dev"}, "labels": {"app": format!("web-{number}")}},
        "spec": {"selector": {"app": format!("web-{number}")}, "ports": [{"port": 80, "targetPort": 8080}]},
    });
    object("v1", "Service", Some(&tenant(number)), &format!("web-{number}"), rest)
}

/// Returns an AppService without replicas: nothing here runs Pods.
fn app_service(number: usize) -> Value {
    let rest = json!({"spec": {"size": 0, "image": "nginx:1.7.9", "ports": [{"port": 80, "targetPort": 80}]}});
    object(
        "kosmos.io/v1",
        "AppService",
        Some(&tenant(number)),
        &format!("app-{number}"),
        rest,
    )
}

fn proxy(number: usize) -> Value {
    let rest = json!({"spec": {
        "replicas": 0, "proxyPass": format!("https://site-{number}.example.dev"),
        "proxySetHeader": {"x-powered-by": "nginx-operator"},
        "rewrite": [{"regex": "^/foo(.*)$", "replacement": "/bar$1"}],
    }});
    let name = format!("proxy-{number}");
    object("nginx.lin2ur.cn/v1", "ReverseProxy", Some(&tenant(number)), &name, rest)
}

fn node(number: usize) -> Value {
    let rest = json!({"status": {"addresses": [{"type": "InternalIP", "address": address(number)}]}});
    object("v1", "Node", None, &format!("node-{number}"), rest)
}

fn binding(number: usize) -> Value {
    let rest = json!({"spec": {
        "id": format!("i-{number}"), "name": "web-server", "nodename": format!("node-{number}"), "innerip": address(number),
    }});
    object("hopegi.com/v1", "EcsBinding", None, &format!("ecs-{number}"), rest)
}

fn address(number: usize) -> String {
    format!("10.0.{}.{}", number / 250, number % 250 + 1)
}

/// Returns a stream to the Service of the same number.
fn stream(number: usize) -> Value {
    let rest =
        json!({"spec": {"listen": 10_000 + number, "upstream": {"service": format!("web-{number}"), "port": 80}}});
    let name = format!("stream-{number}");
    object(
        "nginx-stream.jeffthecoder.xyz/v1beta1",
        "StreamIngress",
        Some(&tenant(number)),
        &name,
        rest,
    )
}

fn collection(client: &Client, api_version: &str, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let kind = GroupVersionKind::gvk(group, version, kind);
    let resource = match kind.kind.as_str() {
        // Its CRD has the singular there, too.
        "EcsBinding" => ApiResource::from_gvk_with_plural(&kind, "ecsbinding"),
        _ => ApiResource::from_gvk(&kind),
    };
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

async fn create_all(client: &Client, objects: Vec<Value>) -> Outcome<()> {
    let create = |object: Value| async move {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().unwrap_or_default();
        let namespace = object.metadata.namespace.as_deref();
        let api = collection(client, &types.api_version, &types.kind, namespace);
        let _ = api.create(&PostParams::default(), &object).await?;
        Outcome::Ok(())
    };
    futures::stream::iter(objects)
        .map(create)
        .buffer_unordered(IN_FLIGHT)
        .try_collect()
        .await
}

async fn count_of(
    client: &Client,
    api_version: &str,
    kind: &str,
    counts: impl Fn(&DynamicObject) -> bool,
) -> Outcome<usize> {
    let all = collection(client, api_version, kind, None);
    let mut parameters = ListParams::default().limit(PAGE);
    let mut count = 0;
    loop {
        let page = all.list(&parameters).await?;
        count += page.items.iter().filter(|object| counts(object)).count();
        match page.metadata.continue_ {
            Some(next) if !next.is_empty() => parameters.continue_token = Some(next),
            _ => return Ok(count),
        }
    }
}
