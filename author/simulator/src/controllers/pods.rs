//! Helpers of the controllers that make pods: makes pods from a template, and decides whether they are ready and
//! available.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::MANAGER;
use crate::discovery::hash;
use crate::kinds::Storage;
use crate::kubelet::{self, Outcome, has_finished};
use crate::objects::{create, delete, update};
use crate::options::Workloads;
use crate::resource::Key;
use crate::state::State;

/// Letters of a template's hash.
const HASH_LENGTH: usize = 10;

pub(super) fn storage() -> Storage {
    Storage::new("", "pods")
}

/// A number, 0 where there is none.
pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// A number of things, 0 where there is none.
pub(super) fn count(value: &Value) -> usize {
    usize::try_from(number(value)).unwrap_or(0)
}

/// An absolute number or a percentage of `all`, which is rounded up or down; 0 where there is none.
pub(super) fn share(value: &Value, all: i64, rounds_up: bool) -> i64 {
    let Some(text) = value.as_str() else {
        return number(value);
    };
    let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
    (all * percent + if rounds_up { 99 } else { 0 }) / 100
}

/// Returns a hash in the form of a real server's template hashes.
pub(super) fn template_hash(template: &Value) -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    let text = hash(&[&template.to_string()]) + &hash(&["more", &template.to_string()]);
    text.bytes()
        .take(HASH_LENGTH)
        .map(|byte| char::from(letters[usize::from(byte) % letters.len()]))
        .collect()
}

/// The reference by which an object is the controller of others.
pub(super) fn controller(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": true,
    })
}

/// A pod of the owner's template, with a generated name.
pub(super) fn of_template(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    let template = &owner["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"],
    });
    if !pod["metadata"].is_object() {
        pod["metadata"] = json!({});
    }
    pod["metadata"]["generateName"] = json!(format!("{}-", metadata["name"].as_str().unwrap_or_default()));
    pod["metadata"]["namespace"] = metadata["namespace"].clone();
    pod["metadata"]["ownerReferences"] = json!([controller(owner)]);
    pod
}

/// Creates a pod, which has its outcome at once where the options say so. False when the server refuses it.
pub(super) fn make(state: &mut State, pod: &Value) -> bool {
    let Some(resource) = state.resource("", "pods") else {
        return false;
    };
    let Some(made) = create::internally(state, &resource, MANAGER, pod) else {
        return false;
    };
    if state.controllers.workloads == Workloads::Ready {
        let now = state.clock.now();
        update::internally(state, &resource, &Key::of(&made), ("status", "kubelet"), |pod| {
            pod["status"] = kubelet::status(pod, Outcome::of(pod), now);
        });
    }
    true
}

pub(super) fn remove(state: &mut State, pod: &Value) {
    if let Some(resource) = state.resource("", "pods") {
        delete::delete_internally(state, &resource, &Key::of(pod), "Background");
    }
}

pub(super) fn is_going(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

/// Returns `true` if the pod runs or is to run.
pub(super) fn is_active(pod: &Value) -> bool {
    !is_going(pod) && !has_finished(pod)
}

fn ready_since(pod: &Value) -> Option<&Value> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let ready = conditions
        .iter()
        .find(|found| found["type"] == "Ready" && found["status"] == "True")?;
    Some(&ready["lastTransitionTime"])
}

pub(super) fn is_ready(pod: &Value) -> bool {
    ready_since(pod).is_some()
}

/// Returns `true` if the pod has been ready for the owner's `minReadySeconds`; if that is still to come, the owner is
/// requeued for then.
pub(super) fn available_or_requeue(state: &mut State, owner: (&Storage, &Value), pod: &Value) -> bool {
    let (storage, owner) = owner;
    let seconds = count(&owner["spec"]["minReadySeconds"]) as u64;
    match ready_since(pod) {
        Some(since) if seconds > 0 => {
            let since = moment(since);
            since.is_none_or(|since| passed_or_requeue(state, (storage, owner), since, Duration::from_secs(seconds)))
        }
        since => since.is_some(),
    }
}

/// Returns `true` if the time since then has passed; if not, the object is requeued for when it has.
pub(super) fn passed_or_requeue(
    state: &mut State,
    (storage, object): (&Storage, &Value),
    since: SystemTime,
    time: Duration,
) -> bool {
    // What ends after the end of time never does.
    let Some(at) = since.checked_add(time) else {
        return false;
    };
    if at <= state.clock.now() {
        return true;
    }
    state.timers.insert((at, storage.clone(), Key::of(object)));
    false
}

/// A time of RFC 3339.
pub(super) fn moment(time: &Value) -> Option<SystemTime> {
    let time: jiff::Timestamp = time.as_str()?.parse().ok()?;
    Some(time.into())
}

/// Counts the ready and the available ones of the pods.
pub(super) fn readiness(state: &mut State, owner: (&Storage, &Value), pods: &[Arc<Value>]) -> (usize, usize) {
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let available = pods
        .iter()
        .filter(|pod| available_or_requeue(state, owner, pod))
        .count();
    (ready, available)
}
