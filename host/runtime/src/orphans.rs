//! Owns which primaries have children that need a look though no change of the primary asks for one: children of a primary
//! that is gone and that no garbage collector takes away, and children that somebody else has deleted.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::primary::{LaneId, PrimaryRef};

/// Orphaned and lost children.
#[derive(Default)]
pub struct Orphans {
    /// Uids of primaries that are gone, or out of sight, and whose children are the host's to collect.
    uids: HashMap<PrimaryRef, BTreeSet<Arc<str>>>,
    /// Primaries that have lost a child, which somebody else has deleted: perhaps because the primary is gone, too.
    lost_child: HashSet<PrimaryRef>,
}

impl Orphans {
    /// A primary of this name is gone that had children which the host has to collect.
    pub fn add(&mut self, owner: PrimaryRef, uid: Arc<str>) {
        self.uids.entry(owner).or_default().insert(uid);
    }

    /// The uids of the primaries of this name that are gone and have left children.
    pub fn of(&self, owner: &PrimaryRef) -> BTreeSet<Arc<str>> {
        self.uids.get(owner).cloned().unwrap_or_default()
    }

    /// The children of one of them are collected.
    pub fn collected(&mut self, owner: &PrimaryRef, uid: &str) {
        if let Some(uids) = self.uids.get_mut(owner) {
            uids.remove(uid);
            if uids.is_empty() {
                self.uids.remove(owner);
            }
        }
    }

    /// A child of a primary was deleted, and not by us.
    pub fn lose_child(&mut self, owner: PrimaryRef) {
        self.lost_child.insert(owner);
    }

    /// Whether a primary has lost a child since this was asked last.
    pub fn take_lost_child(&mut self, owner: &PrimaryRef) -> bool {
        self.lost_child.remove(owner)
    }

    /// A primary is gone: a child of it that went need not be asked about.
    pub fn forget(&mut self, owner: &PrimaryRef) {
        self.lost_child.remove(owner);
    }

    /// A lane is gone.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.lost_child.retain(|primary_ref| primary_ref.lane != lane);
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Name;

    use super::*;

    #[test]
    fn a_name_can_have_orphans_of_several_primaries() {
        let owner = PrimaryRef::new(LaneId(0), Name::new(Some("a"), "x"));
        let mut orphans = Orphans::default();
        for uid in ["1", "2"] {
            orphans.add(owner.clone(), uid.into());
        }
        orphans.collected(&owner, "1");
        assert_eq!(orphans.of(&owner), BTreeSet::from(["2".into()]));
        orphans.collected(&owner, "2");
        assert!(orphans.of(&owner).is_empty() && orphans.uids.is_empty());
    }

    #[test]
    fn a_lost_child_is_told_once() {
        let owner = PrimaryRef::new(LaneId(0), Name::new(Some("a"), "x"));
        let mut orphans = Orphans::default();
        orphans.lose_child(owner.clone());
        assert!(orphans.take_lost_child(&owner));
        assert!(!orphans.take_lost_child(&owner));
    }
}
