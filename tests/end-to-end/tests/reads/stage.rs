//! Test bed of the tests of reads: a simulated cluster, a host in this process with readers on it, and the run count of
//! each of their objects.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_core::Limits;
use pilothouse_end_to_end::host::RuntimeHost;
use pilothouse_runtime::clock::WallClock;
use pilothouse_runtime::{HostOptions, StaticPlugin};
use pilothouse_testkit::cluster::{Cluster, Mark};
use pilothouse_testkit::host::SteeredHost as _;
use serde_json::{Value, json};

/// Time limit of a wait, by the clock of the test.
const WITHIN: Duration = Duration::from_mins(2);

/// Begin of each test by the host's clock, in milliseconds since the epoch.
pub const BEGINNING: u64 = 1_800_000_000_000;

/// A cluster with a host and its readers.
pub struct Stage {
    cluster: Cluster,
    beginning: Mark,
    host: RuntimeHost,
    /// The host's clock, which can be set.
    pub clock: WallClock,
}

impl Stage {
    /// A host with one reader for each entry: its name, which is also the label of its objects, and its touches.
    pub async fn with(readers: &[(&str, Value)]) -> Self {
        let cluster = Cluster::simulated();
        let beginning = cluster.mark().unwrap();
        // A call may take its time on a machine under load.
        let limits = Limits {
            call_milliseconds: 10_000,
            ..Limits::default()
        };
        let clock = WallClock::starting_at(BEGINNING);
        let mut host = RuntimeHost::new(
            HostOptions {
                clock: clock.clone(),
                ..HostOptions::default()
            },
            limits,
        );
        let specs = readers
            .iter()
            .map(|(name, touches)| StaticPlugin {
                name: Some((*name).to_owned()),
                config: Some(json!({"objects": format!("reader={name}"), "touches": touches})),
                ..host.spec("reader").unwrap()
            })
            .collect();
        host.start_with(&cluster, specs).await.unwrap();
        Self {
            cluster,
            beginning,
            host,
            clock,
        }
    }

    /// Makes an object of a reader that reads this.
    pub async fn object(&self, reader: &str, name: &str, reads: &Value) {
        let metadata = json!({"name": name, "namespace": "default", "labels": {"reader": reader},
                              "annotations": {"reader.test.dev/reads": reads.to_string()}});
        self.create(&json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}))
            .await;
    }

    /// Makes an object from text that may be more than a client would read.
    pub async fn post(&self, path: &str, object: String) {
        let client: Client = self.cluster.client().await.unwrap();
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(kube::client::Body::from(object.into_bytes()))
            .unwrap();
        let response = client.send(request).await.unwrap();
        assert!(response.status().is_success(), "{}", response.status());
    }

    /// The names of the objects that events with this reason are about, each once.
    pub fn told_of(&self, reason: &str) -> Vec<String> {
        let Cluster::Simulated(simulated) = &self.cluster else {
            unreachable!("a stage is simulated")
        };
        let events = simulated.simulator().objects().into_iter();
        let events = events.filter(|object| object["kind"] == "Event" && object["reason"] == reason);
        let names = events.filter_map(|event| Some(event["involvedObject"]["name"].as_str()?.to_owned()));
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Count of internal errors that the host has noticed.
    pub fn stuck(&self) -> u64 {
        self.host.handle().unwrap().stuck()
    }

    /// Makes an object.
    pub async fn create(&self, object: &Value) {
        let parsed: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        self.api(object)
            .await
            .create(&PostParams::default(), &parsed)
            .await
            .unwrap();
    }

    /// Changes an object by a merge patch; `object` says which.
    pub async fn patch(&self, object: &Value, patch: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = self.api(object).await;
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
    }

    /// Deletes an object.
    pub async fn delete(&self, object: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        let api = self.api(object).await;
        let _ = api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn api(&self, object: &Value) -> Api<DynamicObject> {
        let client: Client = self.cluster.client().await.unwrap();
        let api_version = object["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = GroupVersionKind::gvk(group, version, object["kind"].as_str().unwrap());
        let resource = ApiResource::from_gvk(&kind);
        match object["metadata"]["namespace"].as_str() {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        }
    }

    /// Returns the objects that a reader has seen, as it records them.
    pub fn seen(&self, name: &str) -> Option<Value> {
        let Cluster::Simulated(simulated) = &self.cluster else {
            unreachable!("a stage is simulated")
        };
        let objects = simulated.simulator().objects();
        let kept = objects
            .iter()
            .find(|object| object["kind"] == "ConfigMap" && object["metadata"]["name"] == name)?;
        serde_json::from_str(kept["data"]["seen"].as_str()?).ok()
    }

    /// Waits until an object has seen something that satisfies a condition.
    pub async fn sees(&self, name: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let seen = self.until(|stage| stage.seen(name).filter(&is_it)).await;
        seen.unwrap_or_else(|| panic!("{name} saw {:?}\n{}", self.seen(name), self.host.log_tail()))
    }

    /// Waits until something is there; none when it does not come.
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

    /// Lets time pass, for things that must not happen.
    pub async fn calm(&self) {
        tokio::time::sleep(Duration::from_mins(2)).await;
    }

    /// Count of the runs of an object.
    pub fn runs(&self, name: &str) -> usize {
        self.lines(&["DEBUG", " reconciled ", &format!("object=default/{name} ")])
            .len()
    }

    /// The host's log lines that have all these words.
    pub fn lines(&self, words: &[&str]) -> Vec<String> {
        let log = self.host.log_tail();
        let has_all = |line: &&str| words.iter().all(|word| line.contains(word));
        log.lines().filter(has_all).map(str::to_owned).collect()
    }

    pub fn mark(&self) -> Mark {
        self.cluster.mark().unwrap()
    }

    /// The verbs of the host's requests.
    pub fn asked_since(&self, mark: Mark) -> Vec<String> {
        let mut requests = self.cluster.requests_since(mark).unwrap();
        requests.retain(pilothouse_testkit::requests::Request::is_by_host);
        requests.into_iter().map(|request| request.verb).collect()
    }

    /// The names of what the host has written of a resource.
    pub fn writes(&self, resource: &str) -> Vec<String> {
        let mut requests = self.cluster.requests_since(self.beginning).unwrap();
        requests.retain(|request| request.is_write() && request.resource == resource && request.is_by_host());
        requests.into_iter().map(|request| request.name).collect()
    }

    /// Returns the namespaces in which the host has listed a resource; an empty one means all.
    pub fn listed(&self, resource: &str) -> Vec<String> {
        let mut requests = self.cluster.requests_since(self.beginning).unwrap();
        requests.retain(|request| request.verb == "list" && request.resource == resource && request.is_by_host());
        requests.into_iter().map(|request| request.namespace).collect()
    }
}
