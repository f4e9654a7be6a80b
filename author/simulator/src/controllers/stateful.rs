//! The StatefulSet controller: pods with ordinals, one after the other or all at once, their claims, rolling updates, and the
//! status. It keeps no ControllerRevisions: a pod that is made anew always has the newest template.

use std::sync::Arc;

use serde_json::{Value, json};

use super::pods::{self, count, number};
use super::{MANAGER, owned};
use crate::change::Change;
use crate::kinds::Storage;
use crate::kubelet::has_finished;
use crate::objects::{create, update};
use crate::resource::Key;
use crate::resource::text;
use crate::state::State;

const REVISION: &str = "controller-revision-hash";

fn storage() -> Storage {
    Storage::new("apps", "statefulsets")
}

pub(super) fn run(state: &mut State, changes: &[Change]) {
    for (key, set) in owned::concerned(state, changes, (&storage(), "StatefulSet"), &pods::storage()) {
        let hash = pods::template_hash(&set["spec"]["template"]);
        let revision = format!("{}-{hash}", key.name);
        manage(state, &set, &revision);
        write_status(state, &key, &set, &revision);
    }
}

/// The set's pods with their ordinals, in that order.
fn members(state: &State, set: &Value) -> Vec<(i64, Arc<Value>)> {
    let prefix = format!("{}-", text(&set["metadata"]["name"]));
    let mut found: Vec<_> = owned::children(state, set, &pods::storage())
        .into_iter()
        .filter_map(|pod| {
            let ordinal = text(&pod["metadata"]["name"]).strip_prefix(&prefix)?.parse().ok()?;
            Some((ordinal, pod))
        })
        .collect();
    found.sort_by_key(|(ordinal, _)| *ordinal);
    found
}

/// One step: makes the pods that are missing, or removes those that are too many, or one with an old template. In order, each
/// step waits until the one before has come to its end.
fn manage(state: &mut State, set: &Value, revision: &str) {
    let spec = &set["spec"];
    let is_ordered = spec["podManagementPolicy"] != "Parallel";
    let first = number(&spec["ordinals"]["start"]);
    let wanted = first..first + number(&spec["replicas"]);
    let found = members(state, set);
    for ordinal in wanted.clone() {
        let pod = found.iter().find(|(known, _)| *known == ordinal).map(|(_, pod)| pod);
        match pod {
            Some(pod) if has_finished(pod) => pods::remove(state, pod),
            Some(_) => {}
            None => make(state, set, ordinal, revision),
        }
        own_claims(state, set, ordinal, None);
        let is_there =
            pod.is_some_and(|pod| pods::is_active(pod) && pods::available_or_requeue(state, (&storage(), set), pod));
        if is_ordered && !is_there {
            return;
        }
    }
    let surplus = found.iter().rev().filter(|(ordinal, _)| !wanted.contains(ordinal));
    for (ordinal, pod) in surplus {
        own_claims(state, set, *ordinal, Some(pod));
        if !pods::is_going(pod) {
            pods::remove(state, pod);
        }
        if is_ordered {
            return;
        }
    }
    if spec["updateStrategy"]["type"] == "OnDelete" {
        return;
    }
    let partition = first + number(&spec["updateStrategy"]["rollingUpdate"]["partition"]);
    for (_, pod) in found.iter().rev().filter(|(ordinal, _)| *ordinal >= partition) {
        if pod["metadata"]["labels"][REVISION] != revision && !pods::is_going(pod) {
            pods::remove(state, pod);
            return;
        }
        if pods::is_going(pod) || !pods::available_or_requeue(state, (&storage(), set), pod) {
            return;
        }
    }
}

fn make(state: &mut State, set: &Value, ordinal: i64, revision: &str) {
    let name = format!("{}-{ordinal}", text(&set["metadata"]["name"]));
    let mut pod = pods::of_template(set);
    pod["metadata"]["name"] = json!(name);
    for (label, value) in [
        ("statefulset.kubernetes.io/pod-name", name.clone()),
        ("apps.kubernetes.io/pod-index", ordinal.to_string()),
        (REVISION, revision.to_owned()),
    ] {
        pod["metadata"]["labels"][label] = json!(value);
    }
    pod["spec"]["hostname"] = json!(name);
    if let Some(service) = set["spec"].get("serviceName") {
        pod["spec"]["subdomain"] = service.clone();
    }
    let mut volumes = pod["spec"]["volumes"].as_array().cloned().unwrap_or_default();
    for (template, claim) in claims(set, ordinal) {
        volumes.retain(|volume| volume["name"] != template["metadata"]["name"]);
        volumes.push(json!({
            "name": template["metadata"]["name"], "persistentVolumeClaim": {"claimName": claim.name},
        }));
        if state
            .get("", "persistentvolumeclaims", &claim.namespace, &claim.name)
            .is_none()
        {
            make_claim(state, set, &template, &claim);
        }
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = json!(volumes);
    }
    pods::make(state, &pod);
}

/// The templates of claims, each with the claim that it becomes.
fn claims(set: &Value, ordinal: i64) -> Vec<(Value, Key)> {
    let (metadata, templates) = (&set["metadata"], set["spec"]["volumeClaimTemplates"].as_array());
    let place = |template: &Value| {
        let name = format!(
            "{}-{}-{ordinal}",
            text(&template["metadata"]["name"]),
            text(&metadata["name"])
        );
        (template.clone(), Key::new(text(&metadata["namespace"]), &name))
    };
    templates.into_iter().flatten().map(place).collect()
}

fn make_claim(state: &mut State, set: &Value, template: &Value, claim: &Key) {
    let mut object = template.clone();
    object["apiVersion"] = json!("v1");
    object["kind"] = json!("PersistentVolumeClaim");
    object["metadata"]["name"] = json!(claim.name);
    object["metadata"]["namespace"] = json!(claim.namespace);
    for (label, value) in set["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten() {
        object["metadata"]["labels"][label] = value.clone();
    }
    if let Some(resource) = state.resource("", "persistentvolumeclaims") {
        create::internally(state, &resource, MANAGER, &object);
    }
}

/// Makes the set, or its surplus pod, the owner of an ordinal's claims, by the set's retention policy.
fn own_claims(state: &mut State, set: &Value, ordinal: i64, surplus: Option<&Value>) {
    let policy = &set["spec"]["persistentVolumeClaimRetentionPolicy"];
    let owner = match surplus {
        Some(pod) if policy["whenScaled"] == "Delete" => Some(pods::controller(pod)),
        _ => (policy["whenDeleted"] == "Delete").then(|| pods::controller(set)),
    };
    let Some(resource) = state.resource("", "persistentvolumeclaims") else {
        return;
    };
    let ours = |reference: &Value| ["StatefulSet", "Pod"].iter().any(|kind| reference["kind"] == *kind);
    for (_, claim) in claims(set, ordinal) {
        update::internally(state, &resource, &claim, ("", MANAGER), |claim| {
            let mut owners = claim["metadata"]["ownerReferences"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            owners.retain(|reference| !ours(reference));
            owners.extend(owner.clone());
            if let Some(metadata) = claim["metadata"].as_object_mut() {
                metadata.remove("ownerReferences");
                if !owners.is_empty() {
                    metadata.insert("ownerReferences".to_owned(), json!(owners));
                }
            }
        });
    }
}

fn write_status(state: &mut State, key: &Key, set: &Value, revision: &str) {
    let found: Vec<Arc<Value>> = members(state, set).into_iter().map(|(_, pod)| pod).collect();
    let (ready, available) = pods::readiness(state, (&storage(), set), &found);
    let of = |revision: &str| {
        let has = |pod: &&Arc<Value>| !pods::is_going(pod) && pod["metadata"]["labels"][REVISION] == revision;
        found.iter().filter(has).count()
    };
    let before = set["status"]["currentRevision"].as_str().unwrap_or(revision);
    let (updated, all) = (of(revision), found.len());
    let rolls = set["spec"]["updateStrategy"]["type"] == "RollingUpdate";
    let is_done = rolls && updated == all && ready == all && all == count(&set["spec"]["replicas"]);
    let current = if is_done { revision } else { before };
    let status = json!({
        "observedGeneration": set["metadata"]["generation"], "replicas": all, "availableReplicas": available,
        "currentRevision": current, "updateRevision": revision, "collisionCount": 0,
    });
    let counts = [
        ("readyReplicas", ready),
        ("currentReplicas", of(current)),
        ("updatedReplicas", updated),
    ];
    owned::write_status(state, ("apps", "statefulsets"), key, status, &counts);
}
