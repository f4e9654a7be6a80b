//! Remembers what each primary's answers asked for, so that an object that is new in an answer can be told from one that was
//! desired before. As long as one that is new cannot be made, what it may take the place of is not pruned.
//!
//! A child of the primary's that exists was desired before, whoever remembers it, and so was one whose failure stands in
//! the primary's status without any object that is kept for it. Of all others nothing is known after a start or on another
//! replica: they count as new until an answer finds nothing to prune beside them.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use pilothouse_core::Key;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// The objects that the last answer for each primary asked for, those apart that were new and held pruning up.
#[derive(Debug, Default)]
pub struct EarlierDesires(HashMap<PrimaryRef, HashSet<u64>>);

impl EarlierDesires {
    /// Whether an earlier answer asked for an object.
    pub fn has(&self, primary_ref: &PrimaryRef, key: &Key) -> bool {
        let before = self.0.get(primary_ref);
        before.is_some_and(|before| before.contains(&hash(key)))
    }

    /// An answer was carried out that asked for these.
    pub fn set<'a>(&mut self, primary_ref: &PrimaryRef, keys: impl Iterator<Item = &'a Key>) {
        let keys: HashSet<u64> = keys.map(hash).collect();
        if keys.is_empty() {
            self.0.remove(primary_ref);
        } else {
            self.0.insert(primary_ref.clone(), keys);
        }
    }

    /// A primary is gone.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.0.remove(primary_ref);
    }

    /// A lane is gone.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.0.retain(|primary_ref, _| primary_ref.lane != lane);
    }
}

fn hash(key: &Key) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}
