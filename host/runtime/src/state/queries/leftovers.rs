//! Finds leftovers of a plugin's earlier versions: objects of kinds that it no longer owns, fields in objects of kinds
//! that it no longer contributes to, children and finalizers of controllers that it no longer has. None of these is
//! desired, so they are pruned and released as usual.

use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Kind;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::plugin::inventory::{FormerKind, Made};
use pilothouse_core::plugin::manifest::Access;
use pilothouse_core::reads::reach::Reach;
use tokio::time::Instant;

use crate::lanes::custody::{is_kept, is_labelled, is_ours, is_primary_of};
use crate::lanes::lane::Lane;
use crate::state::{SharedState, Tables};

impl SharedState {
    /// Returns `true` if nothing is left of what a lane's plugin made in this way of a kind that it no longer touches
    /// so. While the lane is busy or waits for its own writes, leftovers of an earlier version may still appear, so the
    /// answer is `false`.
    pub fn is_cleared(&self, lane: &Lane, former: &FormerKind, made: Made) -> bool {
        let tables = self.tables.read();
        let Some(reach) = former.reach_of(made) else {
            return true;
        };
        if !is_idle(&tables, lane) || !tables.store.has(&former.kind, &Projection::default(), reach) {
            return false;
        }
        match made {
            Made::Owned => !has_children(&tables, lane, &former.kind),
            // Objects to which another controller of the plugin contributes are settled among its claims.
            Made::Contributed => {
                is_contributed_to(&tables, lane, &former.kind, reach)
                    || !tables
                        .store
                        .iter(&former.kind, None)
                        .any(|object| has_contributed_fields(lane, object))
            }
        }
    }

    /// Children that the garbage collector does not delete when all primaries of a lane are gone.
    pub fn left_behind(&self, lane: &Lane) -> Vec<(ServedKind, Arc<CachedObject>)> {
        let tables = self.tables.read();
        let served = lane.owned_kinds().filter_map(|kind| lane.served(kind));
        let left = served.flat_map(|served| {
            let is_left = |object: &&Arc<CachedObject>| {
                let controller = object.controller.as_ref();
                is_ours(lane, object)
                    && !object.deleting
                    && is_labelled(object)
                    && controller.is_some_and(|it| is_primary_of(lane, it))
            };
            let objects: Vec<_> = tables.store.iter(&served.kind, None).filter(is_left).cloned().collect();
            objects.into_iter().map(move |object| (served.clone(), object))
        });
        left.collect()
    }

    /// Number of children of a lane's primaries that are not being deleted.
    pub fn count_children(&self, lane: &Lane) -> u64 {
        let tables = self.tables.read();
        let served = lane.owned_kinds().filter_map(|kind| lane.served(kind));
        let children = served.map(|served| {
            let is_child = |object: &&Arc<CachedObject>| {
                let controller = object.controller.as_ref();
                is_ours(lane, object) && !object.deleting && controller.is_some_and(|it| is_primary_of(lane, it))
            };
            tables.store.iter(&served.kind, None).filter(is_child).count() as u64
        });
        children.sum()
    }

    /// Returns `true` if no primary of a lane has a finalizer. That is also `true` for a kind that is not served.
    pub fn is_released(&self, lane: &Lane, finalizer: &str) -> bool {
        let primaries: Vec<_> = {
            let tables = self.tables.read();
            let primary = lane.grants.primary();
            let all = lane.grants.confinement().seen(Reach::all());
            if !is_idle(&tables, lane) || !tables.store.has(primary, &Projection::default(), &all) {
                return false;
            }
            tables.store.iter(primary, None).cloned().collect()
        };
        let is_held = |object: &Arc<CachedObject>| {
            lane.selects(&object.name) && object.finalizers().iter().any(|present| **present == *finalizer)
        };
        !primaries.iter().any(is_held)
    }
}

/// Returns `true` if a lane is open and has nothing to do.
fn is_idle(tables: &Tables, lane: &Lane) -> bool {
    let depth = tables.queue.depth(lane.id, Instant::now());
    tables.queue.is_open(lane.id) && depth.ready + depth.running + depth.unseen == 0
}

/// Returns `true` if there is an object of a kind that is or was a child of some primary of a lane.
fn has_children(tables: &Tables, lane: &Lane, kind: &Kind) -> bool {
    let is_child = |object: &Arc<CachedObject>| {
        let controller = object.controller.as_ref();
        is_ours(lane, object) && !is_kept(object) && controller.is_some_and(|it| is_primary_of(lane, it))
    };
    tables.store.iter(kind, None).any(is_child)
}

/// Returns `true` if an object has fields that a lane's plugin contributes.
fn has_contributed_fields(lane: &Lane, object: &CachedObject) -> bool {
    object.entry(lane.contributor.manager(), false).is_some()
}

/// Returns `true` if a lane of the same plugin contributes to all objects within this reach.
fn is_contributed_to(tables: &Tables, lane: &Lane, kind: &Kind, reach: &Reach) -> bool {
    let mut lanes = tables.lanes.of_kind(kind);
    lanes.any(|other| {
        let grant = other.grants.get(kind).filter(|grant| grant.allows(Access::Contributed));
        other.plugin == lane.plugin && grant.is_some_and(|grant| Reach::of(&grant.touch).covers(reach))
    })
}
