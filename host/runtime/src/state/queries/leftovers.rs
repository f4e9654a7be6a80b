//! Answers what earlier versions of a plugin have left: objects of kinds that it does not own any more, fields in
//! objects of kinds that it does not contribute to any more, children and finalizers of controllers that it does not
//! have any more. Nothing of all that is desired, so it is pruned, given up and released as everything is.

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
    /// Whether nothing is left of what a lane's plugin made in this way of a kind that it does not touch so any more. While
    /// the lane has something to do, or has not seen all its writes, there may be more to come of what an earlier version
    /// had under way.
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
            // What another controller of the plugin contributes to is settled among its claims.
            Made::Contributed => {
                is_contributed_to(&tables, lane, &former.kind, reach)
                    || !tables
                        .store
                        .iter(&former.kind, None)
                        .any(|object| has_contributed_fields(lane, object))
            }
        }
    }

    /// The children that no garbage collector takes away when all primaries of a lane are gone.
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

    /// How many living children the primaries of a lane have.
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

    /// Whether no primary of a lane has its finalizer. None has one of a kind that is not served.
    pub fn is_released(&self, lane: &Lane) -> bool {
        let primaries: Vec<_> = {
            let tables = self.tables.read();
            let primary = lane.grants.primary();
            let all = lane.grants.confinement().seen(Reach::all());
            if !is_idle(&tables, lane) || !tables.store.has(primary, &Projection::default(), &all) {
                return false;
            }
            tables.store.iter(primary, None).cloned().collect()
        };
        let is_held = |object: &Arc<CachedObject>| lane.selects(&object.name) && lane.has_finalized(object);
        !primaries.iter().any(is_held)
    }
}

/// Whether a lane is open and has nothing to do.
fn is_idle(tables: &Tables, lane: &Lane) -> bool {
    let depth = tables.queue.depth(lane.id, Instant::now());
    tables.queue.is_open(lane.id) && depth.ready + depth.running + depth.unseen == 0
}

/// Whether there is an object of a kind that goes with some primary of a lane, or went with one.
fn has_children(tables: &Tables, lane: &Lane, kind: &Kind) -> bool {
    let is_child = |object: &Arc<CachedObject>| {
        let controller = object.controller.as_ref();
        is_ours(lane, object) && !is_kept(object) && controller.is_some_and(|it| is_primary_of(lane, it))
    };
    tables.store.iter(kind, None).any(is_child)
}

/// Whether an object has fields that a lane's plugin contributes.
fn has_contributed_fields(lane: &Lane, object: &CachedObject) -> bool {
    object.entry(lane.contributor.manager(), false).is_some()
}

/// Whether a lane of the same plugin contributes to all that is within this reach.
fn is_contributed_to(tables: &Tables, lane: &Lane, kind: &Kind, reach: &Reach) -> bool {
    let mut lanes = tables.lanes.of_kind(kind);
    lanes.any(|other| {
        let grant = other.grants.get(kind).filter(|grant| grant.allows(Access::Contributed));
        other.plugin == lane.plugin && grant.is_some_and(|grant| Reach::of(&grant.touch).covers(reach))
    })
}
