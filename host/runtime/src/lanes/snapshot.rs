//! Owns the set of lanes: which there are now, each under a number that is never given twice, and which of them a kind
//! concerns. A clone is a snapshot of the set: it costs one reference count and holds no lock.

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
    /// By each kind that a lane reconciles or touches.
    by_kind: HashMap<Kind, BTreeMap<LaneId, Arc<Lane>>>,
}

impl Lanes {
    /// A number for a lane that is to come.
    pub fn reserve(&mut self) -> LaneId {
        let id = LaneId(self.next);
        self.next += 1;
        id
    }

    /// Puts a lane in its place; says which one it replaces.
    pub fn put(&mut self, lane: Arc<Lane>) -> Option<Arc<Lane>> {
        let before = self.remove(lane.id);
        let set = Arc::make_mut(&mut self.set);
        for (kind, _) in lane.kinds() {
            set.by_kind.entry(kind).or_default().insert(lane.id, lane.clone());
        }
        set.lanes.insert(lane.id, lane);
        before
    }

    /// Takes a lane out.
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

    /// Every lane, in the order in which they came.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Lane>> {
        self.set.lanes.values()
    }

    /// Whether this look at the set and another show the same, because no lane came or went between them.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.set, &other.set)
    }

    /// The lanes that reconcile or touch a kind, in the order in which they came.
    pub fn of_kind(&self, kind: &Kind) -> impl Iterator<Item = &Arc<Lane>> {
        self.set.by_kind.get(kind).into_iter().flat_map(BTreeMap::values)
    }
}
