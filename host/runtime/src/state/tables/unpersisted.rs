//! Remembers applies that the API server did not store as they were sent. A pruned or rewritten field then costs one
//! request instead of one in each reconcile.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pilothouse_cluster::object::{AppliedFields, CachedObject};
use pilothouse_core::kubernetes::values::ValueDifference;
use pilothouse_core::{Key, Kind};

/// An apply that the server stores differently from what was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpersistedApply {
    /// Digest of what was applied.
    pub digest: Box<str>,
    /// State that the server stores since ([`UnpersistedApply::left_of`]), or the status.
    pub left: Box<str>,
    /// Values that the server stores in place of the applied ones.
    pub rewritten: Arc<[ValueDifference]>,
}

impl UnpersistedApply {
    /// Comparable state of our entry in an object: its fields, their values, and the digest beside them.
    pub fn left_of(entry: Option<AppliedFields<'_>>, object: &CachedObject) -> Box<str> {
        let (fields, values) = entry.map(|entry| (entry.fields(), entry.values)).unwrap_or_default();
        let digest = object.digest.as_deref().unwrap_or_default();
        // A field set may be as large as an object.
        let mut hasher = DefaultHasher::new();
        fields.hash(&mut hasher);
        format!("{:x} {values:x} {digest}", hasher.finish()).into()
    }
}

/// Applied children and statuses that the server stores differently.
#[derive(Default)]
pub struct UnpersistedApplies(HashMap<Key, UnpersistedApply>);

impl UnpersistedApplies {
    /// The record of an object.
    pub fn get(&self, key: &Key) -> Option<&UnpersistedApply> {
        self.0.get(key)
    }

    /// Records the difference of an object that was applied, if there is one.
    pub fn set(&mut self, key: Key, unpersisted: Option<UnpersistedApply>) {
        match unpersisted {
            Some(unpersisted) => _ = self.0.insert(key, unpersisted),
            None => self.forget(&key),
        }
    }

    /// Forgets a deleted object.
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// Number of objects of a kind in which the server stores other values than were applied.
    pub fn rewritten(&self, kind: &Kind) -> usize {
        let of_kind = self
            .0
            .iter()
            .filter(|(key, it)| *key.kind == *kind && !it.rewritten.is_empty());
        of_kind.count()
    }

    /// Forgets a kind whose definition has changed.
    pub fn forget_kind(&mut self, kind: &Kind) {
        self.0.retain(|key, _| *key.kind != *kind);
    }
}
