//! Remembers the desired objects of each primary's last answer, to tell an object that is new in an answer from one
//! that was desired before. As long as a new one cannot be created, the objects that it may replace are not pruned.
//!
//! An existing child counts as desired before, and so does an object whose failure the primary's status reports while
//! no object is kept for it. After a start or on another replica nothing else is known: all other objects count as new
//! until an answer has nothing to prune beside them.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pilothouse_core::Key;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// Desired objects of each primary's last answer, except new ones that delayed pruning.
#[derive(Debug, Default)]
pub struct EarlierDesires(HashMap<PrimaryRef, HashSet<u64>>);

impl EarlierDesires {
    /// Returns `true` if an earlier answer desired an object.
    pub fn has(&self, primary_ref: &PrimaryRef, key: &Key) -> bool {
        let before = self.0.get(primary_ref);
        before.is_some_and(|before| before.contains(&hash(key)))
    }

    /// Records the desired objects of an answer that was carried out.
    pub fn set<'a>(&mut self, primary_ref: &PrimaryRef, keys: impl Iterator<Item = &'a Key>) {
        let keys: HashSet<u64> = keys.map(hash).collect();
        if keys.is_empty() {
            self.0.remove(primary_ref);
        } else {
            self.0.insert(primary_ref.clone(), keys);
        }
    }

    /// Forgets a deleted primary.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.remove(primary_ref);
    }

    /// Forgets a removed lane.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.0.retain(|primary_ref, _| primary_ref.lane != lane);
    }
}

fn hash(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
