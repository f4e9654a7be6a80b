//! Garbage collector: deletes objects whose owners are gone, and does foreground deletion and orphaning.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;

use super::MANAGER;
use crate::change::Change;
use crate::controllers::ownership::{Place, owners};
use crate::kinds::{Resource, split_group_version};
use crate::objects::delete::{FOREGROUND, ORPHAN, set_finalizers};
use crate::objects::{delete, update};
use crate::resource::{Key, text};
use crate::state::State;

fn has_finalizer(object: &Value, name: &str) -> bool {
    object["metadata"]["finalizers"]
        .as_array()
        .is_some_and(|list| list.iter().any(|found| found == name))
}

fn is_going(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Target of an owner reference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Solid,
    Absent,
    /// Deleted in the foreground: it is removed once its dependents are gone.
    Waiting,
    /// Its kind is not served, or the reference cannot be followed.
    Unknown,
}

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let mut places: BTreeSet<Place> = BTreeSet::new();
    for change in changes {
        let place = (change.storage.clone(), Key::of(&change.after));
        if !owners(&change.after).is_empty() && !change.deleted {
            places.insert(place.clone());
        }
        if change.deleted || is_going(&change.after) {
            places.extend(state.ownership.of(text(&change.after["metadata"]["uid"])));
        }
        if !change.deleted && is_going(&change.after) {
            if has_finalizer(&change.after, FOREGROUND) {
                // A real garbage collector queues what the owner has before the owner, also where nothing blocks it.
                for dependent in state.ownership.of(text(&change.after["metadata"]["uid"])) {
                    attend(state, &dependent);
                }
            }
            release_owner(state, &place);
        }
        if change.deleted {
            for place in owner_places(state, &change.after) {
                release_owner(state, &place);
            }
        }
    }
    for place in places {
        attend(state, &place);
    }
}

/// Returns the places of an object's owners, as far as they can be found.
fn owner_places(state: &State, object: &Value) -> Vec<Place> {
    owners(object)
        .iter()
        .filter_map(|owner| {
            let resource = state.kinds.of_group_kind(
                split_group_version(owner["apiVersion"].as_str()?).0,
                owner["kind"].as_str()?,
            )?;
            let namespace = if resource.namespaced {
                text(&object["metadata"]["namespace"]).to_owned()
            } else {
                String::new()
            };
            Some((resource.storage.clone(), Key::new(&namespace, owner["name"].as_str()?)))
        })
        .collect()
}

fn look_up(state: &State, object: &Value, owner: &Value) -> Owner {
    if state.ownership.absent.contains(&text(&owner["uid"]).to_owned()) {
        return Owner::Absent;
    }
    let (group, _) = split_group_version(owner["apiVersion"].as_str().unwrap_or_default());
    let Some(resource) = state
        .kinds
        .of_group_kind(group, owner["kind"].as_str().unwrap_or_default())
    else {
        return Owner::Unknown;
    };
    let namespace = text(&object["metadata"]["namespace"]);
    if resource.namespaced && namespace.is_empty() {
        return Owner::Unknown;
    }
    // An owner in another namespace is looked for in the object's own, and so is absent.
    let key = Key::new(
        if resource.namespaced { namespace } else { "" },
        owner["name"].as_str().unwrap_or_default(),
    );
    match state.store.get(&resource.storage, &key) {
        Some(found) if found["metadata"]["uid"] == owner["uid"] => {
            if is_going(found) && has_finalizer(found, FOREGROUND) {
                Owner::Waiting
            } else {
                Owner::Solid
            }
        }
        _ => Owner::Absent,
    }
}

/// Deletes an object without owners, or drops its references to those that are gone.
fn attend(state: &mut State, (storage, key): &Place) {
    let Some(object) = state.store.get(storage, key).cloned() else {
        return;
    };
    if is_going(&object) || owners(&object).is_empty() {
        return;
    }
    let found: Vec<Owner> = owners(&object)
        .iter()
        .map(|owner| look_up(state, &object, owner))
        .collect();
    if found.contains(&Owner::Unknown) {
        return;
    }
    let Some(resource) = state.kinds.of_storage(storage).cloned() else {
        return;
    };
    if !found.contains(&Owner::Solid) {
        let owns = !state.ownership.of(text(&object["metadata"]["uid"])).is_empty();
        let policy = if has_finalizer(&object, ORPHAN) {
            "Orphan"
        } else if has_finalizer(&object, FOREGROUND) || (owns && found.contains(&Owner::Waiting)) {
            "Foreground"
        } else {
            "Background"
        };
        delete::delete_internally(state, &resource, key, policy);
    } else if found.iter().any(|owner| *owner != Owner::Solid) {
        let kept: Vec<Value> = owners(&object)
            .iter()
            .zip(&found)
            .filter(|(_, found)| **found == Owner::Solid)
            .map(|(owner, _)| owner.clone())
            .collect();
        set_owners(state, &resource, key, kept);
    }
}

fn set_owners(state: &mut State, resource: &Arc<Resource>, key: &Key, kept: Vec<Value>) {
    update::internally(state, resource, key, ("", MANAGER), |object| {
        let Some(metadata) = object["metadata"].as_object_mut() else {
            return;
        };
        if kept.is_empty() {
            metadata.remove("ownerReferences");
        } else {
            metadata.insert("ownerReferences".to_owned(), Value::Array(kept));
        }
    });
}

/// Removes the collector's finalizers from an owner that is being deleted, once no dependent remains.
fn release_owner(state: &mut State, (storage, key): &Place) {
    let Some(owner) = state.store.get(storage, key).cloned() else {
        return;
    };
    let Some(resource) = state.kinds.of_storage(storage).cloned() else {
        return;
    };
    if !is_going(&owner) {
        return;
    }
    let uid = text(&owner["metadata"]["uid"]);
    let dependents = state.ownership.of(uid);
    let finalizer = if has_finalizer(&owner, ORPHAN) {
        for (storage, key) in &dependents {
            let Some(dependent) = state.store.get(storage, key).cloned() else {
                continue;
            };
            let kept = owners(&dependent)
                .iter()
                .filter(|owner| owner["uid"] != uid)
                .cloned()
                .collect();
            if let Some(resource) = state.kinds.of_storage(storage).cloned() {
                set_owners(state, &resource, key, kept);
            }
        }
        ORPHAN
    } else if has_finalizer(&owner, FOREGROUND) {
        let blocks = |(storage, key): &Place| {
            let dependent = state.store.get(storage, key);
            let references = dependent.map(|dependent| owners(dependent)).unwrap_or_default();
            references
                .iter()
                .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        };
        if dependents.iter().any(blocks) {
            return;
        }
        FOREGROUND
    } else {
        return;
    };
    update::internally(state, &resource, key, ("", MANAGER), |object| {
        let mut finalizers = object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.retain(|name| name != finalizer);
        set_finalizers(object, finalizers);
    });
}
