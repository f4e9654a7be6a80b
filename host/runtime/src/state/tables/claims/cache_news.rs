//! Decides what a change in the cache means for the claims on an object: which primaries stop waiting for it, and
//! whether the object is settled again.

use pilothouse_cluster::cache::store::{ObjectChange, Store};
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::{Key, Kind};

use super::registry::Contributions;
use super::target::{TargetId, is_as_new, is_older};
use crate::lanes::primary::PrimaryRef;
use crate::queue::WorkQueue;

impl Contributions {
    /// Applies a change of an object: releases primaries that wait to see it, and marks the object for plugins that
    /// contribute to it, unless they know this version already.
    pub fn target_changed(&mut self, queue: &mut WorkQueue, change: &ObjectChange) {
        let key = Key::new(change.kind.clone(), change.name().clone());
        let mut touched = Vec::new();
        for (plugin, claims) in &mut self.plugins {
            let Some(target) = claims.targets.get_mut(&key) else {
                continue;
            };
            target.unseen.retain(|(version, primary_ref)| {
                let new = change.new.as_ref();
                let seen = new.is_none_or(|new| is_as_new(&new.resource_version, version));
                if seen {
                    queue.release(primary_ref.lane, &primary_ref.name);
                }
                !seen
            });
            let known = match (&change.new, &target.newest) {
                (Some(new), Some(newest)) => is_as_new(&newest.resource_version, &new.resource_version),
                _ => false,
            };
            let newest = target.newest.as_ref();
            if !newest.is_some_and(|newest| is_older(change.new.as_deref(), newest)) {
                target.newest = None;
            }
            touched.push(((plugin.clone(), key.clone()), !known && !is_same(change)));
        }
        for (id, is_marked) in touched {
            if is_marked {
                self.target_queue.mark(id);
            } else {
                self.tidy(&id);
            }
        }
    }

    /// Releases the waits that the watches of a kind can no longer end, because they have ended or were restricted.
    pub fn watch_ends(&mut self, store: &Store, queue: &mut WorkQueue, kind: &Kind) {
        for claims in self.plugins.values_mut() {
            let targets = claims.targets.iter_mut().filter(|(key, _)| *key.kind == *kind);
            for (_, target) in targets.filter(|(key, _)| !store.is_followed(kind, &key.name)) {
                target.newest = None;
                for (_, primary_ref) in target.unseen.drain(..) {
                    queue.release(primary_ref.lane, &primary_ref.name);
                }
            }
        }
    }

    /// Ends a primary's wait for the cache to show a version of a target.
    pub fn forget_unseen(&mut self, queue: &mut WorkQueue, id: &TargetId, primary_ref: &PrimaryRef, version: &str) {
        let Some(target) = self.target_mut(id) else {
            return;
        };
        let is_it = |(awaited, who): &mut (Box<str>, PrimaryRef)| **awaited == *version && who == primary_ref;
        for _ in target.unseen.extract_if(.., is_it) {
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }
}

/// Returns `true` if nothing has changed that affects a claim.
fn is_same(change: &ObjectChange) -> bool {
    let is_held_like = |old: &CachedObject, new: &CachedObject| old.is_held_like(new, |_| true);
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => is_held_like(old, new) && old.has_text_of(new),
        _ => false,
    }
}
