//! Owns what is known of a target: what the cache shows of it against what our own last request showed. Makes no request.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::reflector::is_before;
use pilothouse_cluster::store::{ObjectChange, Store};
use pilothouse_core::{Key, Kind};

use super::claims::{ContributionTarget, TargetId};
use crate::hub::{HostState, PrimaryRef};

/// An object has changed: whoever waits to see it is released, and plugins that contribute to it look at it again,
/// unless the change is what they know already.
pub fn target_changed(state: &mut HostState, change: &ObjectChange) {
    let key = Key::new(change.kind.clone(), change.name().clone());
    let HostState {
        contributions, queue, ..
    } = state;
    let mut touched = Vec::new();
    for (plugin, book) in &mut contributions.plugins {
        let Some(target) = book.targets.get_mut(&key) else {
            continue;
        };
        target.unseen.retain(|(version, primary_ref)| {
            let seen = change
                .new
                .as_ref()
                .is_none_or(|new| is_as_new(&new.resource_version, version));
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
            contributions.target_queue.mark(id);
        } else {
            contributions.tidy(&id);
        }
    }
}

/// The watches of a kind have ended, or are about less than before: whoever waits to see what they do not show any more
/// waits in vain.
pub fn watch_ends(state: &mut HostState, kind: &Kind) {
    let HostState {
        contributions,
        queue,
        store,
        ..
    } = state;
    for book in contributions.plugins.values_mut() {
        let targets = book.targets.iter_mut().filter(|(key, _)| *key.kind == *kind);
        for (_, target) in targets.filter(|(key, _)| !store.is_followed(kind, &key.name)) {
            target.newest = None;
            for (_, primary_ref) in target.unseen.drain(..) {
                queue.release(primary_ref.lane, &primary_ref.name);
            }
        }
    }
}

/// A primary does not wait any more for the cache to show a version of a target.
pub fn forget_unseen(state: &mut HostState, id: &TargetId, primary_ref: &PrimaryRef, version: &str) {
    let HostState {
        contributions, queue, ..
    } = state;
    let Some((target, _)) = contributions.target(id) else {
        return;
    };
    let is_it = |(awaited, who): &mut (Box<str>, PrimaryRef)| **awaited == *version && who == primary_ref;
    for _ in target.unseen.extract_if(.., is_it) {
        queue.release(primary_ref.lane, &primary_ref.name);
    }
}

/// Whether what is seen of an object is older than what is known.
pub fn is_older(seen: Option<&CachedObject>, newest: &CachedObject) -> bool {
    seen.is_some_and(|seen| seen.uid == newest.uid && !is_as_new(&seen.resource_version, &newest.resource_version))
}

/// Whether nothing has changed that matters to a claim.
fn is_same(change: &ObjectChange) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.is_held_like(new, |_| true) && old.has_text_of(new),
        _ => false,
    }
}

/// Whether a resourceVersion is this one or a later one.
fn is_as_new(have: &str, want: &str) -> bool {
    have == want || is_before(want, have)
}

/// The object as it is best known: the cache, or our own last request where that is newer.
pub fn best_known(store: &Store, id: &TargetId, target: &ContributionTarget) -> Option<Arc<CachedObject>> {
    let cached = store.get(&id.1.kind, &id.1.name)?;
    match &target.newest {
        Some(newest) if is_older(Some(cached), newest) => Some(newest.clone()),
        _ => Some(cached.clone()),
    }
}
