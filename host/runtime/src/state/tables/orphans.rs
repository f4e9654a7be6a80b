//! Remembers primaries with children that need attention though no change of the primary queues it: children of a
//! deleted primary that the garbage collector does not delete, children deleted by others, and children of a primary
//! that is deleted with orphan propagation (`--cascade=orphan`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use pilothouse_core::Key;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// The most deletions with orphan propagation that are remembered after their primaries are gone.
const REMEMBERED: usize = 1000;

/// Evidence of how a primary was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Witness {
    /// The host saw the primary alive, and then deleted.
    Seen,
    /// The primary was deleted while no host watched.
    Unseen,
}

/// Orphaned and lost children.
#[derive(Default)]
pub struct Orphans {
    /// UIDs of primaries that are deleted, or not visible, and whose children the host has to collect.
    uids: HashMap<PrimaryRef, BTreeMap<Arc<str>, Witness>>,
    /// Primaries that have lost a child, which another writer has deleted or unbound: perhaps because the primary is
    /// gone, too.
    lost_child: HashSet<PrimaryRef>,
    /// UIDs of primaries that are deleted with orphan propagation; below, the same in order of arrival.
    orphaned: HashSet<Arc<str>>,
    orphaned_in_order: VecDeque<Arc<str>>,
    /// Children that have lost their controller reference, by the UID of the controller.
    unbound: HashMap<(LaneId, Arc<str>), BTreeSet<Key>>,
    /// Children without a controller that a lane found when it opened.
    strays: HashMap<LaneId, BTreeSet<Key>>,
    /// UIDs of primaries that were already being deleted when a lane opened.
    leaving_unseen: HashSet<(LaneId, Arc<str>)>,
    /// UIDs of primaries being deleted of which a child was seen with its owner reference.
    not_orphaned: HashSet<(LaneId, Arc<str>)>,
}

impl Orphans {
    /// Adds a deleted primary with children that the host has to collect.
    pub fn add(&mut self, owner: PrimaryRef, uid: Arc<str>, witness: Witness) {
        let known = self.uids.entry(owner).or_default();
        known.entry(uid).or_insert(witness);
    }

    /// UIDs of the deleted primaries of this name that have left children.
    pub fn of(&self, owner: &PrimaryRef) -> BTreeMap<Arc<str>, Witness> {
        self.uids.get(owner).cloned().unwrap_or_default()
    }

    /// Forgets a deleted primary whose children are collected.
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

    /// Records that another writer deleted or unbound a child of a primary.
    pub fn lose_child(&mut self, owner: PrimaryRef) {
        self.lost_child.insert(owner);
    }

    /// Returns `true` once after a primary has lost a child.
    pub fn take_lost_child(&mut self, owner: &PrimaryRef) -> bool {
        self.lost_child.remove(owner)
    }

    /// Records that a primary is deleted with orphan propagation.
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

    /// Returns `true` if a primary is known to be deleted with orphan propagation.
    pub fn is_orphaned(&self, uid: &str) -> bool {
        self.orphaned.contains(uid)
    }

    /// Records that a child has lost its controller reference.
    pub fn unbind(&mut self, lane: LaneId, uid: &Arc<str>, child: Key) {
        self.unbound.entry((lane, uid.clone())).or_default().insert(child);
    }

    /// Children that have lost the reference to this controller.
    pub fn unbound(&self, lane: LaneId, uid: &str) -> impl Iterator<Item = &Key> {
        self.unbound.get(&(lane, uid.into())).into_iter().flatten()
    }

    /// Forgets unbound children of a living controller: their lost reference has nothing to do with its deletion.
    pub fn forget_unbound(&mut self, lane: LaneId, uid: &str) {
        self.unbound.remove(&(lane, uid.into()));
    }

    /// Records a child without a controller that a lane found when it opened.
    pub fn stray(&mut self, lane: LaneId, child: Key) {
        self.strays.entry(lane).or_default().insert(child);
    }

    /// Children without a controller that a lane found when it opened.
    pub fn strays(&self, lane: LaneId) -> impl Iterator<Item = &Key> {
        self.strays.get(&lane).into_iter().flatten()
    }

    /// Records a primary that was already being deleted when a lane opened.
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

    /// Records the server's confirmation that a primary is not deleted with orphan propagation.
    pub fn exclude_orphaned(&mut self, lane: LaneId, uid: &str) {
        self.not_orphaned.insert((lane, uid.into()));
    }

    /// Returns `true` if the server has confirmed that a primary is not deleted with orphan propagation.
    pub fn is_known_not_orphaned(&self, lane: LaneId, uid: &str) -> bool {
        self.not_orphaned.contains(&(lane, uid.into()))
    }

    /// Forgets the lost child of a primary that is gone.
    pub fn forget(&mut self, owner: &PrimaryRef) {
        self.lost_child.remove(owner);
    }

    /// Forgets a removed lane.
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
