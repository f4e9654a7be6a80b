//! What a step is decided from, and what it asks for.

use std::sync::Arc;
use std::time::Duration;

use crate::replicas::lease::LeaseRecord;
use crate::replicas::peers::ReplicaState;
use crate::replicas::shards::{Divisions, HashRanges, ShardPlan};

/// The Lease that lets a request pass the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passage {
    /// The leader's Lease.
    Leader,
    /// A shard's Lease.
    Shard(usize),
}

/// All that a step needs besides what is recorded in the [`super::Member`].
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// Set if this replica leads.
    pub leads: bool,
    /// Set if this replica is not to work by a first plan yet.
    pub is_held_back: bool,
    /// The divisions of the controllers that this replica runs.
    pub divisions: &'a Divisions,
    /// Requests that have passed the fence and may still take effect, each with the time at which it was begun.
    pub unsettled: &'a [(Passage, Duration)],
    /// The wall-clock time to write into Leases.
    pub time: &'a str,
}

/// A Lease to be written if it is unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseWrite<L> {
    /// Its name after the common prefix.
    pub name: String,
    /// The Lease that it replaces; none if it is to be created.
    pub live: Option<L>,
    /// Its new content.
    pub record: LeaseRecord,
    /// The time from which its holder counts.
    pub sent: Duration,
}

/// The next thing to do.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Action<L> {
    /// List all Leases for [`super::Member::list`].
    List,
    /// Read the plan for [`super::Member::read`]. The leader keeps it up to date, from [`super::Member::known`].
    ReadPlan,
    /// Set the work of the queue, wait at most so long until no job runs that is no part of it, and say in
    /// [`super::Member::wait`] if so.
    Drain(Duration),
    /// Let only [`super::Member::fenced`] divisions pass the fence, and no write in these shards.
    Fence {
        /// The shards.
        closed: Vec<usize>,
        /// The version of the plan for which jobs that still run are not waited for any more, once.
        overdue: Option<u64>,
    },
    /// Write this replica's own Lease with a state, to which its work and its address are added, for
    /// [`super::Member::announce`].
    Announce(LeaseWrite<L>, ReplicaState),
    /// The Lease of this replica names another holder, so the round fails.
    KeptOut,
    /// Drop what is cached of these namespaces, and say in [`super::Member::wait`] if that was done in a short time.
    Forget(HashRanges),
    /// Write the Leases of shards, for [`super::Member::hold`], and close the fence for shards that others have taken.
    Write {
        /// The shards to take or to renew.
        writes: Vec<(usize, LeaseWrite<L>)>,
        /// The shards that others have taken.
        lost: Vec<(usize, HashRanges)>,
    },
    /// Release Leases, for [`super::Member::give`].
    Release {
        /// The Leases.
        leases: Vec<(String, L)>,
        /// The shards that this replica works no longer at.
        ended: Vec<(usize, HashRanges)>,
        /// The shards whose Leases are left to end, because a write may still take effect.
        left: Vec<usize>,
    },
    /// Delete Leases that are unchanged.
    Delete(Vec<(String, L)>),
    /// Nothing more in this round.
    End(Progress),
}

/// The result of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Progress {
    /// Every replica has its assigned shards.
    Settled,
    /// Changes are expected soon.
    Moving,
}

/// The plan that the leader starts from.
#[derive(Clone, Debug, Default)]
pub struct KnownPlan {
    /// The plan by which this replica works.
    pub works_by: Option<Arc<ShardPlan>>,
    /// The latest version by which any replica works.
    pub version: u64,
}

impl KnownPlan {
    /// Reports whether a stored plan is kept: a version has one plan, the one by which replicas work.
    pub fn keeps(&self, read: &ShardPlan) -> bool {
        let works_by = self.works_by.as_deref();
        let is_edited = works_by.is_some_and(|own| own.version == read.version && own != read);
        read.version >= self.version && !is_edited
    }
}

impl View<'_> {
    pub(super) fn is_settled(&self, passage: Passage) -> bool {
        self.is_settled_as_of(passage, Duration::MAX)
    }

    pub(super) fn is_settled_as_of(&self, passage: Passage, begun_by: Duration) -> bool {
        let mut unsettled = self.unsettled.iter();
        !unsettled.any(|(by, begun)| *by == passage && *begun <= begun_by)
    }
}
