//! Reads the cache at one moment, for decisions that are made without the lock.

use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::ownership::Owner;
use pilothouse_core::{Key, Kind, Name};

use crate::lanes::custody::{children_of, is_orphaning, is_unselected_child};
use crate::lanes::lane::Lane;
use crate::lanes::pause::is_paused;
use crate::lanes::snapshot::Lanes;
use crate::state::tables::unpersisted::UnpersistedApply;
use crate::state::{SharedState, Tables};

/// Cached state with which desired objects are compared.
pub struct DiffSnapshot {
    /// The lanes and the owner: they decide whether another plugin claims an object.
    pub owner: OwnerSnapshot,
    /// Each desired object as cached, and what the server stores differently from what was applied.
    pub objects: Vec<ObjectSnapshot>,
    /// Objects that the lane's plugin applied for the owner.
    pub children: Vec<(ServedKind, Arc<CachedObject>)>,
}

/// An owner of children, and the lanes that may reconcile it.
pub struct OwnerSnapshot {
    /// The lanes.
    pub lanes: Lanes,
    /// The owner as cached.
    pub primary: Option<Arc<CachedObject>>,
}

/// One object of a snapshot.
pub struct ObjectSnapshot {
    /// The object as cached.
    pub live: Option<Arc<CachedObject>>,
    /// Difference between what was applied and what the server stores.
    pub unpersisted: Option<UnpersistedApply>,
}

impl SharedState {
    /// An object as cached.
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<Arc<CachedObject>> {
        self.tables.read().store.get(kind, name).cloned()
    }

    /// Cached state that decides about an owner's desired objects, and about its children that are no longer desired.
    pub fn diff_snapshot(&self, lane: &Lane, owner: &Owner, keys: &[Key]) -> DiffSnapshot {
        let tables = self.tables.read();
        let object = |key: &Key| ObjectSnapshot {
            live: tables.store.get(&key.kind, &key.name).cloned(),
            unpersisted: tables.unpersisted.get(key).cloned(),
        };
        let children = children_of(&tables.store, lane, &owner.uid);
        DiffSnapshot {
            owner: OwnerSnapshot {
                lanes: tables.lanes.clone(),
                primary: tables.store.get(&owner.kind, &owner.name).cloned(),
            },
            objects: keys.iter().map(object).collect(),
            children: children.map(|(served, child)| (served, child.clone())).collect(),
        }
    }

    /// Returns `true` if a primary that a lane's Plugin selects is paused.
    pub fn is_paused(&self, lane: &Lane, name: &Name) -> bool {
        self.tables.read().is_paused(lane, name)
    }

    /// Returns `true` if nothing is written for a primary: it is paused, or deleted with orphan propagation.
    pub fn holds_writes_back(&self, lane: &Lane, name: &Name, uid: &str) -> bool {
        let tables = self.tables.read();
        tables.orphans.is_orphaned(uid) || tables.is_paused(lane, name)
    }

    /// The owner part of [`SharedState::diff_snapshot`], read anew.
    pub fn owner_snapshot(&self, owner: &Owner) -> OwnerSnapshot {
        let tables = self.tables.read();
        OwnerSnapshot {
            lanes: tables.lanes.clone(),
            primary: tables.store.get(&owner.kind, &owner.name).cloned(),
        }
    }

    /// Objects that a lane's plugin applied for a primary and that are deleted with it, including those already being
    /// deleted.
    pub fn children_of(&self, lane: &Lane, owner: &str) -> Vec<(ServedKind, Arc<CachedObject>)> {
        let tables = self.tables.read();
        let children = children_of(&tables.store, lane, owner);
        children.map(|(served, child)| (served, child.clone())).collect()
    }

    /// Children that a lane's plugin applied for the primaries that it selects, except those of primaries that are
    /// deleted with orphan propagation.
    pub fn children_of_lane(&self, lane: &Lane) -> Vec<(ServedKind, Arc<CachedObject>)> {
        let tables = self.tables.read();
        let primaries = tables.store.iter(lane.grants.primary(), None);
        let leaves = |primary: &CachedObject| is_orphaning(primary) || tables.orphans.is_orphaned(&primary.uid);
        let selected = primaries.filter(|primary| lane.selects(&primary.name) && !leaves(primary));
        let children = selected.flat_map(|primary| {
            let children = children_of(&tables.store, lane, &primary.uid);
            children
                .map(|(served, child)| (served, child.clone()))
                .collect::<Vec<_>>()
        });
        children.collect()
    }

    /// Primaries in the namespaces of a lane.
    pub fn primaries_of(&self, lane: &Lane) -> Vec<Arc<CachedObject>> {
        let tables = self.tables.read();
        let primaries = tables.store.iter(lane.grants.primary(), None);
        primaries
            .filter(|primary| lane.selects(&primary.name))
            .cloned()
            .collect()
    }

    /// At most `most` primaries that a lane reconciles and that are neither being deleted nor paused.
    pub fn sample_primaries(&self, lane: &Lane, most: usize) -> Vec<Name> {
        let primaries = self.primaries_of(lane).into_iter();
        let reconciled = primaries.filter(|object| !object.deleting && !is_paused(object) && lane.reconciles(object));
        reconciled.take(most).map(|object| object.name.clone()).collect()
    }

    /// Primaries of a lane that are being deleted and wait for its finalizer.
    pub fn unfinished(&self, lane: &Lane) -> Vec<Name> {
        let primaries = self.primaries_of(lane).into_iter();
        let unfinished = primaries.filter(|object| lane.has_to_finish(object));
        unfinished.map(|object| object.name.clone()).collect()
    }

    /// Number of objects that a lane's plugin applied for primaries that it does not select.
    pub fn unselected_children(&self, lane: &Lane) -> usize {
        let tables = self.tables.read();
        let of_kind = |kind| {
            let children = tables.store.iter(kind, None);
            children.filter(|child| is_unselected_child(lane, child)).count()
        };
        lane.owned_kinds().map(of_kind).sum()
    }
}

impl Tables {
    fn is_paused(&self, lane: &Lane, name: &Name) -> bool {
        let primary = self.store.get(lane.grants.primary(), name);
        lane.selects(name) && primary.is_some_and(|primary| is_paused(primary))
    }
}
