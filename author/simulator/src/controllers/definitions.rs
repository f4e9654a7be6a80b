//! Controllers of CRDs in the API server: they accept names, serve the CRDs, and delete their objects when they are
//! deleted.

use std::sync::Arc;

use serde_json::Value;

use crate::change::Change;
use crate::custom::definition::{self, CLEANUP};
use crate::kinds::Storage;
use crate::objects::delete::{self, set_finalizers};
use crate::resource::Key;
use crate::state::State;

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let storage = Storage::new("apiextensions.k8s.io", "customresourcedefinitions");
    // The last object of a definition that is going may just have gone.
    if !changes.iter().any(|change| change.storage == storage || change.deleted) {
        return;
    }
    let definitions: Vec<Arc<Value>> = state.store.list(&storage).cloned().collect();
    for stored in definitions {
        if definition::is_terminating(&stored) {
            empty(state, &storage, &stored);
            continue;
        }
        let mut wanted = (*stored).clone();
        definition::accept(&mut wanted, &state.clock.timestamp());
        let mut finalizers = wanted["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        if !finalizers.iter().any(|name| name == CLEANUP) {
            finalizers.push(Value::from(CLEANUP));
            set_finalizers(&mut wanted, finalizers);
        }
        if wanted != *stored {
            state.store.put(&storage, wanted);
        }
        if state.needs_serving(&stored) {
            state.serve_definition(&stored);
        }
    }
}

/// Deletes the objects of a definition that is going, then lets go of it.
fn empty(state: &mut State, storage: &Storage, definition: &Value) {
    let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let group = word(&definition["spec"]["group"]);
    let plural = word(&definition["spec"]["names"]["plural"]);
    let objects = Storage::new(&group, &plural);
    if let Some(resource) = state.kinds.of_storage(&objects).cloned() {
        let going = |object: &Value| object["metadata"]["deletionTimestamp"].is_string();
        let keys: Vec<Key> = state
            .store
            .list(&objects)
            .filter(|object| !going(object))
            .map(|object| Key::of(object))
            .collect();
        for key in keys {
            delete::delete_internally(state, &resource, &key, "Background");
        }
    }
    if state.store.list(&objects).next().is_some() {
        return;
    }
    let mut released = definition.clone();
    let mut finalizers = released["metadata"]["finalizers"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let before = finalizers.len();
    finalizers.retain(|name| name != CLEANUP);
    if finalizers.len() == before {
        return;
    }
    let last = finalizers.is_empty();
    set_finalizers(&mut released, finalizers);
    if last {
        state.store.remove(storage, &Key::of(definition));
        state.stop_serving(definition);
    } else {
        state.store.put(storage, released);
    }
}
