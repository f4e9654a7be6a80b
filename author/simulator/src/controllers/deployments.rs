//! The Deployment controller: one ReplicaSet for each pod template, rolling updates, and the status.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::pods::{self, number, share, template_hash};
use super::{MANAGER, owned};
use crate::apply::types::same;
use crate::change::Change;
use crate::kinds::Storage;
use crate::objects::{create, update};
use crate::resource::Key;
use crate::state::State;

const REVISION: &str = "deployment.kubernetes.io/revision";
const HASH: &str = "pod-template-hash";
/// The reason of a rollout that is done: later failures do not count for its progress.
const ROLLED_OUT: &str = "NewReplicaSetAvailable";
/// The reason of a rollout that has taken longer than it may.
const LATE: &str = "ProgressDeadlineExceeded";

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
    let is_new = current.is_none();
    let current = match current {
        Some(set) if revision(&set) < newest => {
            let next = (newest + 1).to_string();
            annotate(state, &Key::of(&set), &next);
            let changed = state.get("apps", "replicasets", &key.namespace, &Key::of(&set).name);
            Some(changed.map_or(set, Clone::clone))
        }
        Some(set) => Some(set),
        None if is_paused(deployment) => None,
        None => make_set(state, deployment, &sets, newest + 1).map(Arc::new),
    };
    if let Some(current) = &current {
        if !is_new {
            scale_sets(state, deployment, current, &sets);
        }
        let shown = revision(current).to_string();
        if let Some(resource) = state.resource("apps", "deployments") {
            // By way of the status, as the real controller does: there it does not count as a change of the object.
            update::internally(state, &resource, key, ("status", MANAGER), |object| {
                set_annotation(object, REVISION, &shown);
            });
        }
    }
    write_status(state, key, current.as_ref().map(|set| Key::of(set)).as_ref(), is_new);
}

fn is_paused(deployment: &Value) -> bool {
    deployment["spec"]["paused"] == true
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

fn make_set(state: &mut State, deployment: &Value, others: &[Arc<Value>], revision: i64) -> Option<Value> {
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
            "ownerReferences": [pods::controller(deployment)],
        },
        "spec": {"replicas": room(deployment, others, 0), "selector": selector, "template": template},
    });
    if let Some(seconds) = deployment["spec"].get("minReadySeconds") {
        set["spec"]["minReadySeconds"] = seconds.clone();
    }
    let resource = state.resource("apps", "replicasets")?;
    create::internally(state, &resource, MANAGER, &set)
}

/// Pods beyond the wanted number while an update rolls out.
fn surge(deployment: &Value) -> i64 {
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    share(&rolling["maxSurge"], number(&deployment["spec"]["replicas"]), true)
}

/// Pods that may be missing while an update rolls out.
fn maximal_unavailable(deployment: &Value) -> i64 {
    let wanted = number(&deployment["spec"]["replicas"]);
    let rolling = &deployment["spec"]["strategy"]["rollingUpdate"];
    if !rolling.is_object() {
        return 0;
    }
    match share(&rolling["maxUnavailable"], wanted, false) {
        // One of the two is needed to get on.
        0 if surge(deployment) == 0 => 1.min(wanted),
        most => most.min(wanted),
    }
}

fn replicas(set: &Arc<Value>) -> i64 {
    number(&set["spec"]["replicas"])
}

fn available(set: &Arc<Value>) -> i64 {
    number(&set["status"]["availableReplicas"])
}

/// Returns the count of replicas that the new set may have beside the others, if it has `now`.
fn room(deployment: &Value, others: &[Arc<Value>], now: i64) -> i64 {
    let wanted = number(&deployment["spec"]["replicas"]);
    let taken: i64 = others.iter().map(replicas).sum();
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        let is_left = others
            .iter()
            .any(|set| replicas(set) > 0 || number(&set["status"]["replicas"]) > 0);
        return if is_left { now } else { wanted };
    }
    (wanted + surge(deployment) - taken).min(wanted).max(now.min(wanted))
}

/// One step of a rolling update: the current set grows as far as it may, or the others shrink as far as they may.
fn scale_sets(state: &mut State, deployment: &Value, current: &Arc<Value>, sets: &[Arc<Value>]) {
    if is_paused(deployment) && sets.len() > 1 {
        return;
    }
    let wanted = number(&deployment["spec"]["replicas"]);
    let mut others = sets.to_vec();
    others.retain(|set| set["metadata"]["uid"] != current["metadata"]["uid"]);
    let new = room(deployment, &others, replicas(current));
    scale(state, deployment, current, new);
    if new != replicas(current) {
        return;
    }
    if deployment["spec"]["strategy"]["type"] == "Recreate" {
        for other in &others {
            scale(state, deployment, other, 0);
        }
        return;
    }
    let least = wanted - maximal_unavailable(deployment);
    let all: i64 = replicas(current) + others.iter().map(replicas).sum::<i64>();
    // Those that are not available go first, as long as the new ones that are not do not make them too few.
    let mut unhealthy = (all - least - (replicas(current) - available(current))).max(0);
    let may_shrink = unhealthy > 0;
    let mut healthy = available(current) + others.iter().map(available).sum::<i64>() - least;
    for other in &others {
        let ill = (replicas(other) - available(other)).clamp(0, unhealthy);
        unhealthy -= ill;
        let well = if may_shrink {
            healthy.clamp(0, replicas(other) - ill)
        } else {
            0
        };
        healthy -= well;
        scale(state, deployment, other, replicas(other) - ill - well);
    }
}

fn scale(state: &mut State, deployment: &Value, set: &Value, replicas: i64) {
    let Some(resource) = state.resource("apps", "replicasets") else {
        return;
    };
    let wanted = number(&deployment["spec"]["replicas"]);
    let most = (wanted + surge(deployment)).to_string();
    update::internally(state, &resource, &Key::of(set), ("", MANAGER), |object| {
        object["spec"]["replicas"] = json!(replicas);
        set_annotation(object, "deployment.kubernetes.io/desired-replicas", &wanted.to_string());
        set_annotation(object, "deployment.kubernetes.io/max-replicas", &most);
        if let Some(seconds) = deployment["spec"].get("minReadySeconds") {
            object["spec"]["minReadySeconds"] = seconds.clone();
        }
    });
}

fn write_status(state: &mut State, key: &Key, current: Option<&Key>, is_new: bool) {
    let Some(deployment) = state.get("apps", "deployments", &key.namespace, &key.name).cloned() else {
        return;
    };
    let updated = current.and_then(|current| {
        let set = state.get("apps", "replicasets", &current.namespace, &current.name)?;
        Some(number(&set["status"]["replicas"]))
    });
    let sets = owned::children(state, &deployment, &replica_sets());
    let total = |name: &str| sets.iter().map(|set| number(&set["status"][name])).sum::<i64>();
    let mut status = json!({
        "observedGeneration": deployment["metadata"]["generation"], "terminatingReplicas": total("terminatingReplicas"),
    });
    for (name, count) in [
        ("replicas", total("replicas")),
        ("updatedReplicas", updated.unwrap_or(0)),
        ("readyReplicas", total("readyReplicas")),
        ("availableReplicas", total("availableReplicas")),
        (
            "unavailableReplicas",
            (sets.iter().map(replicas).sum::<i64>() - total("availableReplicas")).max(0),
        ),
    ] {
        if count != 0 {
            status[name] = json!(count);
        }
    }
    let now = state.clock.timestamp();
    let least = number(&deployment["spec"]["replicas"]) - maximal_unavailable(&deployment);
    let available = if total("availableReplicas") >= least {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    let mut conditions = deployment["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    set_condition(&mut conditions, "Available", available, (&now, false));
    if let Some((value, reason, is_news)) = progress(state, &deployment, &status, is_new) {
        let name = current.map(|current| current.name.as_str()).unwrap_or_default();
        let message = match reason {
            "DeploymentPaused" => "Deployment is paused".to_owned(),
            "DeploymentResumed" => "Deployment is resumed".to_owned(),
            "NewReplicaSetCreated" => format!("Created new replica set \"{name}\""),
            ROLLED_OUT => format!("ReplicaSet \"{name}\" has successfully progressed."),
            "ReplicaSetUpdated" => format!("ReplicaSet \"{name}\" is progressing."),
            _ => format!("ReplicaSet \"{name}\" has timed out progressing."),
        };
        set_condition(
            &mut conditions,
            "Progressing",
            (value, reason, &message),
            (&now, is_news),
        );
    }
    status["conditions"] = json!(conditions);
    owned::write_status(state, ("apps", "deployments"), key, status, &[]);
}

/// Status and reason of the condition `Progressing` where it changes, and whether there is news of the same progress.
fn progress(
    state: &mut State,
    deployment: &Value,
    status: &Value,
    is_new: bool,
) -> Option<(&'static str, &'static str, bool)> {
    let conditions = deployment["status"]["conditions"].as_array();
    let before = conditions.and_then(|all| all.iter().find(|known| known["type"] == "Progressing"));
    let reason = before.and_then(|known| known["reason"].as_str()).unwrap_or_default();
    let seconds = deployment["spec"]["progressDeadlineSeconds"].as_i64()?;
    if is_paused(deployment) {
        return (reason != LATE).then_some(("Unknown", "DeploymentPaused", false));
    }
    if reason == "DeploymentPaused" {
        return Some(("Unknown", "DeploymentResumed", false));
    }
    if is_new {
        return Some(("True", "NewReplicaSetCreated", true));
    }
    let count = |name: &str| number(&status[name]);
    let wanted = number(&deployment["spec"]["replicas"]);
    if count("replicas") == count("updatedReplicas") && reason == ROLLED_OUT {
        return None;
    }
    if ["replicas", "updatedReplicas", "availableReplicas"]
        .iter()
        .all(|name| count(name) == wanted)
    {
        return Some(("True", ROLLED_OUT, false));
    }
    let earlier = |name: &str| number(&deployment["status"][name]);
    let old = |status: &dyn Fn(&str) -> i64| status("replicas") - status("updatedReplicas");
    let grows = |name: &str| count(name) > earlier(name);
    if ["updatedReplicas", "readyReplicas", "availableReplicas"]
        .iter()
        .any(|name| grows(name))
        || old(&count) < old(&earlier)
    {
        return Some(("True", "ReplicaSetUpdated", true));
    }
    let since = before.filter(|_| reason != ROLLED_OUT && reason != LATE)?;
    let (since, deadline) = (pods::moment(&since["lastUpdateTime"])?, u64::try_from(seconds).ok()?);
    let storage = Storage::new("apps", "deployments");
    let is_late = pods::passed_or_requeue(state, (&storage, deployment), since, Duration::from_secs(deadline));
    is_late.then_some(("False", LATE, false))
}

/// Sets a condition. One that changes, or of which there is news, comes last; its times are those of its last change.
fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    (status, reason, message): (&str, &str, &str),
    (now, is_news): (&str, bool),
) {
    let index = conditions.iter().position(|known| known["type"] == kind);
    if let Some(known) = index.map(|index| &conditions[index])
        && known["status"] == status
        && known["reason"] == reason
        && !is_news
    {
        return;
    }
    let known = index.map(|index| conditions.remove(index));
    let transition = known.filter(|known| known["status"] == status);
    let transition = transition.map_or(json!(now), |known| known["lastTransitionTime"].clone());
    conditions.push(json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": transition, "lastUpdateTime": now,
    }));
}
