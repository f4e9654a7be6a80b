//! State of a cluster in a form in which two runs can be compared: without the values that differ in every run.

use std::collections::BTreeMap;

use pilothouse_simulator::Entry;
use serde_json::{Value, json};

use crate::names::place;

/// Every object by its place.
pub type Snapshot = BTreeMap<String, Value>;

/// Kinds that are the cluster's own business, or that no two runs have in common: events, and what controllers name at random.
const UNCOMPARED: [&str; 6] = ["Event", "Pod", "ReplicaSet", "Lease", "Plugin", "EndpointSlice"];

/// Members that differ in each run, wherever they are.
const RANDOM: [&str; 12] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "time",
    "generation",
    "clusterIP",
    "clusterIPs",
    "caBundle",
];

/// The state of a cluster, given all its objects and every change so far, from which the names behind uids are known.
pub fn take(objects: Vec<Value>, journal: &[Entry]) -> Snapshot {
    cleaned(objects, &names(journal))
}

/// The same where nothing is known of the past.
pub fn take_named(objects: Vec<Value>) -> Snapshot {
    let named = objects.iter().filter_map(|object| {
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default();
        let kind = object["kind"].as_str().unwrap_or_default();
        let place = place(kind, text("namespace"), text("name"));
        Some((
            object["metadata"]["uid"].as_str()?.to_owned(),
            format!("uid of {place}"),
        ))
    });
    let names = named.collect();
    cleaned(objects, &names)
}

fn cleaned(objects: Vec<Value>, names: &BTreeMap<String, String>) -> Snapshot {
    let mut taken = Snapshot::new();
    for mut object in objects {
        let kind = object["kind"].as_str().unwrap_or_default().to_owned();
        if UNCOMPARED.contains(&&*kind) || is_certificate(&object) {
            continue;
        }
        let text = |name: &str| object["metadata"][name].as_str().unwrap_or_default().to_owned();
        let place = place(&kind, &text("namespace"), &text("name"));
        let generation = object["metadata"]["generation"].clone();
        clean(&mut object, &generation, names);
        if kind == "Service" {
            strip_node_ports(&mut object);
        }
        strip_replicas(&mut object);
        taken.insert(place, object);
    }
    taken
}

/// Returns the differences of two states, as lines for people.
pub fn differences(found: &Snapshot, expected: &Snapshot) -> Vec<String> {
    let mut lines = Vec::new();
    for (place, object) in expected {
        match found.get(place) {
            None => lines.push(format!("{place} is missing")),
            Some(other) => compare(place, other, object, &mut lines),
        }
    }
    let extra = found.keys().filter(|place| !expected.contains_key(*place));
    lines.extend(extra.map(|place| format!("{place} is there, and should not be")));
    lines
}

fn compare(path: &str, found: &Value, expected: &Value, lines: &mut Vec<String>) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            for (name, value) in expected {
                match found.get(name) {
                    None => lines.push(format!("{path}.{name} is missing; it is {value} without faults")),
                    Some(other) => compare(&format!("{path}.{name}"), other, value, lines),
                }
            }
            for (name, value) in found {
                if !expected.contains_key(name) {
                    lines.push(format!("{path}.{name} is {value}, and absent without faults"));
                }
            }
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => {
            for (index, (found, expected)) in found.iter().zip(expected).enumerate() {
                compare(&format!("{path}[{index}]"), found, expected, lines);
            }
        }
        _ if found != expected => lines.push(format!("{path} is {found}, and {expected} without faults")),
        _ => {}
    }
}

fn names(journal: &[Entry]) -> BTreeMap<String, String> {
    let named = journal.iter().filter_map(|entry| {
        let metadata = &entry.after["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default();
        let place = place(&entry.resource, text("namespace"), text("name"));
        Some((metadata["uid"].as_str()?.to_owned(), format!("uid of {place}")))
    });
    named.collect()
}

/// Certificates are drawn at random.
fn is_certificate(object: &Value) -> bool {
    object["kind"] == "Secret" && object["metadata"]["name"] == "webhooks"
}

fn clean(value: &mut Value, generation: &Value, names: &BTreeMap<String, String>) {
    match value {
        Value::Object(members) => {
            for random in RANDOM {
                members.remove(random);
            }
            if let Some(annotations) = members.get_mut("annotations").and_then(Value::as_object_mut) {
                // It covers the owner's uid; and how often controllers have looked.
                annotations.remove("pilothouse.dev/desired");
                annotations.remove("deployment.kubernetes.io/revision");
            }
            // How often an object was changed differs, but not whether a status or a condition is about the last change.
            for name in ["observedGeneration", "runningGeneration"] {
                if let Some(observed) = members.get_mut(name) {
                    let is_last = observed == generation;
                    *observed = json!(if is_last { "the last" } else { "an earlier one" });
                }
            }
            if let Some(Value::Array(entries)) = members.get_mut("managedFields") {
                for entry in entries.iter_mut() {
                    clean(entry, generation, names);
                }
                entries.sort_by_key(Value::to_string);
            }
            members.values_mut().for_each(|value| clean(value, generation, names));
            if let Some(annotations) = members.get_mut("f:annotations").and_then(Value::as_object_mut) {
                // A host that is killed may leave it on an object whose owner is gone, where nothing says whose it was.
                annotations.remove("f:pilothouse.dev/desired");
            }
            for name in ["f:annotations", "f:metadata"] {
                if members.get(name).is_some_and(|it| *it == json!({})) {
                    members.remove(name);
                }
            }
            // The keys of field sets have uids, too.
            let keyed = members
                .keys()
                .filter(|key| key.contains("uid"))
                .cloned()
                .collect::<Vec<_>>();
            for key in keyed {
                if let Some(value) = members.remove(&key) {
                    members.insert(rename(&key, names), value);
                }
            }
            if members.get("annotations").is_some_and(|it| *it == json!({})) {
                members.remove("annotations");
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| clean(item, generation, names)),
        Value::String(text) => {
            *text = rename(text, names);
            // A webhook server's port is whichever is free.
            if text.starts_with("https://127.0.0.1:") {
                let path = text.splitn(4, '/').nth(3).unwrap_or_default();
                *text = format!("https://webhooks/{path}");
            }
        }
        _ => {}
    }
}

/// A text with names in place of the uids in it.
fn rename(text: &str, names: &BTreeMap<String, String>) -> String {
    /// Hexadecimal digits in five groups.
    const LENGTH: usize = 36;
    let is_part = |character: char| character.is_ascii_hexdigit() || character == '-';
    let mut renamed = text.to_owned();
    let uids = text
        .split(|character| !is_part(character))
        .filter(|it| it.len() == LENGTH);
    for uid in uids {
        if let Some(name) = names.get(uid) {
            renamed = renamed.replace(uid, name);
        }
    }
    without_times(&renamed)
}

/// A text without timestamps, which a plugin may write into what it makes.
fn without_times(text: &str) -> String {
    /// Digits stand for digits.
    const FORM: &[u8] = b"0000-00-00T00:00:00Z";
    let is_time = |part: &[u8]| {
        part.iter()
            .zip(FORM)
            .all(|(found, form)| found == form || (*form == b'0' && found.is_ascii_digit()))
    };
    let mut without = text.to_owned();
    while let Some(at) = without.as_bytes().windows(FORM.len()).position(is_time) {
        without.replace_range(at..at + FORM.len(), "<time>");
    }
    without
}

/// Removes counts of replicas, which depend on the versions that a Deployment had: no pod ever becomes ready, so those
/// of earlier versions stay. A Deployment that is recreated while its predecessor's ReplicaSet still exists counts a
/// collision and names its own ReplicaSet differently. Plugins copy all that into their status.
fn strip_replicas(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if object.get("kind").is_some_and(|kind| kind == "Deployment") {
        object.remove("status");
    }
    let is_of_replicas = |name: &str| name.to_lowercase().ends_with("replicas") || name.ends_with("collisionCount");
    let of_controller = |entry: &Value| entry["manager"] == "kube-controller-manager";
    let metadata = object.get_mut("metadata");
    let entries = metadata.and_then(|metadata| metadata.get_mut("managedFields"));
    if let Some(entries) = entries.and_then(Value::as_array_mut) {
        entries.retain(|entry| !of_controller(entry));
        for entry in entries {
            if let Some(fields) = entry["fieldsV1"].get_mut("f:status").and_then(Value::as_object_mut) {
                fields.retain(|name, _| !is_of_replicas(name));
            }
        }
    }
    if let Some(status) = object.get_mut("status").and_then(Value::as_object_mut) {
        status.retain(|name, _| !is_of_replicas(name));
        let mut conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        if let Some(conditions) = &mut conditions {
            // A Deployment whose pods never become ready times out after ten minutes, and its conditions stand in the order in
            // which they came.
            conditions.retain(|condition| condition["type"] != "Progressing");
            conditions.sort_by_key(|condition| condition["type"].to_string());
        }
        for condition in conditions.into_iter().flatten() {
            // The message is `ReplicaSet "NAME-HASH" is progressing.`, or another word for that.
            if let Some(rest) = condition["message"]
                .as_str()
                .and_then(|it| it.strip_prefix("ReplicaSet \""))
            {
                let rest = rest.split_once('"').map_or("", |(_, rest)| rest);
                condition["message"] = json!(format!("a ReplicaSet{rest}"));
            }
        }
    }
}

/// Removes node ports, which a server draws where the object names none.
fn strip_node_ports(service: &mut Value) {
    let ports = service["spec"].get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
    if let Some(spec) = service["spec"].as_object_mut() {
        spec.retain(|name, _| name != "healthCheckNodePort");
    }
}

/// Counts of each object's deletions, and of the hosts' requests for them, by [`place`].
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Ends {
    pub went: BTreeMap<String, usize>,
    pub asked: BTreeMap<String, usize>,
}

/// The ends of all objects in a journal, but of those that clusters make by themselves.
pub fn ends(journal: &[Entry], is_host: impl Fn(&Entry) -> bool) -> Ends {
    let mut ends = Ends::default();
    for entry in journal {
        let kind = entry.after["kind"].as_str().unwrap_or_default();
        if UNCOMPARED.contains(&kind) {
            continue;
        }
        let metadata = &entry.after["metadata"];
        let text = |name: &str| metadata[name].as_str().unwrap_or_default();
        let place = place(&entry.resource, text("namespace"), text("name"));
        let was_going = entry
            .before
            .as_ref()
            .is_some_and(|before| !before["metadata"]["deletionTimestamp"].is_null());
        let goes = entry.deleted || !metadata["deletionTimestamp"].is_null();
        if goes && !was_going && is_host(entry) {
            *ends.asked.entry(place.clone()).or_default() += 1;
        }
        if entry.deleted {
            *ends.went.entry(place).or_default() += 1;
        }
    }
    ends
}
