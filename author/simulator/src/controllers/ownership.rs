//! Owners and what they own, kept up to date with each change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::Value;

use crate::change::Change;
use crate::kinds::Storage;
use crate::resource::{Key, text};

/// Index of the objects by the uids of their owners.
#[derive(Debug, Default)]
pub(crate) struct Ownership {
    dependents: BTreeMap<String, BTreeSet<Place>>,
    /// Uids of owners that were deleted while they had dependents: these are deleted although the owners' kind may not
    /// be served any more.
    pub(crate) absent: VecDeque<String>,
}

impl Ownership {
    /// Keeps the index up to date.
    pub(super) fn observe(&mut self, changes: &[Change]) {
        for change in changes {
            let place = (change.storage.clone(), Key::of(&change.after));
            for uid in change.before.as_deref().into_iter().flat_map(owner_uids) {
                if let Some(places) = self.dependents.get_mut(&uid) {
                    places.remove(&place);
                    if places.is_empty() {
                        self.dependents.remove(&uid);
                    }
                }
            }
            let uid = text(&change.after["metadata"]["uid"]).to_owned();
            if change.deleted && self.dependents.contains_key(&uid) {
                self.absent.push_back(uid);
                self.absent.drain(..self.absent.len().saturating_sub(KNOWN_ABSENT));
            }
            if !change.deleted {
                for uid in owner_uids(&change.after) {
                    self.dependents.entry(uid).or_default().insert(place.clone());
                }
            }
        }
    }

    pub(super) fn of(&self, uid: &str) -> Vec<Place> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }
}

/// An object by its place.
pub(crate) type Place = (Storage, Key);

pub(crate) fn owner_uids(object: &Value) -> Vec<String> {
    owners(object)
        .iter()
        .map(|owner| text(&owner["uid"]).to_owned())
        .collect()
}

/// The most owners that are known to be gone; a real server's garbage collector remembers as many.
pub(crate) const KNOWN_ABSENT: usize = 500;

pub(crate) fn owners(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}
