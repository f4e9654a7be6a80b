//! Holds the primaries that are paused, to count them. Whether one is paused is decided by its annotation alone.

use std::collections::{HashMap, HashSet};

use pilothouse_core::Name;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// Paused primaries of this replica's work, by lane.
#[derive(Debug, Default)]
pub struct PausedPrimaries(HashMap<LaneId, HashSet<Name>>);

impl PausedPrimaries {
    /// Adds a primary.
    pub fn insert(&mut self, primary_ref: &PrimaryRef) {
        let PrimaryRef { lane, name } = primary_ref;
        self.0.entry(*lane).or_default().insert(name.clone());
    }

    /// Forgets a primary that is not paused any more, was deleted, or belongs to another replica.
    pub fn remove(&mut self, lane: LaneId, name: &Name) {
        if let Some(names) = self.0.get_mut(&lane) {
            names.remove(name);
        }
    }

    /// Forgets a lane that was removed or begins anew.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.0.remove(&lane);
    }

    /// Returns `true` if a primary is paused.
    pub fn has(&self, primary_ref: &PrimaryRef) -> bool {
        let names = self.0.get(&primary_ref.lane);
        names.is_some_and(|names| names.contains(&primary_ref.name))
    }

    /// Number of paused primaries of a lane.
    pub fn count(&self, lane: LaneId) -> usize {
        self.0.get(&lane).map_or(0, HashSet::len)
    }
}
