//! Test bed with a host that follows Plugin resources on a simulated cluster, and a plugin directory; reads the
//! resources' status.
#![allow(
    clippy::missing_panics_doc,
    clippy::unwrap_used,
    missing_docs,
    reason = "all of it is for tests"
)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_runtime::HostOptions;
use pilothouse_testkit::cluster::Cluster;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::components;
use crate::host::RuntimeHost;
use crate::stage::{Stage, create, unhurried};

/// A host that follows Plugin resources.
pub struct Fleet {
    pub stage: Stage,
    folder: TempDir,
}

impl Fleet {
    /// Starts the host; there is no Plugin yet.
    pub async fn start() -> Self {
        Self::start_with(Cluster::simulated(), HostOptions::default()).await
    }

    pub async fn start_with(cluster: Cluster, options: HostOptions) -> Self {
        Self::start_host_with(cluster, RuntimeHost::new(options, unhurried())).await
    }

    /// Starts this host.
    pub async fn start_host_with(cluster: Cluster, host: RuntimeHost) -> Self {
        let mut fleet = Self {
            stage: Stage { cluster, host },
            folder: tempfile::tempdir().unwrap(),
        };
        fleet.start_host().await;
        let served = async {
            while !is_served(fleet.client().await).await {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let within = tokio::time::timeout(Duration::from_mins(1), served).await;
        assert!(within.is_ok(), "the CRD of Plugin comes: {}", fleet.log());
        fleet
    }

    /// Starts the host again after it was stopped.
    pub async fn start_host(&mut self) {
        let folder = self.folder.path().to_owned();
        let Stage { cluster, host } = &mut self.stage;
        host.start_by_resources(cluster, folder).await.unwrap();
    }

    pub async fn client(&self) -> Client {
        self.stage.cluster.client().await.unwrap()
    }

    /// Writes a built component to the plugin directory atomically; with another mark it is another version.
    pub fn put(&self, component: &str, file: &str, mark: u8) {
        let mut bytes = std::fs::read(components::folder().join(format!("{component}.wasm"))).unwrap();
        // A custom section, which changes nothing but the digest.
        bytes.extend([0, 3, 1, b'm', mark]);
        self.put_bytes(file, &bytes);
    }

    pub fn put_bytes(&self, file: &str, bytes: &[u8]) {
        let new = self.path("new");
        std::fs::write(&new, bytes).unwrap();
        std::fs::rename(new, self.path(file)).unwrap();
    }

    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Makes a Plugin; limits are such that a machine under load changes nothing.
    pub async fn plugin(&self, name: &str, spec: Value) {
        create(self.client().await, &plugin(name, spec)).await;
    }

    /// Consents to the deletions of another version of a plugin.
    ///
    /// # Panics
    ///
    /// Where there is no such Plugin.
    pub async fn accept(&self, name: &str, what: &str) {
        let accepted = Patch::Merge(json!({"metadata": {"annotations": {"pilothouse.dev/accept": what}}}));
        let plugins = self.plugins().await;
        let sent = plugins.patch(name, &PatchParams::default(), &accepted).await;
        sent.expect("the Plugin is there");
    }

    /// Changes a Plugin's spec by a merge patch.
    pub async fn change(&self, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.plugins()
            .await
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    pub async fn delete(&self, name: &str) {
        self.plugins()
            .await
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    pub async fn plugins(&self) -> Api<DynamicObject> {
        plugins(self.client().await)
    }

    pub fn status(&self, name: &str) -> Value {
        self.stage
            .find("Plugin", name)
            .map(|mut plugin| plugin["status"].take())
            .unwrap_or_default()
    }

    pub fn condition(&self, name: &str, kind: &str) -> Value {
        condition(&self.status(name), kind)
    }

    /// Waits until a condition of a Plugin has this status and reason, about the present spec. If the version before runs,
    /// `Ready` is about its spec, and another condition says why the present one does not run.
    pub async fn says(&self, name: &str, kind: &str, status: &str, reason: &str) -> Value {
        let seen = self.stage.until(|stage| {
            let plugin = stage.find("Plugin", name)?;
            let found = condition(&plugin["status"], kind);
            let is_about = |found: &Value| found["observedGeneration"] == plugin["metadata"]["generation"];
            let is_explained = || {
                let obstacles = ["Reconciling", "Stalled"].map(|kind| condition(&plugin["status"], kind));
                reason == "PreviousVersion" && obstacles.iter().any(is_about)
            };
            let is_new = is_about(&found) || is_explained();
            (is_new && found["status"] == status && found["reason"] == reason).then_some(found)
        });
        let seen = seen.await;
        seen.unwrap_or_else(|| {
            panic!(
                "{name} does not say {kind}={status}/{reason}: {:#}\n{}",
                self.status(name),
                self.log()
            )
        })
    }

    pub async fn is_ready(&self, name: &str) {
        self.says(name, "Ready", "True", "Running").await;
    }

    /// Waits until the Plugin of this name has gone.
    pub async fn is_gone(&self, name: &str) {
        self.until("the Plugin goes", |stage| stage.find("Plugin", name).is_none())
            .await;
    }

    /// Waits so long that the next Plugin is younger: their ages are compared by whole seconds.
    pub async fn a_second(&self) {
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Stage) -> bool) {
        let seen = self.stage.until(|stage| holds(stage).then_some(())).await;
        assert!(seen.is_some(), "it does not come that {what}:\n{}", self.log());
    }

    pub fn log(&self) -> String {
        self.stage.lines(&[]).join("\n")
    }
}

/// Time limit of one step on a real cluster, on a busy machine.
const WITHIN: Duration = Duration::from_mins(2);

/// Waits until something holds on a real cluster.
pub async fn until_real(what: &str, fleet: &Fleet, mut holds: impl AsyncFnMut() -> bool) {
    let begun = Instant::now();
    while !holds().await {
        assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", fleet.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

pub fn plugin(name: &str, mut spec: Value) -> Value {
    if spec.get("limits").is_none() {
        spec["limits"] = json!({"callMilliseconds": 10_000});
    }
    json!({"apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}, "spec": spec})
}

pub fn plugins(client: Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin");
    Api::all_with(client, &ApiResource::from_gvk(&kind))
}

pub fn condition(status: &Value, kind: &str) -> Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let mut found = conditions.filter(|condition| condition["type"] == kind);
    found.next().cloned().unwrap_or_default()
}

async fn is_served(client: Client) -> bool {
    plugins(client).list(&kube::api::ListParams::default()).await.is_ok()
}
