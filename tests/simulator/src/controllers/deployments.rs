//! Owns the stand-in for the Deployment controller: one ReplicaSet for each pod template, and the status.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{MANAGER, owned};
use crate::apply::types::same;
use crate::discovery::hash;
use crate::kinds::Storage;
use crate::objects::{create, update};
use crate::options::Workloads;
use crate::state::State;
use crate::store::{Change, Key};

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";
/// Letters of a template's hash.
const HASH_LENGTH: usize = 10;

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let deployments = Storage::new("apps", "deployments");
    for (key, deployment) in owned::concerned(state, changes, (&deployments, "Deployment"), &replica_sets()) {
        roll_out(state, &key, &deployment);
    }
}

fn replica_sets() -> Storage {
    Storage::new("apps", "replicasets")
}

fn without_hash(template: &Value) -> Value {
    let mut template = template.clone();
    if let Some(labels) = template["metadata"]["labels"].as_object_mut() {
        labels.remove(HASH);
    }
    template
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

fn revision(set: &Value) -> i64 {
    set["metadata"]["annotations"][REVISION]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn roll_out(state: &mut State, key: &Key, deployment: &Value) {
    let sets = owned::children(state, deployment, &replica_sets());
    let template = &deployment["spec"]["template"];
    let current = sets
        .iter()
        .find(|set| same(&without_hash(&set["spec"]["template"]), template))
        .cloned();
    let newest = sets.iter().map(|set| revision(set)).max().unwrap_or(0);
    let current = match current {
        Some(set) if revision(&set) < newest => {
            let next = (newest + 1).to_string();
            annotate(state, &Key::of(&set), &next);
            state
                .get("apps", "replicasets", &key.namespace, &Key::of(&set).name)
                .map_or(set, Clone::clone)
        }
        Some(set) => set,
        None => match make_set(state, deployment, newest + 1) {
            Some(set) => Arc::new(set),
            None => return,
        },
    };
    scale_sets(state, deployment, &current, &sets);
    let shown = revision(&current).to_string();
    let Some(resource) = state.resource("apps", "deployments") else {
        return;
    };
    // By way of the status, as the real controller does: there it does not count as a change of the object.
    update::internally(state, &resource, key, ("status", MANAGER), |object| {
        set_annotation(object, REVISION, &shown);
    });
    write_status(state, key, &Key::of(&current));
}

fn set_annotation(object: &mut Value, name: &str, value: &str) {
    if !object["metadata"]["annotations"].is_object() {
        object["metadata"]["annotations"] = json!({});
    }
    object["metadata"]["annotations"][name] = json!(value);
}

fn annotate(state: &mut State, key: &Key, shown: &str) {
    let Some(resource) = state.resource("apps", "replicasets") else {
        return;
    };
    update::internally(state, &resource, key, ("", MANAGER), |object| {
        set_annotation(object, REVISION, shown);
    });
}

/// As a real server's template hashes look.
fn template_hash(template: &Value) -> String {
    let letters = b"bcdfghjklmnpqrstvwxz2456789";
    let text = hash(&[&template.to_string()]) + &hash(&["more", &template.to_string()]);
    text.bytes()
        .take(HASH_LENGTH)
        .map(|byte| char::from(letters[usize::from(byte) % letters.len()]))
        .collect()
}

fn make_set(state: &mut State, deployment: &Value, revision: i64) -> Option<Value> {
    let metadata = &deployment["metadata"];
    let name = metadata["name"].as_str()?;
    let hash = template_hash(&deployment["spec"]["template"]);
    let mut template = deployment["spec"]["template"].clone();
    template["metadata"]["labels"][HASH] = json!(hash);
    let mut selector = deployment["spec"]["selector"].clone();
    if !selector["matchLabels"].is_object() {
        selector["matchLabels"] = json!({});
    }
    selector["matchLabels"][HASH] = json!(hash);
    let replicas = number(&deployment["spec"]["replicas"]);
    let mut set = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{name}-{hash}"),
            "namespace": metadata["namespace"],
            "labels": template["metadata"]["labels"],
            "annotations": {
                REVISION: revision.to_string(),
                "deployment.kubernetes.io/desired-replicas": replicas.to_string(),
                "deployment.kubernetes.io/max-replicas": (replicas + surge(deployment)).to_string(),
            },
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "Deployment", "name": name, "uid": metadata["uid"],
                "controller": true, "blockOwnerDeletion": true,
            }],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment["spec"].get("minReadySeconds") {
        set["spec"]["minReadySeconds"] = seconds.clone();
    }
    let resource = state.resource("apps", "replicasets")?;
    create::internally(state, &resource, MANAGER, &set)
}

/// Pods beyond the wanted number while an update rolls out.
fn surge(deployment: &Value) -> i64 {
    let replicas = number(&deployment["spec"]["replicas"]);
    match &deployment["spec"]["strategy"]["rollingUpdate"]["maxSurge"] {
        Value::Number(number) => number.as_i64().unwrap_or(0),
        Value::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            (replicas * percent + 99) / 100
        }
        _ => 0,
    }
}

/// The current set has all replicas, the others none once their pods have been replaced.
fn scale_sets(state: &mut State, deployment: &Value, current: &Value, sets: &[Arc<Value>]) {
    if deployment["spec"]["paused"] == true {
        return;
    }
    let Some(resource) = state.resource("apps", "replicasets") else {
        return;
    };
    let wanted = number(&deployment["spec"]["replicas"]);
    let most = (wanted + surge(deployment)).to_string();
    update::internally(state, &resource, &Key::of(current), ("", MANAGER), |object| {
        object["spec"]["replicas"] = json!(wanted);
        set_annotation(object, "deployment.kubernetes.io/desired-replicas", &wanted.to_string());
        set_annotation(object, "deployment.kubernetes.io/max-replicas", &most);
    });
    if state.controllers.workloads != Workloads::Ready {
        return;
    }
    for old in sets
        .iter()
        .filter(|set| set["metadata"]["uid"] != current["metadata"]["uid"])
    {
        update::internally(state, &resource, &Key::of(old), ("", MANAGER), |object| {
            object["spec"]["replicas"] = json!(0);
        });
    }
}

fn write_status(state: &mut State, key: &Key, current: &Key) {
    let Some(deployment) = state.get("apps", "deployments", &key.namespace, &key.name).cloned() else {
        return;
    };
    let Some(set) = state
        .get("apps", "replicasets", &current.namespace, &current.name)
        .cloned()
    else {
        return;
    };
    let sets = owned::children(state, &deployment, &replica_sets());
    let total = |name: &str| sets.iter().map(|set| number(&set["status"][name])).sum::<i64>();
    let wanted = number(&deployment["spec"]["replicas"]);
    let (replicas, ready, available) = (total("replicas"), total("readyReplicas"), total("availableReplicas"));
    let updated = number(&set["status"]["replicas"]);
    let mut status = json!({"observedGeneration": deployment["metadata"]["generation"]});
    for (name, count) in [
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", ready),
        ("availableReplicas", available),
        ("unavailableReplicas", (replicas.max(wanted) - available).max(0)),
    ] {
        if count != 0 {
            status[name] = json!(count);
        }
    }
    let now = state.clock.timestamp();
    status["conditions"] = conditions(&deployment, &set, (wanted, updated, available), &now);
    let Some(resource) = state.resource("apps", "deployments") else {
        return;
    };
    update::internally(state, &resource, key, ("status", MANAGER), |object| {
        object["status"] = status;
    });
}

fn conditions(deployment: &Value, set: &Value, (wanted, updated, available): (i64, i64, i64), now: &str) -> Value {
    let name = set["metadata"]["name"].as_str().unwrap_or_default();
    let enough = available >= wanted;
    let complete = enough && updated == wanted;
    let available = if enough {
        (
            "Available",
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.".to_owned(),
        )
    } else {
        (
            "Available",
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.".to_owned(),
        )
    };
    let progressing = if complete {
        (
            "Progressing",
            "True",
            "NewReplicaSetAvailable",
            format!("ReplicaSet \"{name}\" has successfully progressed."),
        )
    } else {
        (
            "Progressing",
            "True",
            "ReplicaSetUpdated",
            format!("ReplicaSet \"{name}\" is progressing."),
        )
    };
    let conditions = [available, progressing]
        .into_iter()
        .map(|(kind, status, reason, message)| {
            let known = deployment["status"]["conditions"]
                .as_array()
                .into_iter()
                .flatten()
                .find(|known| known["type"] == kind);
            let unchanged = |names: &[&str], values: &[&str]| {
                known.filter(|known| names.iter().zip(values).all(|(name, value)| known[*name] == *value))
            };
            let transition =
                unchanged(&["status"], &[status]).map_or(json!(now), |known| known["lastTransitionTime"].clone());
            let updated = unchanged(&["status", "reason", "message"], &[status, reason, &message])
                .map_or(json!(now), |known| known["lastUpdateTime"].clone());
            json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": transition, "lastUpdateTime": updated,
            })
        });
    conditions.collect()
}
