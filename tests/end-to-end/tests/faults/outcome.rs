//! Outcome of a story, and the comparison of two: every object, the count of its creations and deletions, and the
//! writes after everything has settled.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt as _;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_end_to_end::stage::Stage;
use pilothouse_testkit::cluster::Mark;
use pilothouse_testkit::requests::Request;
use serde_json::Value;
use tokio::task::JoinSet;

/// Counted kinds: those that plugins make.
const COUNTED: [(&str, &str); 3] = [("", "ConfigMap"), ("apps", "Deployment"), ("", "Service")];

/// Outcome of a story.
#[derive(Clone)]
pub struct Outcome {
    /// Every object, without the parts that differ in every run.
    pub objects: BTreeMap<String, Value>,
    /// Counts of creations and deletions of each object of a kind that plugins make.
    pub births: BTreeMap<String, Counts>,
    /// Count of the host's writes to each object that a plugin owns, by verb and status code.
    pub writes: BTreeMap<String, usize>,
    /// Writes of the host in two resyncs and a minute after everything has settled.
    pub writes_when_calm: Vec<Request>,
    /// The host's log.
    pub log: String,
}

/// Counts the writes since then of owned objects. Contributions are written in bursts, which differ in every run.
pub fn writes(stage: &Stage, since: Mark) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in stage.host_writes_since(since) {
        let Request {
            verb,
            resource,
            name,
            code,
            field_manager,
            ..
        } = request;
        let is_contributed = field_manager.is_some_and(|manager| manager.ends_with("/contributed"));
        if ["configmaps", "deployments", "services"].contains(&&*resource) && !is_contributed {
            *counts.entry(format!("{verb} {resource}/{name}: {code}")).or_insert(0) += 1;
        }
    }
    counts
}

/// Counts of an object's creations and deletions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    came: usize,
    went: usize,
}

impl Outcome {
    /// Fails where this differs from the outcome without faults.
    pub fn is_as(&self, quiet: &Self, fault: &str) {
        let log = &self.log;
        for (name, object) in &self.objects {
            assert_eq!(Some(object), quiet.objects.get(name), "{fault}: {name}\n{log}");
        }
        let names = |outcome: &Self| outcome.objects.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(quiet), "{fault}\n{log}");
        assert_eq!(self.births, quiet.births, "{fault}\n{log}");
        assert!(
            self.writes_when_calm.is_empty(),
            "{fault}: {:?}\n{log}",
            self.writes_when_calm
        );
    }
}

/// Returns every object of the cluster but events and those that the cluster's own controllers name at random.
pub fn objects(stage: &Stage) -> BTreeMap<String, Value> {
    let objects = stage.simulator().objects().into_iter();
    let told = objects.filter(|object| !["Event", "Pod"].iter().any(|kind| object["kind"] == *kind));
    let named = told.map(|mut object| {
        let metadata = &object["metadata"];
        let name = format!("{} {}/{}", object["kind"], metadata["namespace"], metadata["name"]);
        strip(&mut object);
        (name, object)
    });
    named.collect()
}

/// Removes the parts that differ in every run: identities, versions, times, how long a Deployment waits, and the
/// digest, which covers the owner's uid.
fn strip(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for random in [
                "uid",
                "resourceVersion",
                "creationTimestamp",
                "lastTransitionTime",
                "lastUpdateTime",
                "lastProbeTime",
                "managedFields",
                "pilothouse.dev/desired",
            ] {
                members.remove(random);
            }
            members.values_mut().for_each(strip);
        }
        Value::Array(items) => {
            // A Deployment whose pods never become ready times out after ten minutes, and its conditions stand in the order in
            // which they came.
            items.retain(|item| item["type"] != "Progressing");
            if items
                .iter()
                .all(|item| item["type"].is_string() && item["status"].is_string())
            {
                items.sort_by_key(|condition| condition["type"].to_string());
            }
            items.iter_mut().for_each(strip);
        }
        _ => {}
    }
}

/// Counts how often objects come and go.
pub struct Births {
    seen: Arc<Mutex<BTreeMap<String, Counts>>>,
    watches: JoinSet<()>,
}

impl Births {
    /// Counts from now on.
    pub async fn follow(stage: &Stage) -> Self {
        let seen = Arc::new(Mutex::new(BTreeMap::new()));
        let mut watches = JoinSet::new();
        for (group, kind) in COUNTED {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
            let client: Client = stage.cluster.client().await.unwrap();
            watches.spawn(watch(
                Api::namespaced_with(client, "default", &resource),
                kind,
                seen.clone(),
            ));
        }
        Self { seen, watches }
    }

    /// Returns the counts of all objects.
    pub fn end(mut self) -> BTreeMap<String, Counts> {
        self.watches.abort_all();
        self.seen.lock().unwrap().clone()
    }
}

async fn watch(api: Api<DynamicObject>, kind: &'static str, seen: Arc<Mutex<BTreeMap<String, Counts>>>) {
    let mut version = "0".to_owned();
    loop {
        let mut events = api.watch(&WatchParams::default(), &version).await.unwrap().boxed();
        while let Some(Ok(event)) = events.next().await {
            let (object, came, went) = match event {
                WatchEvent::Added(object) => (object, 1, 0),
                WatchEvent::Deleted(object) => (object, 0, 1),
                WatchEvent::Modified(object) => (object, 0, 0),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => continue,
            };
            version = object.metadata.resource_version.unwrap_or(version);
            let name = format!("{kind} {}", object.metadata.name.unwrap_or_default());
            let mut seen = seen.lock().unwrap();
            let counts = seen.entry(name).or_default();
            counts.came += came;
            counts.went += went;
        }
    }
}
