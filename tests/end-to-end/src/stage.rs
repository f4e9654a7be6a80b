//! Test bed with a simulated cluster and a host in this process; reads its objects.
#![allow(clippy::unwrap_used, missing_docs, reason = "all of it is for tests")]

use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_core::Limits;
use pilothouse_runtime::{HostOptions, StaticPlugin};
use pilothouse_simulator::Simulator;
pub use pilothouse_testhost::unhurried;
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::host::SteeredHost as _;
use pilothouse_testkit::requests::Request;
use serde_json::{Value, json};

use crate::host::RuntimeHost;

/// Time limit of a wait, by the clock of the test.
const WITHIN: Duration = Duration::from_mins(1);

/// A simulated cluster and a host on it.
pub struct Stage {
    pub cluster: Cluster,
    pub host: RuntimeHost,
}

impl Stage {
    /// Starts a host with these plugins, before any object is there.
    pub async fn with(plugins: &[&str], limits: Limits) -> Self {
        let mut stage = Self::empty(limits);
        let specs = plugins.iter().map(|name| stage.host.spec(name).unwrap()).collect();
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        stage
    }

    /// A cluster and a host that does not run yet.
    pub fn empty(limits: Limits) -> Self {
        Self {
            cluster: Cluster::simulated(),
            host: RuntimeHost::new(HostOptions::default(), limits),
        }
    }

    pub async fn start(&mut self, specs: Vec<StaticPlugin>) {
        self.host.start_with(&self.cluster, specs).await.unwrap();
    }

    /// A plugin with a configuration.
    pub fn configured(&self, plugin: &str, config: Value) -> StaticPlugin {
        StaticPlugin {
            config: Some(config),
            ..self.host.spec(plugin).unwrap()
        }
    }

    pub async fn create(&self, object: &Value) {
        create(self.cluster.client().await.unwrap(), object).await;
    }

    /// Waits until the host has ended by itself: why it did.
    pub async fn until_ended(mut self) -> String {
        while self.host.failure().is_none() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.host.stop().await.unwrap_err().to_string()
    }

    /// Changes a Hostile of the namespace `default` by a merge patch.
    pub async fn patch_hostile(&self, name: &str, patch: &Value) {
        self.patch_hostile_of("default", name, patch).await;
    }

    /// Changes a Hostile by a merge patch.
    pub async fn patch_hostile_of(&self, namespace: &str, name: &str, patch: &Value) {
        let hostiles = self.hostiles(namespace).await;
        hostiles
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Deletes a Hostile of the namespace `default`.
    pub async fn delete_hostile(&self, name: &str) {
        let hostiles = self.hostiles("default").await;
        let _ = hostiles.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn hostiles(&self, namespace: &str) -> Api<DynamicObject> {
        let client = self.cluster.client().await.unwrap();
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("hostile.test.dev", "v1", "Hostile"));
        Api::namespaced_with(client, namespace, &resource)
    }

    /// The API server.
    pub fn simulator(&self) -> &Simulator {
        let Cluster::Simulated(simulated) = &self.cluster else {
            unreachable!("a stage is simulated")
        };
        simulated.simulator()
    }

    /// Every object of the cluster that is of this kind.
    pub fn all(&self, kind: &str) -> Vec<Value> {
        self.simulator().objects_of(|_, object| object["kind"] == kind)
    }

    /// An object of the namespace `default`.
    pub fn find(&self, kind: &str, name: &str) -> Option<Value> {
        self.all(kind)
            .into_iter()
            .find(|object| object["metadata"]["name"] == name)
    }

    /// The condition `Reconciled` of an object.
    pub fn reconciled(&self, kind: &str, name: &str) -> Option<Value> {
        let object = self.find(kind, name)?;
        let conditions = object["status"]["conditions"].as_array()?;
        conditions
            .iter()
            .find(|condition| condition["type"] == "Reconciled")
            .cloned()
    }

    pub fn is_reconciled(&self, kind: &str, name: &str) -> bool {
        self.reconciled(kind, name)
            .is_some_and(|condition| condition["status"] == "True")
    }

    /// The events about an object, by their reason, as they are stored: in the form of the core group.
    pub fn events(&self, name: &str, reason: &str) -> Vec<Value> {
        let mut events = self.all("Event");
        events.retain(|event| event["involvedObject"]["name"] == name && event["reason"] == reason);
        events
    }

    /// Waits until something holds; none when it does not in time.
    pub async fn until<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> Option<T> {
        let seen = async {
            loop {
                if let Some(seen) = look(self) {
                    return seen;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(WITHIN, seen).await.ok()
    }

    /// Lets a minute pass: events in it show in the log of requests and in the host's own.
    pub async fn minute(&self) {
        tokio::time::sleep(Duration::from_mins(1)).await;
    }

    pub fn mark(&self) -> Mark {
        self.cluster.mark().unwrap()
    }

    pub fn host_writes_since(&self, mark: Mark) -> Vec<Request> {
        let mut requests = self.cluster.requests_since(mark).unwrap();
        requests.retain(|request| request.is_write() && request.is_by_host());
        requests
    }

    /// The host's log lines that have all these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let log = self.host.log_tail();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        log.lines().filter(has_all).map(str::to_owned).collect()
    }

    /// Waits until well-behaved objects of both plugins have their children.
    pub async fn neighbours_are_well(&self) -> bool {
        let well = |stage: &Self| {
            let both = stage.is_reconciled("Hostile", "neighbour") && stage.is_reconciled("AppService", "web");
            let children = stage.find("ConfigMap", "neighbour").is_some() && stage.find("Deployment", "web").is_some();
            (both && children).then_some(())
        };
        self.until(well).await.is_some()
    }

    /// Stops the host in order.
    pub async fn stop(mut self) {
        assert_eq!(self.host.failure(), None, "{}", self.host.log_tail());
        let left = self.host.stop().await.unwrap();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Creates an object in its place.
pub async fn create(client: Client, object: &Value) {
    let (group, version) = object["apiVersion"]
        .as_str()
        .unwrap()
        .split_once('/')
        .unwrap_or(("", "v1"));
    let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
    let resource = ApiResource::from_gvk(&kind);
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, &resource),
        None => Api::all_with(client, &resource),
    };
    api.create(&PostParams::default(), &object).await.unwrap();
}

/// A Hostile of the namespace `default`.
pub fn hostile(name: &str, spec: &Value) -> Value {
    let metadata = json!({"name": name, "namespace": "default"});
    json!({"apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "metadata": metadata, "spec": spec})
}

/// An `AppService` of the namespace `default`.
pub fn app_service(name: &str) -> Value {
    json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": name, "namespace": "default"},
        "spec": {"size": 1, "image": "nginx:1.7.9", "ports": [{"port": 80, "targetPort": 80, "nodePort": 30101}]},
    })
}
