//! Deletes objects: preconditions, finalizers, propagation, and the response.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Answer, Call, body, read};
use crate::admission;
use crate::clock::rfc3339;
use crate::failure::{Failure, FieldError};
use crate::kinds::Resource;
use crate::kubelet::has_finished;
use crate::resource::Key;
use crate::state::State;

/// Finalizer while the garbage collector deletes the object's dependents first.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer while the garbage collector orphans the object's dependents.
pub(crate) const ORPHAN: &str = "orphan";

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
struct Wish {
    uid: Option<String>,
    resource_version: Option<String>,
    propagation: Option<String>,
    /// Grace period of a pod on a node, in seconds.
    grace: Option<i64>,
    dry_run: bool,
}

impl Wish {
    fn read(call: &Call, text: &[u8]) -> Result<Self, Failure> {
        let options = if text.iter().all(u8::is_ascii_whitespace) {
            Value::Null
        } else {
            body::parse(text)?
        };
        let word = |value: &Value| value.as_str().map(str::to_owned);
        let query = call.options.query.text("propagationPolicy");
        let propagation = word(&options["propagationPolicy"]).or_else(|| (!query.is_empty()).then(|| query.to_owned()));
        let orphan = options["orphanDependents"]
            .as_bool()
            .map(|orphan| if orphan { "Orphan" } else { "Background" });
        if let Some(policy) = &propagation
            && !["Background", "Foreground", "Orphan"].contains(&policy.as_str())
        {
            let supported = ["Foreground", "Background", "Orphan", "nil"];
            let error = FieldError::not_supported("propagationPolicy", &json!(policy), &supported);
            return Err(Failure::invalid("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        Ok(Self {
            uid: word(&options["preconditions"]["uid"]),
            resource_version: word(&options["preconditions"]["resourceVersion"]),
            propagation: propagation.or_else(|| orphan.map(str::to_owned)),
            grace: options["gracePeriodSeconds"]
                .as_i64()
                .or_else(|| call.options.query.text("gracePeriodSeconds").parse().ok()),
            dry_run: call.options.dry_run || options["dryRun"].as_array().is_some_and(|list| !list.is_empty()),
        })
    }
}

/// DELETE of one object.
pub(crate) fn delete(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let wish = Wish::read(call, text)?;
    let resource = &call.resource;
    let key = call.key();
    let stored = state
        .store
        .get(&resource.storage, &key)
        .cloned()
        .ok_or_else(|| call.not_found())?;
    check_preconditions(resource, &key, &stored, &wish)?;
    admit(state, call, &stored, &wish)?;
    let (object, gone) = delete_one(state, resource, &key, &stored, &wish)?;
    Ok(answer(resource, &object, gone))
}

/// DELETE of every object of a list.
pub(crate) fn delete_collection(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let wish = Wish::read(call, text)?;
    let resource = call.resource.clone();
    let list = read::list(state, call)?;
    let selected = read::selected(state, call)?;
    // All are judged before the first one goes: webhooks that have to be waited for make the request begin again.
    for stored in &selected {
        admit(state, call, stored, &wish)?;
    }
    for stored in selected {
        delete_one(state, &resource, &Key::of(&stored), &stored, &wish)?;
    }
    Ok(list)
}

/// Admission of a deletion.
fn admit(state: &mut State, call: &Call, stored: &Value, wish: &Wish) -> Result<(), Failure> {
    let mut call = call.clone();
    call.options.dry_run = wish.dry_run;
    let shown = call.resource.show(stored).into_owned();
    admission::validate(state, &call, None, Some(&shown))
}

/// Deletes on behalf of the control plane's own controllers.
pub(crate) fn delete_internally(state: &mut State, resource: &Resource, key: &Key, propagation: &str) {
    if let Some(stored) = state.store.get(&resource.storage, key).cloned() {
        let wish = Wish {
            propagation: Some(propagation.to_owned()),
            ..Wish::default()
        };
        // Without preconditions nothing can be refused.
        let _ = delete_one(state, resource, key, &stored, &wish);
    }
}

fn delete_one(
    state: &mut State,
    resource: &Resource,
    key: &Key,
    stored: &Arc<Value>,
    wish: &Wish,
) -> Result<(Value, bool), Failure> {
    check_preconditions(resource, key, stored, wish)?;
    let mut object = (**stored).clone();
    let already = object["metadata"]["deletionTimestamp"].is_string();
    let mut changed = finalizers(state, resource, &mut object, wish.propagation.as_deref());
    let grace = grace(resource, &object, wish);
    if grace == 0 && waits_for_kubelet(&object) {
        object["metadata"]["deletionGracePeriodSeconds"] = json!(0);
        changed = true;
    }
    let pending = has_finalizers(resource, &object) || grace > 0;
    if !pending {
        if resource.is_builtin("", "pods") && !already {
            mark_deleted(state, &mut object, 0);
        }
        if !wish.dry_run {
            finish(state, resource, key);
        }
        return Ok((resource.show(&object).into_owned(), true));
    }
    if already && !changed {
        return Ok((resource.show(&object).into_owned(), false));
    }
    if !already {
        mark_deleted(state, &mut object, grace);
    }
    if resource.is_builtin("", "namespaces") {
        object["status"]["phase"] = json!("Terminating");
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("deletionGracePeriodSeconds");
        }
    }
    if resource.is_builtin("apiextensions.k8s.io", "customresourcedefinitions") {
        terminating_definition(state, &mut object);
    }
    if wish.dry_run {
        return Ok((resource.show(&object).into_owned(), false));
    }
    let stored = state.store.put(&resource.storage, object);
    Ok((resource.show(&stored).into_owned(), false))
}

/// Returns the grace period of the object in seconds: a pod on a node stays for its kubelet, which deletes it with 0,
/// unless it has ended.
fn grace(resource: &Resource, object: &Value, wish: &Wish) -> i64 {
    let is_on_node = object["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    if !resource.is_builtin("", "pods") || !is_on_node || has_finished(object) {
        return 0;
    }
    let own = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    wish.grace.or(own).unwrap_or(0).max(0)
}

fn mark_deleted(state: &State, object: &mut Value, grace: i64) {
    let now = state.clock.now();
    let at = now.checked_add(Duration::from_secs(grace.unsigned_abs()));
    object["metadata"]["deletionTimestamp"] = json!(rfc3339(at.unwrap_or(now)));
    object["metadata"]["deletionGracePeriodSeconds"] = json!(grace);
    if let Some(generation) = object["metadata"]["generation"].as_i64() {
        object["metadata"]["generation"] = json!(generation + 1);
    }
}

fn check_preconditions(resource: &Resource, key: &Key, stored: &Value, wish: &Wish) -> Result<(), Failure> {
    let metadata = &stored["metadata"];
    let refuse = |what: &str, wanted: &str, actual: &Value| {
        let actual = actual.as_str().unwrap_or_default();
        let fate = if what == "UID" {
            "deleted and then recreated"
        } else {
            "modified"
        };
        let cause = format!(
            "the {what} in the precondition ({wanted}) does not match the {what} in record ({actual}). The object might have been {fate}"
        );
        Err(Failure::conflict(&resource.group, &resource.kind, &key.name, &cause))
    };
    match (&wish.uid, &wish.resource_version) {
        (Some(uid), _) if metadata["uid"] != uid.as_str() => refuse("UID", uid, &metadata["uid"]),
        (_, Some(version)) if metadata["resourceVersion"] != version.as_str() => {
            refuse("ResourceVersion", version, &metadata["resourceVersion"])
        }
        _ => Ok(()),
    }
}

/// Sets or removes the finalizers of the garbage collector, as the propagation policy says. True when something changed.
fn finalizers(state: &State, resource: &Resource, object: &mut Value, propagation: Option<&str>) -> bool {
    if !state.controllers.garbage_collector {
        return false;
    }
    let before: Vec<Value> = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let wanted = |name: &str, policy: &str| match propagation {
        Some(given) => given == policy,
        None => before.contains(&json!(name)),
    };
    // Namespaces and definitions are emptied by other means.
    if resource.is_builtin("", "namespaces") {
        return false;
    }
    let mut after: Vec<Value> = before
        .iter()
        .filter(|name| *name != FOREGROUND && *name != ORPHAN)
        .cloned()
        .collect();
    if wanted(ORPHAN, "Orphan") {
        after.push(json!(ORPHAN));
    }
    if wanted(FOREGROUND, "Foreground") {
        after.push(json!(FOREGROUND));
    }
    if after == before {
        return false;
    }
    set_finalizers(object, after);
    true
}

pub(crate) fn set_finalizers(object: &mut Value, finalizers: Vec<Value>) {
    let Some(metadata) = object["metadata"].as_object_mut() else {
        return;
    };
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_owned(), Value::Array(finalizers));
    }
}

fn has_finalizers(resource: &Resource, object: &Value) -> bool {
    let any = |list: &Value| list.as_array().is_some_and(|list| !list.is_empty());
    any(&object["metadata"]["finalizers"])
        || (resource.is_builtin("", "namespaces") && any(&object["spec"]["finalizers"]))
}

/// Returns `true` if an object that is being deleted has no finalizer left and its grace period is over.
pub(crate) fn is_released(resource: &Resource, object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
        && !waits_for_kubelet(object)
        && !has_finalizers(resource, object)
}

fn waits_for_kubelet(object: &Value) -> bool {
    let granted = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
    granted.is_some_and(|seconds| seconds > 0)
}

/// Removes the object from the store.
pub(crate) fn finish(state: &mut State, resource: &Resource, key: &Key) {
    let removed = state.store.remove(&resource.storage, key);
    if let Some(removed) = removed
        && resource.is_builtin("apiextensions.k8s.io", "customresourcedefinitions")
    {
        state.stop_serving(&removed);
    }
}

fn terminating_definition(state: &State, object: &mut Value) {
    let condition = json!({
        "type": "Terminating", "status": "True", "reason": "InstanceDeletionPending",
        "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        "lastTransitionTime": state.clock.timestamp(),
    });
    let mut conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|known| known["type"] != "Terminating");
    conditions.push(condition);
    object["status"]["conditions"] = Value::Array(conditions);
}

/// Returns the response: the object where it stays or where the kind returns it, else a status.
fn answer(resource: &Resource, object: &Value, gone: bool) -> Answer {
    if !gone || resource.returns_deleted() {
        return Answer::object(object.clone());
    }
    let mut details = json!({
        "name": object["metadata"]["name"],
        "kind": resource.plural,
        "uid": object["metadata"]["uid"],
    });
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    Answer::other(json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    }))
}
