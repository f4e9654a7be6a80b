//! Owns the stand-in for the ReplicaSet controller and for what would run pods: it makes and removes pods, and where the options
//! say so they become ready at once.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{MANAGER, owned};
use crate::kinds::Storage;
use crate::objects::{create, delete, update};
use crate::options::Workloads;
use crate::state::State;
use crate::store::{Change, Key};

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let sets = Storage::new("apps", "replicasets");
    for (key, set) in owned::concerned(state, changes, (&sets, "ReplicaSet"), &pod_storage()) {
        reconcile(state, &key, &set);
    }
}

fn pod_storage() -> Storage {
    Storage::new("", "pods")
}

fn reconcile(state: &mut State, key: &Key, set: &Value) {
    let wanted = usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(0)).unwrap_or(0);
    let pods = owned::children(state, set, &pod_storage());
    let Some(resource) = state.resource("", "pods") else {
        return;
    };
    for surplus in pods.iter().skip(wanted) {
        delete::delete_internally(state, &resource, &Key::of(surplus), "Background");
    }
    for _ in pods.len()..wanted {
        let Some(pod) = create::internally(state, &resource, MANAGER, &pod_of(set)) else {
            break;
        };
        if state.controllers.workloads == Workloads::Ready {
            let now = state.clock.timestamp();
            update::internally(state, &resource, &Key::of(&pod), ("status", "kubelet"), |pod| {
                make_ready(pod, &now);
            });
        }
    }
    let pods = owned::children(state, set, &pod_storage());
    let is_ready = |pod: &&Arc<Value>| {
        pod["status"]["conditions"].as_array().is_some_and(|list| {
            list.iter()
                .any(|found| found["type"] == "Ready" && found["status"] == "True")
        })
    };
    let (count, ready) = (pods.len(), pods.iter().filter(is_ready).count());
    let mut status = json!({"replicas": count, "observedGeneration": set["metadata"]["generation"]});
    for (name, number) in [
        ("fullyLabeledReplicas", count),
        ("readyReplicas", ready),
        ("availableReplicas", ready),
    ] {
        if number != 0 {
            status[name] = json!(number);
        }
    }
    let Some(resource) = state.resource("apps", "replicasets") else {
        return;
    };
    update::internally(state, &resource, key, ("status", MANAGER), |object| {
        object["status"] = status;
    });
}

fn pod_of(set: &Value) -> Value {
    let metadata = &set["metadata"];
    let template = &set["spec"]["template"];
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": template["metadata"],
        "spec": template["spec"],
    });
    pod["metadata"]["generateName"] = json!(format!("{}-", metadata["name"].as_str().unwrap_or_default()));
    pod["metadata"]["namespace"] = metadata["namespace"].clone();
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": metadata["name"], "uid": metadata["uid"],
        "controller": true, "blockOwnerDeletion": true,
    }]);
    pod
}

fn make_ready(pod: &mut Value, now: &str) {
    let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
    let states: Vec<Value> = containers
        .iter()
        .map(|container| {
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "ready": true, "started": true,
                "restartCount": 0, "state": {"running": {"startedAt": now}}, "lastState": {},
            })
        })
        .collect();
    let conditions: Vec<Value> = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .into_iter()
        .map(|kind| json!({"type": kind, "status": "True", "lastProbeTime": null, "lastTransitionTime": now}))
        .collect();
    pod["status"]["phase"] = json!("Running");
    pod["status"]["startTime"] = json!(now);
    pod["status"]["conditions"] = json!(conditions);
    pod["status"]["containerStatuses"] = json!(states);
}
