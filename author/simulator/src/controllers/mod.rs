//! The stand-ins for the control plane's controllers. They run after every request, until nothing changes any more, so
//! that what a client reads next does not depend on timing. What they do at a later time, they do before the first request after it.

pub(crate) mod claims;
pub(crate) mod collect;
mod daemons;
mod definitions;
mod deployments;
mod jobs;
mod namespaces;
mod owned;
pub mod ownership;
mod pods;
mod replicas;
mod stateful;

use crate::options::Workloads;
use crate::state::State;

/// Field manager of the controllers.
const MANAGER: &str = "kube-controller-manager";

/// More rounds than this mean that two controllers undo each other's work.
const MAXIMAL_ROUNDS: usize = 1000;

/// Runs every controller until nothing changes.
pub(crate) fn settle(state: &mut State) {
    for _ in 0..MAXIMAL_ROUNDS {
        let changes = state.store.take_fresh();
        if changes.is_empty() {
            return;
        }
        state.ownership.observe(&changes);
        state.addresses.observe(&changes);
        definitions::run(state, &changes);
        if state.controllers.namespace {
            namespaces::run(state, &changes);
        }
        if state.controllers.workloads != Workloads::Ignored {
            deployments::run(state, &changes);
            replicas::run(state, &changes);
            stateful::run(state, &changes);
            daemons::run(state, &changes);
            jobs::run(state, &changes);
            claims::run(state, &changes);
        }
        if state.controllers.garbage_collector {
            collect::run(state, &changes);
        }
    }
}

/// Reconciles the objects that are due by now.
pub(crate) fn wake(state: &mut State) {
    let now = state.clock.now();
    let mut is_due = false;
    while let Some((at, storage, key)) = state.timers.pop_first() {
        if at > now {
            state.timers.insert((at, storage, key));
            break;
        }
        state.store.touch(&storage, &key);
        is_due = true;
    }
    if is_due {
        settle(state);
    }
}
