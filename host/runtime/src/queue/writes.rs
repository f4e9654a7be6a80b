//! Digests of the objects that a run wrote: small enough to be remembered, and enough to recognize the same write.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};

use pilothouse_core::Key;

/// The most objects that are remembered for one primary.
const REMEMBERED: usize = 256;

/// State in which a run left an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WrittenBody {
    /// Has a body with this digest.
    Digest(u64),
    /// Deleted.
    Gone,
    /// Not known, or unchanged.
    Unknown,
}

impl WrittenBody {
    /// Makes the digest of a body, or of any value that identifies it.
    pub fn of(body: &impl Hash) -> Self {
        Self::Digest(hash(body))
    }
}

/// Objects that were written, each with its last state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    left: BTreeMap<u64, WrittenBody>,
    /// Objects that were created again after they had been deleted.
    made_again: BTreeSet<u64>,
}

impl Writes {
    /// Adds a write of an object.
    pub fn record(&mut self, key: &Key, body: WrittenBody) {
        self.left.insert(hash(key), body);
    }

    /// Adds the writes of a later run; the later write of an object counts.
    pub fn extend(&mut self, newer: Self) {
        for (object, body) in newer.left {
            let before = self.left.insert(object, body);
            if before == Some(WrittenBody::Gone) && body != WrittenBody::Gone {
                self.made_again.insert(object);
            }
        }
    }

    /// Adds the writes of a later run. Beyond the limit, the older writes are forgotten first.
    pub fn remember(&mut self, newer: &Self) {
        self.extend(newer.clone());
        if self.left.len() > REMEMBERED {
            self.left.clone_from(&newer.left);
        }
        while self.left.len() > REMEMBERED {
            self.left.pop_last();
        }
        let left = &self.left;
        self.made_again.retain(|object| left.contains_key(object));
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.left.len()
    }

    /// Returns `true` if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// State in which an object was left, if it was written.
    pub fn of(&self, key: &Key) -> Option<WrittenBody> {
        self.left.get(&hash(key)).copied()
    }

    /// Returns `true` if another run wrote one of the objects, too. A run that only deletes what others made repeats
    /// nothing, unless the object had been deleted before and created again.
    pub fn overlaps(&self, other: &Self) -> bool {
        let only_deletes = self.left.values().all(|body| *body == WrittenBody::Gone);
        let is_again =
            |object: &u64| other.left.contains_key(object) && (!only_deletes || other.made_again.contains(object));
        self.left.keys().any(is_again)
    }

    /// Returns `true` if an object was created again after it had been deleted.
    pub fn has_made_again(&self, key: &Key) -> bool {
        self.made_again.contains(&hash(key))
    }

    /// Returns `true` if another run wrote one of the objects with the same body: that write has been reverted since.
    pub fn repeats(&self, other: &Self) -> bool {
        let is_same = |(object, body): (&u64, &WrittenBody)| {
            matches!(body, WrittenBody::Digest(_)) && other.left.get(object) == Some(body)
        };
        self.left.iter().any(is_same)
    }
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
