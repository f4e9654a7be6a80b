//! State of the simulated cluster under its one lock: objects, kinds, randomness, time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

use serde_json::{Value, json};

use crate::addresses::Addresses;
use crate::clock::Clock;
use crate::controllers::ownership::Ownership;
use crate::custom::definition;
use crate::kinds::{Kinds, Resource, Storage};
use crate::options::{Controllers, Options};
use crate::random::Random;
use crate::resource::Key;
use crate::store::Store;
use crate::webhooks::consultation::Consultation;

/// Namespaces that every cluster has.
const FIRST_NAMESPACES: &[&str] = &["default", "kube-node-lease", "kube-public", "kube-system"];

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    pub(crate) random: Random,
    pub(crate) clock: Clock,
    pub(crate) controllers: Controllers,
    /// Counts changes of what is served, for the ETags of discovery and OpenAPI.
    pub(crate) kinds_generation: u64,
    /// The definitions that are served, by uid, with the generation that is.
    served: BTreeMap<String, i64>,
    /// Webhook calls while a client's request is carried out; None at all other times.
    pub(crate) consultation: Option<Consultation>,
    /// Owners of objects, as far as the garbage collector has seen them.
    pub(crate) ownership: Ownership,
    /// Services by their cluster IPs.
    pub(crate) addresses: Addresses,
    /// Objects that the controllers look at again, and when.
    pub(crate) timers: BTreeSet<(SystemTime, Storage, Key)>,
}

impl State {
    pub(crate) fn new(options: Options) -> Self {
        let mut state = Self {
            store: Store::new(options.history),
            kinds: Kinds::builtin(),
            random: Random::new(options.seed),
            clock: options.clock,
            controllers: options.controllers,
            kinds_generation: 0,
            served: BTreeMap::new(),
            consultation: None,
            ownership: Ownership::default(),
            addresses: Addresses::default(),
            timers: BTreeSet::new(),
        };
        for name in FIRST_NAMESPACES {
            let namespace = json!({
                "apiVersion": "v1",
                "kind": "Namespace",
                "metadata": {
                    "name": name,
                    "uid": state.random.uid(),
                    "creationTimestamp": state.clock.timestamp(),
                    "labels": {"kubernetes.io/metadata.name": name},
                },
                "spec": {"finalizers": ["kubernetes"]},
                "status": {"phase": "Active"},
            });
            state.store.put(&Storage::new("", "namespaces"), namespace);
        }
        state
    }

    pub(crate) fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.store.get(&Storage::new(group, plural), &Key::new(namespace, name))
    }

    /// The resource through which the server's own controllers write.
    pub(crate) fn resource(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.kinds.of_storage(&Storage::new(group, plural)).cloned()
    }

    /// Returns `true` if a definition is new, or has changed since it was last served.
    pub(crate) fn needs_serving(&self, definition: &Value) -> bool {
        let (uid, generation) = version_of(definition);
        self.served.get(&uid) != Some(&generation)
    }

    /// Serves a definition in place of its old form.
    pub(crate) fn serve_definition(&mut self, definition: &Value) {
        let spec = &definition["spec"];
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        self.kinds
            .remove(&word(&spec["group"]), &word(&spec["names"]["plural"]));
        for resource in definition::resources(definition) {
            self.kinds.add(resource);
        }
        let (uid, generation) = version_of(definition);
        self.served.insert(uid, generation);
        self.kinds_generation += 1;
    }

    pub(crate) fn stop_serving(&mut self, definition: &Value) {
        let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (group, plural) = (
            word(&definition["spec"]["group"]),
            word(&definition["spec"]["names"]["plural"]),
        );
        self.kinds.remove(&group, &plural);
        self.store.close_watches(&Storage::new(&group, &plural));
        self.served.remove(&version_of(definition).0);
        self.kinds_generation += 1;
    }
}

fn version_of(object: &Value) -> (String, i64) {
    let metadata = &object["metadata"];
    (
        metadata["uid"].as_str().unwrap_or_default().to_owned(),
        metadata["generation"].as_i64().unwrap_or(0),
    )
}
