//! Helpers of every controller with children: finds the objects that a change concerns and the children of one, and
//! writes statuses.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::MANAGER;
use crate::change::Change;
use crate::kinds::Storage;
use crate::objects::update;
use crate::resource::Key;
use crate::state::State;

/// The living objects of `kind` that changed themselves or by a child among `children`.
pub(super) fn concerned(
    state: &State,
    changes: &[Change],
    (owners, kind): (&Storage, &str),
    children: &Storage,
) -> Vec<(Key, Arc<Value>)> {
    let mut keys = BTreeSet::new();
    for change in changes {
        if change.storage == *owners && !change.deleted {
            keys.insert(Key::of(&change.after));
        }
        if change.storage == *children {
            let namespace = change.after["metadata"]["namespace"].as_str().unwrap_or_default();
            let owner = owner_references(&change.after)
                .filter(|owner| owner["kind"] == kind)
                .find_map(|owner| owner["name"].as_str());
            keys.extend(owner.map(|name| Key::new(namespace, name)));
        }
    }
    keys.into_iter()
        .filter_map(|key| {
            let object = state.store.get(owners, &key)?.clone();
            (!object["metadata"]["deletionTimestamp"].is_string()).then_some((key, object))
        })
        .collect()
}

/// The objects of a storage in the owner's namespace that refer to the owner.
pub(super) fn children(state: &State, owner: &Value, storage: &Storage) -> Vec<Arc<Value>> {
    let namespace = owner["metadata"]["namespace"].as_str().unwrap_or_default();
    let uid = &owner["metadata"]["uid"];
    // What changed in this very round is not in the index yet.
    let fresh = state.store.fresh().iter();
    let fresh = fresh.map(|change| (change.storage.clone(), Key::of(&change.after)));
    let known = state.ownership.of(uid.as_str().unwrap_or_default()).into_iter();
    let places: BTreeSet<_> = known.chain(fresh).collect();
    places
        .iter()
        .filter(|(found, key)| found == storage && key.namespace == namespace)
        .filter_map(|(_, key)| state.store.get(storage, key))
        .filter(|child| owner_references(child).any(|reference| reference["uid"] == *uid))
        .cloned()
        .collect()
}

/// Writes the status of an object. Counts of zero are left out, as by the types of the API.
pub(super) fn write_status(
    state: &mut State,
    (group, plural): (&str, &str),
    key: &Key,
    mut status: Value,
    counts: &[(&str, usize)],
) {
    for (name, count) in counts.iter().filter(|(_, count)| *count != 0) {
        status[*name] = json!(count);
    }
    let Some(resource) = state.resource(group, plural) else {
        return;
    };
    update::internally(state, &resource, key, ("status", MANAGER), |object| {
        object["status"] = status;
    });
}

fn owner_references(object: &Value) -> impl Iterator<Item = &Value> {
    object["metadata"]["ownerReferences"].as_array().into_iter().flatten()
}
