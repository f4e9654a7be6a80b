//! Merges the documents of several replicas that share the work, and tells which replicas have not answered.

use std::collections::BTreeSet;

use pilothouse_runtime::api::documents::{
    ControllerStatus, HostStatus, PluginStatus, PluginUsageDocument, StatusDocument, UsageDocument,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The most failing objects that are listed, as a host does.
const MOST_FAILING: usize = 100;

/// Document of which each replica has its own.
pub trait ReplicaDocument: DeserializeOwned + Serialize + Clone {
    /// Returns the process that answered.
    fn host(&self) -> &HostStatus;

    /// Adds another replica's document.
    fn add(&mut self, other: Self);

    /// Sorts the sum, once all documents are added.
    fn finish(&mut self);
}

/// Answers of a host's replicas: one, or with sharding those of all that could be reached.
#[derive(Clone, Debug)]
pub struct Replies<T> {
    /// The documents; at least one.
    documents: Vec<T>,
    /// Text of the answer if there is only one.
    text: String,
}

/// Documents of all replicas as one, and the replicas' identities.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Sum<T> {
    /// The document that one process with all of the work would have.
    #[serde(flatten)]
    pub document: T,
    /// The processes that answered.
    pub replicas: Vec<HostStatus>,
    /// Identities of the replicas that live, by their Leases, and did not answer.
    pub silent_replicas: Vec<String>,
}

impl<T: ReplicaDocument> Replies<T> {
    /// Returns the first reply, with its text.
    pub fn new(text: String, document: T) -> Self {
        Self {
            documents: vec![document],
            text,
        }
    }

    /// Adds another reply. If a process answered before, its last answer counts.
    pub fn take(&mut self, document: T) {
        let who = identity(document.host());
        match self.documents.iter_mut().find(|known| identity(known.host()) == who) {
            Some(known) => *known = document,
            None => self.documents.push(document),
        }
    }

    /// Returns the number of replicas, as far as it is known.
    pub fn expected(&self) -> usize {
        self.silent().len() + self.documents.len()
    }

    /// Returns the identities of the replicas that have not answered.
    pub fn silent(&self) -> Vec<String> {
        let living: BTreeSet<&String> = self.documents.iter().flat_map(|it| &it.host().replicas).collect();
        let has_answered = |who: &str| self.documents.iter().any(|it| identity(it.host()) == who);
        living.into_iter().filter(|who| !has_answered(who)).cloned().collect()
    }

    /// Returns the document of each process.
    pub fn documents(&self) -> impl Iterator<Item = &T> {
        self.documents.iter()
    }

    /// Returns replies with each document changed.
    pub fn map(&self, change: impl Fn(&T) -> T) -> Self {
        Self {
            documents: self.documents.iter().map(change).collect(),
            text: self.text.clone(),
        }
    }

    /// Returns all documents as one.
    pub fn sum(&self) -> Sum<T> {
        let mut documents = self.documents.clone();
        documents.sort_by_key(|it| (!it.host().is_leading, identity(it.host()).to_owned()));
        let replicas = documents.iter().map(|it| it.host().clone()).collect();
        let mut documents = documents.into_iter();
        let mut document = documents.next().expect("there is at least one reply");
        documents.for_each(|other| document.add(other));
        document.finish();
        Sum {
            document,
            replicas,
            silent_replicas: self.silent(),
        }
    }

    /// Returns JSON: the text as received if there is one replica, else the sum.
    pub fn as_json(&self) -> serde_json::Result<String> {
        match &*self.documents {
            [only] if only.host().shards_held.is_none() => Ok(self.text.clone()),
            _ => Ok(serde_json::to_string(&self.sum())? + "\n"),
        }
    }
}

/// Returns a message that some replicas have not answered; none if all have.
pub fn silence(silent: &[String]) -> Option<String> {
    let (last, others) = silent.split_last()?;
    Some(if others.is_empty() {
        format!(
            "The replica {last} lives, by its Lease, and has not answered: what it works at is not in these numbers."
        )
    } else {
        let others = others.join(", ");
        format!(
            "The replicas {others} and {last} live, by their Leases, and have not answered: what they work at is not in these \
             numbers."
        )
    })
}

/// Returns the identity that distinguishes a process from another.
fn identity(host: &HostStatus) -> &str {
    host.identity.as_deref().unwrap_or(&host.instance)
}

impl ReplicaDocument for StatusDocument {
    fn host(&self) -> &HostStatus {
        &self.host
    }

    fn add(&mut self, other: Self) {
        let Self {
            host,
            plugins,
            failing,
            failing_not_listed,
        } = other;
        for plugin in plugins {
            match self.plugins.iter_mut().find(|known| known.name == plugin.name) {
                Some(known) => add_plugin(known, plugin, &host.instance),
                None => self.plugins.push(plugin),
            }
        }
        // An object that has just moved from one replica to another may be reported by both.
        for object in failing {
            let is_same = |known: &&pilothouse_runtime::api::documents::FailingObject| {
                (&known.plugin, &known.controller, &known.object)
                    == (&object.plugin, &object.controller, &object.object)
            };
            if !self.failing.iter().any(|known| is_same(&known)) {
                self.failing.push(object);
            }
        }
        self.failing_not_listed += failing_not_listed;
    }

    fn finish(&mut self) {
        self.plugins.sort_by(|one, other| one.name.cmp(&other.name));
        self.failing
            .sort_by(|one, other| one.failure.since.cmp(&other.failure.since));
        let more = self.failing.len().saturating_sub(MOST_FAILING);
        self.failing.truncate(MOST_FAILING);
        self.failing_not_listed += more as u64;
    }
}

/// Adds a plugin of another replica. Its readiness is the worst of all replicas.
fn add_plugin(known: &mut PluginStatus, other: PluginStatus, instance: &str) {
    let PluginStatus {
        name: _,
        version,
        digest,
        ready,
        reason,
        message,
        obstacle,
        warnings,
        controllers,
    } = other;
    let rank = |ready: Option<bool>| match ready {
        Some(true) => 0,
        None => 1,
        Some(false) => 2,
    };
    if rank(ready) > rank(known.ready) {
        (known.ready, known.reason) = (ready, reason);
        known.message = format!("at replica {instance}: {message}");
    }
    if known.obstacle.is_none() {
        known.obstacle = obstacle;
    }
    if known.version.is_none() {
        (known.version, known.digest) = (version, digest);
    }
    for warning in warnings {
        if !known.warnings.contains(&warning) {
            known.warnings.push(warning);
        }
    }
    for controller in controllers {
        let is_same =
            |known: &&mut ControllerStatus| (&known.name, &known.kind) == (&controller.name, &controller.kind);
        match known.controllers.iter_mut().find(is_same) {
            Some(known) => add_controller(known, &controller),
            None => known.controllers.push(controller),
        }
    }
}

fn add_controller(known: &mut ControllerStatus, other: &ControllerStatus) {
    let ControllerStatus {
        name: _,
        kind: _,
        synced,
        lacks_kind,
        objects,
        queued,
        oldest_queued_seconds,
        running,
        delayed,
        held,
        failing,
        paused,
    } = other;
    known.synced &= synced;
    known.lacks_kind |= lacks_kind;
    known.oldest_queued_seconds = known.oldest_queued_seconds.max(*oldest_queued_seconds);
    for (sum, more) in [
        (&mut known.objects, objects),
        (&mut known.queued, queued),
        (&mut known.running, running),
        (&mut known.delayed, delayed),
        (&mut known.held, held),
        (&mut known.failing, failing),
        (&mut known.paused, paused),
    ] {
        *sum += more;
    }
}

impl ReplicaDocument for UsageDocument {
    fn host(&self) -> &HostStatus {
        &self.host
    }

    fn add(&mut self, other: Self) {
        for plugin in other.plugins {
            match self.plugins.iter_mut().find(|known| known.plugin == plugin.plugin) {
                Some(known) => add_usage(known, &plugin),
                None => self.plugins.push(plugin),
            }
        }
    }

    fn finish(&mut self) {
        self.plugins.sort_by(|one, other| one.plugin.cmp(&other.plugin));
    }
}

fn add_usage(known: &mut PluginUsageDocument, other: &PluginUsageDocument) {
    let PluginUsageDocument {
        plugin: _,
        reconciles,
        failures,
        reconcile_seconds,
        call_seconds,
        requests,
        largest_call_bytes,
        dependency_bytes,
        objects,
        awake,
    } = other;
    for (sum, more) in [
        (&mut known.reconciles, reconciles),
        (&mut known.failures, failures),
        (&mut known.requests, requests),
        (&mut known.dependency_bytes, dependency_bytes),
        (&mut known.objects, objects),
    ] {
        *sum += more;
    }
    known.reconcile_seconds += reconcile_seconds;
    known.call_seconds += call_seconds;
    known.largest_call_bytes = known.largest_call_bytes.max(*largest_call_bytes);
    known.awake |= awake;
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn host(name: &str, leads: bool, replicas: &[&str]) -> Value {
        json!({"instance": name, "identity": format!("{name}_1"), "isLeading": leads, "shardsHeld": 2,
               "started": "2026-01-02T03:00:00Z", "replicas": replicas})
    }

    fn status(host: &Value, ready: Option<bool>, objects: u64, failing: &[(&str, &str)]) -> StatusDocument {
        let failing: Vec<Value> = failing
            .iter()
            .map(|(name, since)| {
                json!({"plugin": "a", "controller": "c", "failure": {"since": since},
                       "object": {"apiVersion": "x.dev/v1", "kind": "App", "namespace": "n", "name": name}})
            })
            .collect();
        let document = json!({
            "host": host,
            "plugins": [{"name": "a", "version": "1", "ready": ready, "reason": "R", "message": "m", "controllers": [
                {"name": "c", "synced": true, "objects": objects, "queued": 1, "oldestQueuedSeconds": objects, "running": 2,
                 "delayed": 3, "held": 4, "failing": failing.len()},
            ]}],
            "failing": failing, "failingNotListed": 1,
        });
        serde_json::from_value(document).unwrap()
    }

    fn replies<T: ReplicaDocument>(documents: impl IntoIterator<Item = T>) -> Replies<T> {
        let mut documents = documents.into_iter();
        let mut replies = Replies::new("as it came".to_owned(), documents.next().unwrap());
        documents.for_each(|document| replies.take(document));
        replies
    }

    #[test]
    fn what_replicas_say_of_their_plugins_and_objects_adds_up() {
        let all = ["one_1", "two_1"];
        let (one, two) = (host("one", false, &all), host("two", true, &all));
        let mut replies = replies([
            status(
                &one,
                Some(false),
                3,
                &[("late", "2026-01-02T03:00:09Z"), ("moved", "2026-01-02T03:00:05Z")],
            ),
            status(
                &two,
                Some(true),
                4,
                &[("moved", "2026-01-02T03:00:05Z"), ("early", "2026-01-02T03:00:01Z")],
            ),
        ]);
        // A process that answers again is still the same one.
        replies.take(status(&one, Some(false), 5, &[("late", "2026-01-02T03:00:09Z")]));
        let sum = replies.sum();
        assert_eq!(sum.silent_replicas, Vec::<String>::new());
        assert_eq!(sum.replicas.len(), 2);
        let StatusDocument {
            host,
            plugins,
            failing,
            failing_not_listed,
        } = sum.document;
        assert_eq!(host.instance, "two", "the leader speaks for all");
        let [plugin] = &*plugins else { panic!("{plugins:?}") };
        assert_eq!((plugin.ready, &*plugin.message), (Some(false), "at replica one: m"));
        let [controller] = &*plugin.controllers else {
            panic!("{plugin:?}")
        };
        let counts = [
            controller.objects,
            controller.queued,
            controller.running,
            controller.delayed,
            controller.held,
        ];
        assert_eq!((counts, controller.failing), ([9, 2, 4, 6, 8], 3));
        assert!((controller.oldest_queued_seconds - 5.0).abs() < f64::EPSILON);
        let names: Vec<&str> = failing.iter().map(|it| &*it.object.name).collect();
        assert_eq!((names, failing_not_listed), (vec!["early", "moved", "late"], 2));
    }

    #[test]
    fn no_more_failing_objects_are_listed_than_by_one_host() {
        let names: Vec<String> = (0..160).map(|number| format!("app-{number}")).collect();
        let failing: Vec<(&str, &str)> = names.iter().map(|name| (&**name, "2026-01-02T03:00:05Z")).collect();
        let all = ["one_1", "two_1"];
        let sum = replies([
            status(&host("one", true, &all), Some(true), 3, &failing[..80]),
            status(&host("two", false, &all), Some(true), 4, &failing[80..]),
        ])
        .sum();
        assert_eq!((sum.document.failing.len(), sum.document.failing_not_listed), (100, 62));
    }

    #[test]
    fn what_replicas_use_adds_up() {
        let usage = |name: &str, factor: u64| -> UsageDocument {
            let plugin = json!({
                "plugin": "a", "reconciles": factor, "failures": factor, "reconcileSeconds": factor, "callSeconds": factor,
                "requests": factor, "largestCallBytes": factor, "dependencyBytes": factor, "objects": factor,
                "awake": factor > 2,
            });
            let document = json!({"host": host(name, false, &[]), "plugins": [plugin]});
            serde_json::from_value(document).unwrap()
        };
        let sum = replies([usage("one", 2), usage("two", 3)]).sum().document;
        let expected = json!({
            "plugin": "a", "reconciles": 5, "failures": 5, "reconcileSeconds": 5.0, "callSeconds": 5.0, "requests": 5,
            "largestCallBytes": 3, "dependencyBytes": 5, "objects": 5, "awake": true,
        });
        assert_eq!(serde_json::to_value(&sum.plugins).unwrap(), json!([expected]));
    }

    #[test]
    fn replicas_that_live_and_do_not_answer_are_named() {
        let one = status(&host("one", true, &["one_1", "three_1", "two_1"]), Some(true), 3, &[]);
        let mut replies = replies([one]);
        assert_eq!(
            (replies.silent(), replies.expected()),
            (vec!["three_1".to_owned(), "two_1".to_owned()], 3)
        );
        // A replica that the others do not know yet counts, too.
        replies.take(status(&host("four", false, &["four_1"]), Some(true), 1, &[]));
        assert_eq!(replies.expected(), 4);
        let printed: Value = serde_json::from_str(&replies.as_json().unwrap()).unwrap();
        assert_eq!(printed["silentReplicas"], json!(["three_1", "two_1"]));
        assert_eq!(printed["replicas"][1]["instance"], "four");
        assert_eq!(printed["plugins"][0]["controllers"][0]["objects"], 4);
    }

    #[test]
    fn the_answer_of_a_host_without_shards_is_printed_as_it_came() {
        let document: StatusDocument = serde_json::from_value(json!({"host": {"instance": "one"}})).unwrap();
        let replies = replies([document]);
        assert_eq!(replies.as_json().unwrap(), "as it came");
        assert_eq!(replies.expected(), 1);
    }
}
