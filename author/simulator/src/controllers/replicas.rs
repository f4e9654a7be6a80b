//! The ReplicaSet controller: makes and removes pods, and counts them.

use serde_json::{Value, json};

use super::{owned, pods};
use crate::change::Change;
use crate::kinds::Storage;
use crate::kubelet::has_finished;
use crate::resource::Key;
use crate::state::State;

pub(super) fn run(state: &mut State, changes: &[Change]) {
    let sets = Storage::new("apps", "replicasets");
    for (key, set) in owned::concerned(state, changes, (&sets, "ReplicaSet"), &pods::storage()) {
        reconcile(state, (&sets, &key), &set);
    }
}

fn reconcile(state: &mut State, (storage, key): (&Storage, &Key), set: &Value) {
    let wanted = pods::count(&set["spec"]["replicas"]);
    let mut active = owned::children(state, set, &pods::storage());
    active.retain(|pod| pods::is_active(pod));
    // Those that are not ready go first.
    active.sort_by_key(|pod| !pods::is_ready(pod));
    for surplus in active.iter().skip(wanted) {
        pods::remove(state, surplus);
    }
    for _ in active.len()..wanted {
        if !pods::make(state, &pods::of_template(set)) {
            break;
        }
    }
    let own = owned::children(state, set, &pods::storage());
    let (active, others): (Vec<_>, Vec<_>) = own.into_iter().partition(|pod| pods::is_active(pod));
    let (ready, available) = pods::readiness(state, (storage, set), &active);
    let status = json!({
        "replicas": active.len(), "observedGeneration": set["metadata"]["generation"],
        "terminatingReplicas": others.iter().filter(|pod| !has_finished(pod)).count(),
    });
    let counts = [
        ("fullyLabeledReplicas", active.len()),
        ("readyReplicas", ready),
        ("availableReplicas", available),
    ];
    owned::write_status(state, ("apps", "replicasets"), key, status, &counts);
}
