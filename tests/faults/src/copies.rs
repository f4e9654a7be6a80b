//! Makes the primaries of a tenant: copies of the scenario's that disturb nobody by themselves, and the same edited,
//! made to fail, and nested.

use std::collections::{BTreeMap, BTreeSet};

use pilothouse_core::status::host_conditions::RECONCILED;
use pilothouse_simulator::Entry;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The most copies of one kind.
const SHOWN: usize = 3;

/// Ports that no scenario takes, from here on; each copy has as many to itself.
const FREE_PORT: usize = 40_000;
const PORTS: usize = 64;

/// Report of a host that it has reconciled an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Answer {
    /// By its condition.
    Condition,
    /// By an object that has it as its owner.
    Child,
    /// Never reconciled, or no primary.
    Never,
}

/// An object of the scenario that can be copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Original {
    pub group: String,
    /// `/api/v1` or `/apis/group/version`.
    prefix: String,
    pub plural: String,
    pub answer: Answer,
    /// Set if a plugin reconciles it, rightly or not.
    is_primary: bool,
    object: Value,
}

/// Returns the objects that plugins reconcile in a run without faults, and others whose kind is a custom one.
pub fn originals(journal: &[Entry], by_host: impl Fn(&Entry) -> bool) -> Vec<Original> {
    let mut last = BTreeMap::<&str, &Entry>::new();
    let mut order = Vec::new();
    let mut primaries = BTreeMap::<&str, (Answer, &Entry)>::new();
    let mut custom = BTreeSet::new();
    for entry in journal.iter().filter(|entry| !entry.deleted) {
        let Some(uid) = entry.after["metadata"]["uid"].as_str() else {
            continue;
        };
        if entry.resource == "customresourcedefinitions" {
            custom.extend(entry.after["spec"]["group"].as_str());
        }
        if last.insert(uid, entry).is_none() {
            order.push(uid);
        }
        if !by_host(entry) || entry.group == "pilothouse.dev" {
            continue;
        }
        match &entry.before {
            Some(before) if before["status"] != entry.after["status"] => {
                let answer = if is_reconciled(&entry.after) {
                    Answer::Condition
                } else {
                    Answer::Never
                };
                let known = primaries.entry(uid).or_insert((answer, entry));
                if answer <= known.0 {
                    *known = (answer, entry);
                }
            }
            Some(_) => {}
            None => {
                let owners = entry.after["metadata"]["ownerReferences"].as_array();
                let owner = owners.and_then(|owners| owners.first()?["uid"].as_str());
                let Some(owner) = owner.and_then(|uid| last.get(uid)) else {
                    continue;
                };
                let uid = owner.after["metadata"]["uid"].as_str().unwrap_or_default();
                primaries.entry(uid).or_insert((Answer::Child, owner));
            }
        }
    }
    let mut shown = BTreeMap::new();
    let mut found = Vec::new();
    for uid in order {
        let (answer, entry, is_primary) = match (primaries.get(uid), last.get(uid)) {
            (Some((answer, entry)), _) => (*answer, *entry, true),
            (None, Some(entry)) if custom.contains(&*entry.group) => (Answer::Never, *entry, false),
            _ => continue,
        };
        let shown = shown.entry((&entry.group, &entry.resource, answer)).or_insert(0);
        *shown += 1;
        let is_namespaced = entry.after["metadata"]["namespace"].is_string();
        if *shown <= SHOWN && is_namespaced && entry.group != "pilothouse.dev" {
            found.extend(Original::of(entry, answer, is_primary));
        }
    }
    found
}

/// The host's condition of a primary, if it is about the last change.
pub fn said(object: &Value) -> Option<&Value> {
    let mut conditions = object["status"]["conditions"].as_array()?.iter();
    let condition = conditions.find(|it| it["type"] == RECONCILED)?;
    (condition["observedGeneration"] == object["metadata"]["generation"]).then_some(condition)
}

/// Returns `true` if a primary's status says that it is reconciled.
pub fn is_reconciled(object: &Value) -> bool {
    said(object).is_some_and(|condition| condition["status"] == "True")
}

impl Original {
    fn of(entry: &Entry, answer: Answer, is_primary: bool) -> Option<Self> {
        let mut object = (*entry.after).clone();
        let members = object.as_object_mut()?;
        members.remove("status");
        let version = members.get("apiVersion")?.as_str()?;
        let prefix = if version.contains('/') {
            format!("/apis/{version}")
        } else {
            format!("/api/{version}")
        };
        let metadata = members.get_mut("metadata")?.as_object_mut()?;
        metadata.retain(|name, _| matches!(&**name, "labels" | "annotations" | "namespace"));
        Some(Self {
            group: entry.group.clone(),
            prefix,
            plural: entry.resource.clone(),
            answer,
            is_primary,
            object,
        })
    }

    /// Nobody answers to copies of it.
    pub fn expect_nothing(&mut self) {
        self.answer = Answer::Never;
    }

    /// Returns `true` if a plugin reconciles it.
    pub fn is_primary(&self) -> bool {
        self.is_primary
    }

    /// Returns `true` if a plugin reconciles it, and it is as it should be.
    pub fn is_sound(&self) -> bool {
        self.is_primary && self.answer != Answer::Never
    }

    /// The path of its kind in a namespace.
    pub fn collection(&self, namespace: &str) -> String {
        format!("{}/namespaces/{namespace}/{}", self.prefix, self.plural)
    }

    /// Returns a copy for another namespace; copies of other numbers do not conflict. None where it would reach beyond
    /// its namespace.
    pub fn copy(&self, namespace: &str, name: &str, number: usize) -> Option<Value> {
        let mut copy = self.object.clone();
        let home = copy["metadata"]["namespace"].as_str()?.to_owned();
        copy["metadata"]["namespace"] = json!(namespace);
        copy["metadata"]["name"] = json!(name);
        match copy["kind"].as_str()? {
            "Wish" | "Promise" => {
                let mut owns = match copy["spec"]["owns"].take() {
                    Value::Array(owns) => owns,
                    _ => Vec::new(),
                };
                owns.retain_mut(|owned| move_in(owned, &home, namespace));
                if owns.is_empty() {
                    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "map"}, "data": {"a": "1"}});
                    owns.push(json!({"object": map}));
                }
                // What is kept would stay for ever, and nobody lets a workload succeed for which others wait.
                for owned in &mut owns {
                    owned["keep"] = json!(false);
                    owned["after"] = json!([]);
                    let child = owned["object"]["metadata"]["name"].as_str()?;
                    owned["object"]["metadata"]["name"] = json!(format!("{child}-{name}"));
                }
                copy["spec"]["owns"] = json!(owns);
                copy["spec"]["holds"] = json!(false);
            }
            // What others contribute to is not there.
            "Share" | "Loan" => {
                copy["metadata"]["labels"] = json!({});
                let owned =
                    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"of": name}});
                copy["spec"] = json!({"owns": [owned]});
            }
            "Gate" => {
                // It may ask for what is only in the scenario's namespace.
                copy["spec"].as_object_mut()?.remove("behaviour");
            }
            // Ports are shared by all.
            "StreamIngress" => copy["spec"]["listen"] = json!(FREE_PORT + number % 128 * PORTS),
            "Service" => {
                let spec = copy["spec"].as_object_mut()?;
                spec.retain(|name, _| !matches!(&**name, "clusterIP" | "clusterIPs" | "healthCheckNodePort"));
            }
            _ => {}
        }
        move_in(&mut copy, &home, namespace).then_some(copy)
    }
}

/// Has an object stand for another namespace; whether it reaches nowhere else.
fn move_in(value: &mut Value, from: &str, to: &str) -> bool {
    match value {
        Value::Object(members) => {
            // Node ports belong to the whole cluster.
            members.remove("nodePort");
            if members.get("kind").is_some_and(|kind| kind == "Namespace") {
                return false;
            }
            if let Some(Value::String(namespace)) = members.get_mut("namespace")
                && namespace != to
            {
                if namespace != from {
                    return false;
                }
                to.clone_into(namespace);
            }
            members.values_mut().all(|value| move_in(value, from, to))
        }
        Value::Array(items) => items.iter_mut().all(|item| move_in(item, from, to)),
        _ => true,
    }
}

/// The object with an edit that its plugin sees, another one in each turn; none where there is nothing that could be edited.
pub fn edited(object: &Value, turn: usize) -> Option<Value> {
    let kind = object["kind"].as_str()?;
    let mut object = object.clone();
    let text = format!("turn-{turn}");
    let spec = &mut object["spec"];
    match kind {
        "Wish" | "Promise" => {
            let owned = spec.get_mut("owns")?.get_mut(0)?;
            owned["object"]["metadata"]["annotations"] = json!({"tenant.test.dev/turn": text});
        }
        "Share" | "Loan" => spec["owns"][0]["data"] = json!({"of": text}),
        "Hostile" => spec["text"] = json!(text),
        "Gate" | "AppService" => {
            let size = spec["size"].as_u64().unwrap_or_default();
            spec["size"] = json!(size + 1 + turn as u64 % 9);
        }
        "ReverseProxy" | "TCPReverseProxy" => spec["podLabels"] = json!({"turn": text}),
        "StreamIngress" => {
            let listen = spec["listen"].as_u64()?;
            spec["listen"] = json!(listen + turn as u64 % PORTS as u64);
        }
        _ => return None,
    }
    Some(object)
}

/// The object as its plugin traps at it, fails at it, or has most to do with it; another one in each turn.
pub fn failing(object: &Value, turn: usize) -> Value {
    /// Behaviours of a Hostile that are over soon.
    const BEHAVIOURS: [&str; 8] = [
        "trap",
        "panic",
        "recursion",
        "many-objects",
        "broken-json",
        "transient-failure",
        "undeclared-kind",
        "memory-bomb",
    ];
    let kind = object["kind"].as_str().unwrap_or_default();
    let mut object = edited(object, turn).unwrap_or_else(|| object.clone());
    let text = format!("turn-{turn}");
    let (spec, annotations) = match kind {
        "Service" | "ServiceAccount" => (&mut Value::Null, object["metadata"]["annotations"].is_object()),
        _ => (&mut object["spec"], false),
    };
    match kind {
        "Wish" | "Promise" => spec["traps"] = json!(true),
        "Share" | "Loan" => spec["fails"] = json!(text),
        "Hostile" => spec["behaviour"] = json!(BEHAVIOURS[turn % BEHAVIOURS.len()]),
        "Gate" => spec["behaviour"] = json!("trap"),
        "AppService" => {
            // A container has a port's name once.
            let port = |protocol: &str| json!({"name": format!("dns-{protocol}").to_lowercase(), "port": 53, "targetPort": "dns", "protocol": protocol});
            spec["ports"] = json!([port("TCP"), port("UDP")]);
        }
        "ReverseProxy" | "TCPReverseProxy" => spec["logFormat"] = json!(format!("$nope{turn}")),
        "StreamIngress" => spec["upstream"] = json!({"service": text, "port": 1}),
        // Nothing makes the plugins of other kinds fail: there is something to do and to undo in turns.
        _ => {
            if turn % 2 == 1 && annotations {
                object["metadata"]["annotations"] = json!({"tenant.test.dev/turn": text});
            }
        }
    }
    object
}

/// The object with something that nests so deep wherever its kind may let that through.
pub fn nested(object: &Value, levels: usize) -> Value {
    let mut object = object.clone();
    let mut deep = json!(1);
    for _ in 0..levels {
        deep = json!({"a": deep});
    }
    if let Some(members) = object.as_object_mut() {
        for (name, value) in members.iter_mut() {
            if name != "metadata" {
                put(value, &deep);
            }
        }
    }
    object
}

fn put(value: &mut Value, deep: &Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                if name != "metadata" {
                    put(value, deep);
                }
            }
            members.insert("deep".to_owned(), deep.clone());
        }
        Value::Array(items) => items.iter_mut().for_each(|item| put(item, deep)),
        _ => {}
    }
}
