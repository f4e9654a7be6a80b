//! Namespace controllers: they fill every new namespace, and empty one that is being deleted.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::MANAGER;
use crate::change::Change;
use crate::kinds::Storage;
use crate::objects::{create, delete, update};
use crate::resource::Key;
use crate::state::State;

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let storage = Storage::new("", "namespaces");
    let mut names: BTreeSet<String> = BTreeSet::new();
    for change in changes {
        let metadata = &change.after["metadata"];
        let name = if change.storage == storage {
            &metadata["name"]
        } else {
            &metadata["namespace"]
        };
        if change.storage == storage || change.deleted {
            names.extend(name.as_str().map(str::to_owned));
        }
    }
    for name in names {
        let Some(namespace) = state.store.get(&storage, &Key::new("", &name)).cloned() else {
            continue;
        };
        if namespace["metadata"]["deletionTimestamp"].is_string() {
            empty(state, &name, &namespace);
        } else {
            furnish(state, &name);
        }
    }
}

/// Every namespace has a service account for pods and the server's certificate for them.
fn furnish(state: &mut State, namespace: &str) {
    let contents = [
        ("serviceaccounts", "default", json!({})),
        (
            "configmaps",
            "kube-root-ca.crt",
            json!({
                "metadata": {"annotations": {"kubernetes.io/description":
                    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the \
                     internal service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of \
                     Kubernetes clusters."}},
                "data": {"ca.crt": "simulated"},
            }),
        ),
    ];
    for (plural, name, mut object) in contents {
        if state.get("", plural, namespace, name).is_some() {
            continue;
        }
        let Some(resource) = state.resource("", plural) else {
            continue;
        };
        object["metadata"]["name"] = json!(name);
        object["metadata"]["namespace"] = json!(namespace);
        create::internally(state, &resource, MANAGER, &object);
    }
}

/// Deletes the objects of a namespace, and finalizes it once none is left.
fn empty(state: &mut State, name: &str, namespace: &Value) {
    let inside = |state: &State| -> Vec<(Storage, Key, bool)> {
        let contents = state
            .store
            .all()
            .filter(|(_, object)| object["metadata"]["namespace"] == name);
        let mut places: Vec<(Storage, Key, bool)> = contents
            .map(|(storage, object)| {
                (
                    storage.clone(),
                    Key::of(object),
                    object["metadata"]["deletionTimestamp"].is_string(),
                )
            })
            .collect();
        places.sort();
        places
    };
    for (storage, key, going) in inside(state) {
        if let (false, Some(resource)) = (going, state.kinds.of_storage(&storage).cloned()) {
            delete::delete_internally(state, &resource, &key, "Background");
        }
    }
    let left = inside(state);
    let Some(resource) = state.resource("", "namespaces") else {
        return;
    };
    let key = Key::new("", name);
    if left.is_empty() {
        let finalizers: Vec<Value> = namespace["spec"]["finalizers"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|name| *name != "kubernetes")
            .cloned()
            .collect();
        update::internally(state, &resource, &key, ("finalize", MANAGER), |object| {
            let Some(spec) = object["spec"].as_object_mut() else {
                return;
            };
            if finalizers.is_empty() {
                spec.remove("finalizers");
            } else {
                spec.insert("finalizers".to_owned(), Value::Array(finalizers));
            }
        });
        return;
    }
    let now = state.clock.timestamp();
    let conditions = remaining(&left, &now, &namespace["status"]["conditions"]);
    update::internally(state, &resource, &key, ("status", MANAGER), |object| {
        object["status"]["conditions"] = conditions;
    });
}

/// Conditions about the remaining objects of the namespace.
fn remaining(left: &[(Storage, Key, bool)], now: &str, known: &Value) -> Value {
    let mut kinds: Vec<String> = left
        .iter()
        .map(|(storage, _, _)| format!("{}.{}", storage.plural, storage.group))
        .collect();
    kinds.dedup();
    let counted: Vec<String> = kinds
        .iter()
        .map(|kind| {
            let count = left
                .iter()
                .filter(|(storage, _, _)| format!("{}.{}", storage.plural, storage.group) == *kind)
                .count();
            format!("{kind} has {count} resource instances")
        })
        .collect();
    let message = format!("Some resources are remaining: {}", counted.join(", "));
    let since = known
        .as_array()
        .into_iter()
        .flatten()
        .find(|condition| condition["type"] == "NamespaceContentRemaining" && condition["status"] == "True")
        .map_or_else(|| json!(now), |condition| condition["lastTransitionTime"].clone());
    json!([{
        "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain", "message": message,
        "lastTransitionTime": since,
    }])
}
