//! Owns what the API server made of applies that it did not store as they were sent. A field that it prunes or rewrites is
//! remembered, so that it costs one request instead of one for each reconcile.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use pilothouse_cluster::object::{AppliedFields, CachedObject};
use pilothouse_core::kubernetes::values::ValueDifference;
use pilothouse_core::{Key, Kind};

/// What the server made of an apply of ours and does not hold as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpersistedApply {
    /// The digest of what was applied.
    pub digest: Box<str>,
    /// What the server has since ([`UnpersistedApply::left_of`]), or the status.
    pub left: Box<str>,
    /// The values that the server stores in place of those that were applied.
    pub rewritten: Arc<[ValueDifference]>,
}

impl UnpersistedApply {
    /// The state of our entry in an object, to be compared: its fields, their values, and the digest beside them.
    pub fn left_of(entry: Option<AppliedFields<'_>>, object: &CachedObject) -> Box<str> {
        let (fields, values) = entry.map(|entry| (entry.fields(), entry.values)).unwrap_or_default();
        let digest = object.digest.as_deref().unwrap_or_default();
        // A field set may have as many bytes as an object.
        let mut hasher = DefaultHasher::new();
        fields.hash(&mut hasher);
        format!("{:x} {values:x} {digest}", hasher.finish()).into()
    }
}

/// Children and statuses that the server does not hold as they were applied.
#[derive(Default)]
pub struct UnpersistedApplies(HashMap<Key, UnpersistedApply>);

impl UnpersistedApplies {
    /// What is known of an object.
    pub fn get(&self, key: &Key) -> Option<&UnpersistedApply> {
        self.0.get(key)
    }

    /// An object was applied: what the server does not hold of it, if there is anything.
    pub fn set(&mut self, key: Key, unpersisted: Option<UnpersistedApply>) {
        match unpersisted {
            Some(unpersisted) => _ = self.0.insert(key, unpersisted),
            None => self.forget(&key),
        }
    }

    /// An object is gone.
    pub fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// How many objects of a kind have values that the server stores in place of others.
    pub fn rewritten(&self, kind: &Kind) -> usize {
        let of_kind = self
            .0
            .iter()
            .filter(|(key, it)| *key.kind == *kind && !it.rewritten.is_empty());
        of_kind.count()
    }

    /// The definition of a kind is another than it was.
    pub fn forget_kind(&mut self, kind: &Kind) {
        self.0.retain(|key, _| *key.kind != *kind);
    }
}
