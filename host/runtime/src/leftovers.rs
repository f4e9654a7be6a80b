//! Owns what earlier versions of a plugin have left: objects of kinds that it does not own any more, fields in objects of
//! kinds that it does not contribute to any more, children and finalizers of controllers that it does not have any more; and
//! the lane that does not look for them any more. Nothing of all that is desired, so it is pruned, given up and released as
//! everything is.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::inventory::{FormerKind, Made};
use pilothouse_core::manifest::Access;
use pilothouse_core::ownership::OwnerLink;
use pilothouse_core::path::Projection;
use pilothouse_core::reach::Reach;
use pilothouse_core::{Key, Kind};
use tokio::time::Instant;

use crate::contribute;
use crate::hub::{HostState, Hub};
use crate::lane::Lane;
use crate::route::{is_kept, is_ours, is_primary_of};

/// The objects that were asked to be given up, in which version: what is still held of one that has not changed since, its
/// server does not let go.
pub type GivenUp = HashMap<Key, Box<str>>;

impl Hub {
    /// Whether nothing is left of what a lane's plugin made in this way of a kind that it does not touch so any more. While
    /// the lane has something to do, or has not seen all its writes, there may be more to come of what an earlier version
    /// had under way.
    pub fn is_cleared(&self, lane: &Lane, former: &FormerKind, made: Made) -> bool {
        let state = self.state.read();
        let Some(reach) = former.reach_of(made) else {
            return true;
        };
        if !is_idle(&state, lane) || !state.store.has(&former.kind, &Projection::default(), reach) {
            return false;
        }
        match made {
            Made::Owned => !has_children(&state, lane, &former.kind),
            // What another controller of the plugin contributes to is settled among its claims.
            Made::Contributed => {
                is_contributed_to(&state, lane, &former.kind, reach)
                    || !state
                        .store
                        .iter(&former.kind, None)
                        .any(|object| has_contributed_fields(lane, object))
            }
        }
    }

    /// The children that no garbage collector takes away when all primaries of a lane are gone.
    pub fn left_behind(&self, lane: &Lane) -> Vec<(ServedKind, Arc<CachedObject>)> {
        let state = self.state.read();
        let served = lane.owned_kinds().filter_map(|kind| lane.served(kind));
        let left = served.flat_map(|served| {
            let is_left = |object: &&Arc<CachedObject>| {
                let controller = object.controller.as_ref();
                is_ours(lane, object)
                    && !object.deleting
                    && controller.is_some_and(|it| it.bond == OwnerLink::Label && is_primary_of(lane, it))
            };
            let objects: Vec<_> = state.store.iter(&served.kind, None).filter(is_left).cloned().collect();
            objects.into_iter().map(move |object| (served.clone(), object))
        });
        left.collect()
    }

    /// Whether no primary of a lane has its finalizer. None has one of a kind that is not served.
    pub fn is_released(&self, lane: &Lane) -> bool {
        let state = self.state.read();
        let primary = lane.grants.primary();
        let is_seen = state.store.has(primary, &Projection::default(), &Reach::all());
        is_idle(&state, lane)
            && is_seen
            && !state
                .store
                .iter(primary, None)
                .any(|object| lane.selects(&object.name) && lane.has_finalized(object))
    }

    /// Has what is left of a lane's contributions looked at, each object again only when it has changed.
    pub fn give_up(&self, lane: &Lane, asked: &mut GivenUp) {
        let mut state = self.state.write();
        asked.retain(|key, _| state.store.get(&key.kind, &key.name).is_some());
        contribute::give_up(&mut state, lane, asked);
        drop(state);
        self.claims.notify_one();
    }

    /// Puts a lane in the place of one that looks for other kinds of earlier versions, and does the same with it.
    pub fn exchange_lane(&self, lane: &Arc<Lane>) {
        self.state.write().lanes.put(lane.clone());
    }
}

impl HostState {
    /// Whether an object was reconciled by a controller that is not there any more, and something of it is left.
    pub fn has_left_something(&self, lane: &Lane, object: &CachedObject) -> bool {
        lane.selects(&object.name)
            && (lane.has_finalized(object) || self.children_of(lane, &object.uid).next().is_some())
    }
}

/// Whether a lane is open and has nothing to do.
fn is_idle(state: &HostState, lane: &Lane) -> bool {
    let depth = state.queue.depth(lane.id, Instant::now());
    state.queue.is_open(lane.id) && depth.ready + depth.running + depth.unseen == 0
}

/// Whether there is an object of a kind that goes with some primary of a lane, or went with one.
fn has_children(state: &HostState, lane: &Lane, kind: &Kind) -> bool {
    let is_child = |object: &Arc<CachedObject>| {
        let controller = object.controller.as_ref();
        is_ours(lane, object) && !is_kept(object) && controller.is_some_and(|it| is_primary_of(lane, it))
    };
    state.store.iter(kind, None).any(is_child)
}

/// Whether an object has fields that a lane's plugin contributes.
fn has_contributed_fields(lane: &Lane, object: &CachedObject) -> bool {
    object.entry(lane.contributor.manager(), false).is_some()
}

/// Whether a lane of the same plugin contributes to all that is within this reach.
fn is_contributed_to(state: &HostState, lane: &Lane, kind: &Kind, reach: &Reach) -> bool {
    let mut lanes = state.lanes.of_kind(kind);
    lanes.any(|other| {
        let grant = other.grants.get(kind).filter(|grant| grant.allows(Access::Contributed));
        other.plugin == lane.plugin && grant.is_some_and(|grant| Reach::of(&grant.touch).covers(reach))
    })
}
