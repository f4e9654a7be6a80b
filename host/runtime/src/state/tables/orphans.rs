//! Remembers which primaries have children that need a look though no change of the primary asks for one: children of a
//! primary that is gone and that no garbage collector takes away, children that somebody else has deleted, and children
//! of a primary whose deletion is to leave them (`--cascade=orphan`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use pilothouse_core::Key;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// The most deletions with `orphan` that are remembered after their primaries are gone.
const REMEMBERED: usize = 1000;

/// Evidence of how a primary went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// The host saw the primary alive, and then gone.
    Seen,
    /// The primary went while no host looked.
    Unseen,
}

/// Orphaned and lost children.
#[derive(Default)]
pub struct Orphans {
    /// Uids of primaries that are gone, or out of sight, and whose children are the host's to collect.
    uids: HashMap<PrimaryRef, BTreeMap<Arc<str>, Witness>>,
    /// Primaries that have lost a child, which somebody else has deleted or unbound: perhaps because the primary is gone, too.
    lost_child: HashSet<PrimaryRef>,
    /// Uids of primaries whose deletion leaves their children, and the same in the order in which they came.
    orphaned: HashSet<Arc<str>>,
    orphaned_in_order: VecDeque<Arc<str>>,
    /// Children that have lost their controller reference, by the uid of the controller.
    unbound: HashMap<(LaneId, Arc<str>), BTreeSet<Key>>,
    /// Children without a controller that a lane found when it opened.
    strays: HashMap<LaneId, BTreeSet<Key>>,
    /// Uids of primaries that were already being deleted when a lane opened.
    leaving_unseen: HashSet<(LaneId, Arc<str>)>,
    /// Uids of primaries that are being deleted, and of whose children one was seen to have its owner reference.
    not_orphaned: HashSet<(LaneId, Arc<str>)>,
}

impl Orphans {
    /// A primary of this name is gone that had children which the host has to collect.
    pub fn add(&mut self, owner: PrimaryRef, uid: Arc<str>, witness: Witness) {
        let known = self.uids.entry(owner).or_default();
        known.entry(uid).or_insert(witness);
    }

    /// The uids of the primaries of this name that are gone and have left children.
    pub fn of(&self, owner: &PrimaryRef) -> BTreeMap<Arc<str>, Witness> {
        self.uids.get(owner).cloned().unwrap_or_default()
    }

    /// The children of one of them are collected.
    pub fn collected(&mut self, owner: &PrimaryRef, uid: &str) {
        self.forget_unbound(owner.lane, uid);
        let of_lane = (owner.lane, uid.into());
        self.leaving_unseen.remove(&of_lane);
        self.not_orphaned.remove(&of_lane);
        if let Some(uids) = self.uids.get_mut(owner) {
            uids.remove(uid);
            if uids.is_empty() {
                self.uids.remove(owner);
            }
        }
    }

    /// A child of a primary was deleted or unbound, and not by us.
    pub fn lose_child(&mut self, owner: PrimaryRef) {
        self.lost_child.insert(owner);
    }

    /// Whether a primary has lost a child since this was asked last.
    pub fn take_lost_child(&mut self, owner: &PrimaryRef) -> bool {
        self.lost_child.remove(owner)
    }

    /// The deletion of a primary leaves its children.
    pub fn orphan(&mut self, uid: &Arc<str>) {
        if !self.orphaned.insert(uid.clone()) {
            return;
        }
        self.orphaned_in_order.push_back(uid.clone());
        if self.orphaned_in_order.len() > REMEMBERED
            && let Some(oldest) = self.orphaned_in_order.pop_front()
        {
            self.orphaned.remove(&oldest);
        }
    }

    /// Tells whether the deletion of a primary is known to leave its children.
    pub fn is_orphaned(&self, uid: &str) -> bool {
        self.orphaned.contains(uid)
    }

    /// A child has lost the reference to its controller.
    pub fn unbind(&mut self, lane: LaneId, uid: &Arc<str>, child: Key) {
        self.unbound.entry((lane, uid.clone())).or_default().insert(child);
    }

    /// The children that have lost the reference to this controller.
    pub fn unbound(&self, lane: LaneId, uid: &str) -> impl Iterator<Item = &Key> {
        self.unbound.get(&(lane, uid.into())).into_iter().flatten()
    }

    /// A controller lives, so what its children have lost means nothing for its deletion.
    pub fn forget_unbound(&mut self, lane: LaneId, uid: &str) {
        self.unbound.remove(&(lane, uid.into()));
    }

    /// A lane has found a child without a controller when it opened.
    pub fn stray(&mut self, lane: LaneId, child: Key) {
        self.strays.entry(lane).or_default().insert(child);
    }

    /// The children without a controller that a lane found when it opened.
    pub fn strays(&self, lane: LaneId) -> impl Iterator<Item = &Key> {
        self.strays.get(&lane).into_iter().flatten()
    }

    /// A lane has found a primary that was being deleted before it opened.
    pub fn leaves_unseen(&mut self, lane: LaneId, uid: &Arc<str>) {
        self.leaving_unseen.insert((lane, uid.clone()));
    }

    /// Evidence of how the deletion of a primary began.
    pub fn witness(&self, lane: LaneId, uid: &str) -> Witness {
        if self.leaving_unseen.contains(&(lane, uid.into())) {
            Witness::Unseen
        } else {
            Witness::Seen
        }
    }

    /// The deletion of a primary goes on with its children, as the server has said.
    pub fn exclude_orphaned(&mut self, lane: LaneId, uid: &str) {
        self.not_orphaned.insert((lane, uid.into()));
    }

    /// Tells whether the server has said that the deletion of a primary does not leave its children.
    pub fn is_known_not_orphaned(&self, lane: LaneId, uid: &str) -> bool {
        self.not_orphaned.contains(&(lane, uid.into()))
    }

    /// A primary is gone: a child of it that went need not be asked about.
    pub fn forget(&mut self, owner: &PrimaryRef) {
        self.lost_child.remove(owner);
    }

    /// A lane is gone.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.lost_child.retain(|primary_ref| primary_ref.lane != lane);
        self.unbound.retain(|(of_lane, _), _| *of_lane != lane);
        self.strays.remove(&lane);
        self.leaving_unseen.retain(|(of_lane, _)| *of_lane != lane);
        self.not_orphaned.retain(|(of_lane, _)| *of_lane != lane);
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
            orphans.add(owner.clone(), uid.into(), Witness::Seen);
        }
        orphans.collected(&owner, "1");
        assert_eq!(orphans.of(&owner), BTreeMap::from([("2".into(), Witness::Seen)]));
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

    #[test]
    fn the_latest_orphaning_deletions_are_remembered() {
        let mut orphans = Orphans::default();
        for uid in 0..=REMEMBERED {
            orphans.orphan(&uid.to_string().into());
            orphans.orphan(&uid.to_string().into());
        }
        assert!(!orphans.is_orphaned("0") && orphans.is_orphaned("1"));
        assert_eq!(orphans.orphaned.len(), REMEMBERED);
    }
}
