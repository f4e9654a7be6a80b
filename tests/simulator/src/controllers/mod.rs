//! Owns the stand-ins for the control plane's controllers. They run after every request, until nothing changes any more, so
//! that what a client reads next does not depend on timing.

pub(crate) mod claims;
pub(crate) mod collect;
mod definitions;
mod deployments;
mod namespaces;
mod owned;
mod replicas;

use crate::options::Workloads;
use crate::state::State;

/// Who the controllers are in managedFields.
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
            claims::run(state, &changes);
        }
        if state.controllers.garbage_collector {
            collect::run(state, &changes);
        }
    }
}
