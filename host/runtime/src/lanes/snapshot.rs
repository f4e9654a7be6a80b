//! Holds the set of lanes, each under a number that is never reused, indexed by kind. A clone is a snapshot of the set:
//! it costs one reference count and holds no lock.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use pilothouse_core::Kind;

use crate::lanes::lane::Lane;
use crate::lanes::primary::LaneId;

/// The lanes.
#[derive(Clone, Default)]
pub struct Lanes {
    set: Arc<LaneSet>,
    /// The number of the next lane.
    next: u32,
}

#[derive(Clone, Default)]
struct LaneSet {
    lanes: BTreeMap<LaneId, Arc<Lane>>,
    /// Lanes by each kind that they reconcile or touch.
    by_kind: HashMap<Kind, BTreeMap<LaneId, Arc<Lane>>>,
}

impl Lanes {
    /// Reserves the number of a future lane.
    pub fn reserve(&mut self) -> LaneId {
        let id = LaneId(self.next);
        self.next += 1;
        id
    }

    /// Inserts a lane. Returns the one that it replaces.
    pub fn put(&mut self, lane: Arc<Lane>) -> Option<Arc<Lane>> {
        let before = self.remove(lane.id);
        let set = Arc::make_mut(&mut self.set);
        for (kind, _) in lane.kinds() {
            set.by_kind.entry(kind).or_default().insert(lane.id, lane.clone());
        }
        set.lanes.insert(lane.id, lane);
        before
    }

    /// Removes a lane.
    pub fn remove(&mut self, id: LaneId) -> Option<Arc<Lane>> {
        let set = Arc::make_mut(&mut self.set);
        let lane = set.lanes.remove(&id)?;
        for (kind, _) in lane.kinds() {
            if let Some(concerned) = set.by_kind.get_mut(&kind) {
                concerned.remove(&id);
                if concerned.is_empty() {
                    set.by_kind.remove(&kind);
                }
            }
        }
        Some(lane)
    }

    /// A lane by its number.
    pub fn get(&self, id: LaneId) -> Option<&Arc<Lane>> {
        self.set.lanes.get(&id)
    }

    /// Every lane, in order of creation.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.set.lanes.values()
    }

    /// Returns `true` if both snapshots hold the same set, because no lane was added or removed between them.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set)
    }

    /// The lanes that reconcile or touch a kind, in order of creation.
    pub fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Lane>> {
        self.set.by_kind.get(kind).into_iter().flat_map(BTreeMap::values)
    }
}
