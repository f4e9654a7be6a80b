//! Decides what a replica does to take part in dividing the work: [`Member::step`] returns one action at a time, from
//! what the replica has seen and the time. Whoever carries an action out records its outcome before the next step.
//!
//! A round is: read the plan; if it is another one, end the work that it gives to others, and adopt it; write the
//! replica's own Lease, with the version of the plan; list all Leases; hand over a shard that is to be another
//! replica's; take and renew the Leases of shards. Two replicas never work at one namespace, because
//!
//! - nobody takes over work that is new in a version before all living replicas work by it. If another replica has a
//!   later version meanwhile, it sees in turn that this one still works by the earlier one, and waits;
//! - a version has one plan, so a leader looks at all Leases before it writes one;
//! - a replica adopts a plan, and releases a Lease, when no write that passed by it can take effect any more;
//! - a Lease that is left to end may belong to the plan before, so all wait for it;
//! - each write passes the fence, which closes by itself when a Lease could not be renewed.
//!
//! `model` in the tests tries orders of events, with all of these guards and without each.

mod action;
mod adopt;
#[cfg(test)]
mod model;
mod take;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use self::action::{Action, KnownPlan, LeaseWrite, Passage, Progress, View};
use self::adopt::{Adopting, PlanChanges};
use super::lease::LeaseTimes;
use super::peers::{KEPT, Peers, ReplicaState, StoredLease, replica_lease, shard_lease};
use super::shards::{Divisions, HashRanges, ShardPlan};

/// Divisor of the wait while changes are expected.
pub const HURRY: u32 = 4;

/// A condition on which safety rests. Tests leave one out, and show that this breaks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Guard {
    /// All Leases are read before a plan is written.
    Looked,
    /// The version was announced before the plan and all Leases were read.
    Announced,
    /// All living replicas work by the same plan.
    Agreed,
    /// No Lease that belongs to another plan is left to end.
    NoneLeft,
    /// No write under the plan before can take effect.
    Settled,
    /// No write by a Lease that is released can take effect.
    Released,
}

/// A shard whose Lease this replica holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeldShard {
    /// The hashes of its namespaces.
    pub ranges: HashRanges,
    /// The time until which jobs may start.
    pub until: Duration,
    /// Set if no job of it is started any more; it is released when running jobs have ended.
    pub is_leaving: bool,
    /// Set if no write of it passes the fence any more; it is released when all earlier ones are settled.
    pub is_closed: bool,
}

/// The next part of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Phase {
    #[default]
    Look,
    ReadPlan,
    Prepare,
    CloseChanged,
    Adopt,
    Announce,
    List,
    Agree,
    HandOver,
    CloseLeaving,
    Release,
    Take,
    Write,
    Tidy,
    End,
    Leave,
    LeaveReplicas,
    LeaveShards,
    DeleteOwn,
}

/// The course of a round.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Round {
    phase: Phase,
    /// The version in this replica's Lease before the plan was read.
    announced: Option<u64>,
    read: Option<Arc<ShardPlan>>,
    changes: PlanChanges,
    /// Set if the last wait has ended in time.
    is_in_time: bool,
    /// Set if all replicas agree, so that work can be taken over.
    is_settled: bool,
    /// Shards that are to be this replica's.
    targets: BTreeSet<usize>,
    taken: BTreeSet<usize>,
    /// The number of Leases that were to be written and were not.
    unwritten: usize,
    /// Shards that are given up when the replica ends.
    given: Vec<usize>,
}

/// A replica that takes part in dividing the work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Member<L> {
    times: LeaseTimes,
    /// The number of shards that it was started with.
    shards: usize,
    /// The name of its own Lease, without the prefix.
    own_lease: String,
    peers: Peers<L>,
    /// Set if all Leases have been read once.
    has_looked: bool,
    /// The plan that it works by.
    plan: Option<Arc<ShardPlan>>,
    digest: Option<u64>,
    /// The plan that it waits to adopt, until work that the plan changes has ended.
    adopting: Option<Adopting>,
    /// Divisions of controllers on which all replicas agree.
    divisions: Arc<Divisions>,
    /// The divisions in the fence: jobs under divisions that are no longer agreed on may finish.
    fenced_divisions: Arc<Divisions>,
    /// The time since which the fence has them; none until it is known.
    fenced_since: Option<Duration>,
    /// The version in this replica's Lease.
    announced: Option<u64>,
    /// The time until which others wait for this replica.
    valid_until: Option<Duration>,
    held: BTreeMap<usize, HeldShard>,
    /// The shard last handed over, and when: the next one waits until it has been taken.
    handed_over: Option<(usize, Duration)>,
    round: Round,
    /// The guard that a test leaves out.
    without: Option<Guard>,
}

impl<L: StoredLease> Member<L> {
    /// A replica that has no work yet.
    pub fn new(identity: String, times: LeaseTimes, shards: usize) -> Self {
        Self {
            times,
            shards,
            own_lease: replica_lease(&identity),
            peers: Peers::new(identity, times),
            has_looked: false,
            plan: None,
            digest: None,
            adopting: None,
            divisions: Arc::default(),
            fenced_divisions: Arc::default(),
            fenced_since: Some(Duration::ZERO),
            announced: None,
            valid_until: None,
            held: BTreeMap::new(),
            handed_over: None,
            round: Round::default(),
            without: None,
        }
    }

    /// Begins a round, whatever has become of the one before.
    pub fn begin(&mut self) {
        self.round = Round::default();
    }

    /// Begins to end in order, instead of another round.
    pub fn leave(&mut self) {
        self.begin();
        self.round.phase = Phase::Leave;
    }

    /// The next action of the round.
    pub fn step(&mut self, view: &View<'_>, now: Duration) -> Action<L> {
        loop {
            let (next, action) = self.part(view, now);
            self.round.phase = next;
            if let Some(action) = action {
                return action;
            }
        }
    }

    fn part(&mut self, view: &View<'_>, now: Duration) -> (Phase, Option<Action<L>>) {
        match self.round.phase {
            Phase::Look => {
                let has_looked = self.holds(Guard::Looked, self.has_looked);
                (Phase::ReadPlan, (!has_looked).then_some(Action::List))
            }
            Phase::ReadPlan => {
                // Written in an earlier round, so before the plan is read now.
                self.round.announced = self.announced;
                (Phase::Prepare, Some(Action::ReadPlan))
            }
            Phase::Prepare => match self.prepare(view, now) {
                Some(patience) => (Phase::CloseChanged, Some(Action::Drain(patience))),
                None => (Phase::Announce, None),
            },
            Phase::CloseChanged => match self.close_changed(now) {
                Some(fence) => (Phase::Adopt, Some(fence)),
                None => (Phase::Announce, None),
            },
            Phase::Adopt => (Phase::Announce, self.adopt(view)),
            Phase::Announce => (Phase::List, Some(self.next_announcement(view, now))),
            Phase::List => (Phase::Agree, Some(Action::List)),
            Phase::Agree => {
                let next = if self.agree(view, now) {
                    Phase::HandOver
                } else {
                    Phase::Tidy
                };
                (next, Some(self.fence(Vec::new())))
            }
            Phase::HandOver => match self.hand_over(view, now) {
                true => (
                    Phase::CloseLeaving,
                    Some(Action::Drain(self.times.retry_period / HURRY)),
                ),
                false => (Phase::Take, None),
            },
            // Jobs that do not end soon are checked again in the next round: until then the shard is renewed.
            Phase::CloseLeaving if !self.round.is_in_time => (Phase::Take, None),
            Phase::CloseLeaving => {
                let closed = self.close_leaving();
                (Phase::Release, Some(self.fence(closed)))
            }
            Phase::Release => {
                let released = self.release(view);
                if let Some(Action::Release { ended, .. }) = &released
                    && let Some((shard, _)) = ended.last()
                {
                    self.handed_over = Some((*shard, now));
                }
                (Phase::Take, released)
            }
            Phase::Take => (Phase::Write, self.take(now).map(Action::Forget)),
            Phase::Write => (Phase::Tidy, self.write(view, now)),
            Phase::Tidy => {
                // Leases of shards that an earlier plan had in addition, too.
                let plan = self.plan.as_ref().filter(|_| self.round.is_settled);
                let shards = plan.map_or(usize::MAX, |plan| plan.shards.len());
                let abandoned = view.leads.then(|| self.peers.abandoned(shards, KEPT, now));
                let abandoned = abandoned.filter(|abandoned| !abandoned.is_empty());
                (Phase::End, abandoned.map(Action::Delete))
            }
            Phase::End => (Phase::End, Some(Action::End(self.progress(view)))),
            Phase::Leave => {
                self.divisions = Arc::default();
                self.valid_until = None;
                self.pass_divisions();
                self.round.given = std::mem::take(&mut self.held).into_keys().collect();
                (Phase::LeaveReplicas, Some(self.fence(self.round.given.clone())))
            }
            Phase::LeaveReplicas => {
                let is_settled = |shard: &usize| self.is_released(Passage::Shard(*shard), view);
                let (given, left) = self.round.given.iter().partition(|shard| is_settled(shard));
                self.round.given = given;
                self.round.unwritten = Vec::len(&left);
                // Others leave no shard to a replica that has released its own Lease, and do not wait for it to adopt
                // their plan.
                let leases = self.owned([self.own_lease.clone()]);
                let ended = Vec::new();
                (Phase::LeaveShards, Some(Action::Release { leases, ended, left }))
            }
            Phase::LeaveShards => {
                let leases = self.owned(self.round.given.iter().map(|shard| shard_lease(*shard)));
                let (ended, left) = (Vec::new(), Vec::new());
                (Phase::DeleteOwn, Some(Action::Release { leases, ended, left }))
            }
            Phase::DeleteOwn => {
                // If there are others, they have to see it, and the leader deletes it later.
                let is_last = self.peers.others(&self.own_lease, now).next().is_none();
                // As long as the leader's Lease names this replica, this Lease shows that it divided the work, and, as
                // long as that of a shard does, by which plan.
                let gives_all = self.round.unwritten == 0 && view.is_settled(Passage::Leader);
                let own = self.peers.live(&self.own_lease).filter(|_| is_last && gives_all);
                let own = own.map(|live| Action::Delete(vec![(self.own_lease.clone(), live.clone())]));
                (Phase::End, own)
            }
        }
    }

    /// Reports whether a condition holds, or is left out by a test.
    fn holds(&self, guard: Guard, holds: bool) -> bool {
        holds || self.without == Some(guard)
    }

    fn is_held_back(&self, view: &View<'_>) -> bool {
        self.plan.is_none() && view.is_held_back
    }

    fn progress(&self, view: &View<'_>) -> Progress {
        let Round {
            is_settled,
            targets,
            unwritten,
            ..
        } = &self.round;
        let takes_part = self.plan.is_some() && self.valid_until.is_some();
        let is_done = takes_part && *unwritten == 0 && self.held.keys().eq(targets);
        if self.is_held_back(view) || *is_settled && is_done {
            Progress::Settled
        } else {
            Progress::Moving
        }
    }

    /// Records all Leases.
    pub fn list(&mut self, listed: BTreeMap<String, L>, now: Duration) {
        self.peers.observe(listed, now);
        self.has_looked = true;
    }

    /// Records the plan; none if it could not be read, or does not exist.
    pub fn read(&mut self, plan: Option<Arc<ShardPlan>>) {
        self.round.read = plan;
    }

    /// Records whether a wait has ended in time.
    pub fn wait(&mut self, is_in_time: bool) {
        self.round.is_in_time = is_in_time;
    }

    /// Records that the fence is set as the last action said.
    pub fn fence_is_set(&mut self, now: Duration) {
        self.fenced_since.get_or_insert(now);
    }

    /// Records the replica's own Lease as it was written.
    pub fn announce(&mut self, sent: Duration, lease: L, now: Duration) {
        let name = self.own_lease.clone();
        self.peers.written(&name, lease, now);
        self.valid_until = Some(sent + self.times.renew_deadline);
        self.announced = self.version();
    }

    /// Records a Lease that was released.
    pub fn give(&mut self, name: &str, lease: L, now: Duration) {
        self.peers.written(name, lease, now);
    }

    /// Drops Leases that could not be renewed in time, and returns the shards that were lost. The fence has closed by
    /// itself, and is to be set again.
    pub fn expire(&mut self, now: Duration) -> Vec<usize> {
        if self.valid_until.is_some_and(|until| until <= now) {
            self.valid_until = None;
            self.announced = None;
            self.divisions = Arc::default();
            self.pass_divisions();
            for held in self.held.values_mut() {
                held.until = now;
            }
        }
        let lost = self.held.extract_if(.., |_, held| held.until <= now);
        lost.map(|(shard, _)| shard).collect()
    }

    /// The time at which the first of this replica's Leases expires.
    pub fn expiry(&self) -> Option<Duration> {
        let held = self.held.values().map(|held| held.until);
        held.chain(self.valid_until).min()
    }

    /// The plan that the leader starts from.
    pub fn known(&self, now: Duration) -> KnownPlan {
        let version = self.version().unwrap_or_default().max(self.peers.latest_plan(now));
        KnownPlan {
            works_by: self.plan.clone(),
            // A version with two plans counts as passed.
            version: version + u64::from(self.peers.is_disputed(&self.own_lease, now)),
        }
    }

    /// The version of the plan that this replica works by.
    pub fn version(&self) -> Option<u64> {
        self.plan.as_ref().map(|plan| plan.version)
    }

    /// The plan that this replica works by.
    pub fn plan(&self) -> Option<&Arc<ShardPlan>> {
        self.plan.as_ref()
    }

    /// The number of shards that this replica was started with.
    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The observed Leases.
    pub fn peers(&self) -> &Peers<L> {
        &self.peers
    }

    /// The name of this replica's own Lease, without the prefix.
    pub fn own_lease(&self) -> &str {
        &self.own_lease
    }

    /// The shards that it holds.
    pub fn held(&self) -> &BTreeMap<usize, HeldShard> {
        &self.held
    }

    /// The namespaces in which jobs may start.
    pub fn ranges(&self) -> HashRanges {
        let stays = self.held.values().filter(|held| !held.is_leaving);
        stays.flat_map(|held| held.ranges.iter()).collect()
    }

    /// The divisions on which all replicas agree.
    pub fn divisions(&self) -> &Arc<Divisions> {
        &self.divisions
    }

    /// The divisions that pass the fence, and the time until which they are known.
    pub fn fenced(&self) -> (&Arc<Divisions>, Option<Duration>) {
        (&self.fenced_divisions, self.valid_until)
    }

    /// Lets only agreed divisions pass the fence, once it is set.
    fn pass_divisions(&mut self) {
        if self.fenced_divisions != self.divisions {
            self.fenced_divisions = self.divisions.clone();
            // Known only when it is set: earlier writes have to be settled before another plan.
            self.fenced_since = None;
        }
    }

    fn fence(&self, closed: Vec<usize>) -> Action<L> {
        let overdue = None;
        Action::Fence { closed, overdue }
    }

    fn state(&self) -> ReplicaState {
        ReplicaState {
            plan: self.version().unwrap_or_default(),
            digest: self.digest,
            shards: self.shards,
            ..ReplicaState::default()
        }
    }

    fn next_announcement(&mut self, view: &View<'_>, now: Duration) -> Action<L> {
        let name = self.own_lease.clone();
        match self.next_write(name, view, now) {
            Some(write) => Action::Announce(write, self.state()),
            None => Action::KeptOut,
        }
    }

    fn next_write(&mut self, name: String, view: &View<'_>, now: Duration) -> Option<LeaseWrite<L>> {
        let (live, record) = self.peers.next(&name, now, view.time)?;
        Some(LeaseWrite {
            name,
            live,
            record,
            sent: now,
        })
    }
}
