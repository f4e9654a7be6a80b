//! Reads the annotations of primaries by which users pause and request reconciles.

use pilothouse_cluster::cache::store::ObjectChange;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::status::annotations::{self, PAUSED, RECONCILE_REQUESTED, is_request};

/// Returns `true` if a primary is neither reconciled nor written, because it is paused. A pause does not hold back its deletion.
pub fn is_paused(primary: &CachedObject) -> bool {
    !primary.deleting && annotations::is_paused(primary.annotation(PAUSED).as_deref())
}

/// The warning about the annotation of a primary, if its text is unclear.
pub fn unclear_pause(primary: &CachedObject) -> Option<String> {
    annotations::unclear_pause(primary.annotation(PAUSED).as_deref())
}

/// Returns `true` if a change of a primary pauses or resumes it, or makes its pause unclear.
pub fn is_pause_changed(change: &ObjectChange) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.annotation(PAUSED) != new.annotation(PAUSED),
        _ => false,
    }
}

/// Returns `true` if a change of a primary requests a reconcile. An annotation that the object had when it was first seen is no
/// request: the object is reconciled then anyway.
pub fn is_requested(change: &ObjectChange) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => {
            let [before, now] = [old, new].map(|object| object.annotation(RECONCILE_REQUESTED));
            is_request(before.as_deref(), now.as_deref())
        }
        _ => false,
    }
}
