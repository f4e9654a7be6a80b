//! Owns what is left of the kinds that earlier versions of a plugin owned, and the lane that does not look for them any
//! more. Nothing of them is desired, so they are pruned and collected as everything is.

use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_core::Kind;
use pilothouse_core::former::Former;
use pilothouse_core::path::Projection;
use tokio::time::Instant;

use crate::hub::{Hub, State};
use crate::lane::Lane;
use crate::route::{is_kept, is_ours, is_primary_of};

impl Hub {
    /// Whether a lane has no object left of a kind that it does not own any more. While it has something to do, or has not
    /// seen all its writes, there may be more to come of what an earlier version had under way.
    pub fn is_childless(&self, lane: &Lane, former: &Former) -> bool {
        let state = self.state.read();
        let depth = state.queue.depth(lane.id, Instant::now());
        state.queue.is_open(lane.id)
            && depth.ready + depth.running + depth.unseen == 0
            && state.store.has(&former.kind, &Projection::default(), &former.reach)
            && !has_children(&state, lane, &former.kind)
    }

    /// Puts a lane in the place of one that looks for other kinds of earlier versions, and does the same with it.
    pub fn exchange_lane(&self, lane: &Arc<Lane>) {
        self.state.write().lanes.put(lane.clone());
    }
}

/// Whether there is an object of a kind that goes with some primary of a lane, or went with one.
fn has_children(state: &State, lane: &Lane, kind: &Kind) -> bool {
    let is_child = |object: &Arc<Stored>| {
        let controller = object.controller.as_ref();
        is_ours(lane, object) && !is_kept(object) && controller.is_some_and(|it| is_primary_of(lane, it))
    };
    state.store.iter(kind, None).any(is_child)
}
