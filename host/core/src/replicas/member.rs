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

#[cfg(test)]
mod model;
mod take;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::lease::{LeaseRecord, LeaseTimes};
use super::peers::{KEPT, Peers, ReplicaState, StoredLease, replica_lease, shard_lease};
use super::shards::{Division, Divisions, HashRanges, PlannedShard, ShardPlan, hash_of};

/// Divisor of the wait while changes are expected.
pub const HURRY: u32 = 4;

/// The Lease that lets a request pass the fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Passage {
    /// The leader's Lease.
    Leader,
    /// A shard's Lease.
    Shard(usize),
}

/// All that a step needs besides what is recorded in the [`Member`].
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
    /// List all Leases for [`Member::list`].
    List,
    /// Read the plan for [`Member::read`]. The leader keeps it up to date, from [`Member::known`].
    ReadPlan,
    /// Set the work of the queue, wait at most so long until no job runs that is no part of it, and say in
    /// [`Member::wait`] if so.
    Drain(Duration),
    /// Let only [`Member::fenced`] divisions pass the fence, and no write in these shards.
    Fence {
        /// The shards.
        closed: Vec<usize>,
        /// The version of the plan for which jobs that still run are not waited for any more, once.
        overdue: Option<u64>,
    },
    /// Write this replica's own Lease with a state, to which its work and its address are added, for
    /// [`Member::announce`].
    Announce(LeaseWrite<L>, ReplicaState),
    /// The Lease of this replica names another holder, so the round fails.
    KeptOut,
    /// Drop what is cached of these namespaces, and say in [`Member::wait`] if that was done in a short time.
    Forget(HashRanges),
    /// Write the Leases of shards, for [`Member::hold`], and close the fence for shards that others have taken.
    Write {
        /// The shards to take or to renew.
        writes: Vec<(usize, LeaseWrite<L>)>,
        /// The shards that others have taken.
        lost: Vec<(usize, HashRanges)>,
    },
    /// Release Leases, for [`Member::give`].
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

/// A plan that a replica waits to adopt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Adopting {
    version: u64,
    /// The time since which it waits, possibly for an earlier version.
    since: Duration,
    /// Set if it has said that it no longer waits for running jobs.
    is_said: bool,
}

/// Work that another plan gives to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct PlanChanges {
    /// Shards with other namespaces.
    shards: Vec<usize>,
    /// Set if the work of a controller is divided differently.
    divisions: bool,
}

impl PlanChanges {
    fn between(before: &ShardPlan, after: &ShardPlan) -> Self {
        let is_other = |(shard, planned): &(usize, &PlannedShard)| {
            let after = after.shards.get(*shard);
            after.is_none_or(|after| after.ranges != planned.ranges)
        };
        let shards = before.shards.iter().enumerate().filter(is_other);
        let mut controllers = before.controllers.iter();
        Self {
            shards: shards.map(|(shard, _)| shard).collect(),
            divisions: controllers.any(|(controller, division)| after.controllers.get(controller) != Some(division)),
        }
    }
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
}

impl<L: StoredLease> Member<L> {
    /// Another plan is to be adopted: gives up the work that it changes. While a job of that runs, the replica starts
    /// no more of it, keeps its Leases, and tries again in the next round; until it has adopted the plan, the others
    /// take over nothing new. Returns the time to wait for jobs; none if there is no other plan.
    ///
    /// That lasts no longer than if this replica had died: after the duration of a Lease, the fence closes for what
    /// still runs, and the replica adopts the plan as soon as all writes that have passed are settled. A namespace may
    /// then be in a shard that another replica takes at once, so leaving Leases to expire does not help here.
    fn prepare(&mut self, view: &View<'_>, now: Duration) -> Option<Duration> {
        let plan = self.round.read.as_ref()?;
        let is_known = self.version().is_some_and(|version| version >= plan.version);
        if is_known || self.is_held_back(view) {
            return None;
        }
        let before = self.plan.as_deref();
        let changes = before.map(|before| PlanChanges::between(before, plan));
        self.round.changes = changes.unwrap_or_default();
        for shard in &self.round.changes.shards {
            if let Some(held) = self.held.get_mut(shard) {
                held.is_leaving = true;
            }
        }
        let mut divisions = Divisions::clone(&self.divisions);
        divisions.retain(|controller, division| plan.controllers.get(controller) == Some(division));
        self.divisions = Arc::new(divisions);
        let adopting = self.adopting.get_or_insert(Adopting {
            version: 0,
            since: now,
            is_said: false,
        });
        // The Leases are renewed after this, so only the first attempt waits for long.
        let is_first_try = std::mem::replace(&mut adopting.version, plan.version) != plan.version;
        Some(if is_first_try {
            self.times.renew_deadline / 3
        } else {
            self.times.retry_period / HURRY
        })
    }

    /// Closes the fence for what another plan changes; none if jobs are still waited for.
    fn close_changed(&mut self, now: Duration) -> Option<Action<L>> {
        let adopting = self.adopting.as_mut()?;
        let mut overdue = None;
        if !self.round.is_in_time {
            if now.saturating_sub(adopting.since) < self.times.duration {
                return None;
            }
            overdue = (!std::mem::replace(&mut adopting.is_said, true)).then_some(adopting.version);
        }
        self.pass_divisions();
        let closed = self.close_leaving();
        Some(Action::Fence { closed, overdue })
    }

    /// Adopts the plan that was read, if no write of what it changes can take effect any more, and releases the Leases
    /// of shards that are left.
    fn adopt(&mut self, view: &View<'_>) -> Option<Action<L>> {
        let is_settled = self.is_settled(view);
        if !self.holds(Guard::Settled, is_settled) {
            return None;
        }
        self.adopting = None;
        let released = self.release(view);
        self.plan.clone_from(&self.round.read);
        self.digest = self.plan.as_ref().map(|plan| hash_of(&plan.print()));
        released
    }

    /// Reports whether no write that passed the fence before it closed for the changed work can still take effect.
    fn is_settled(&self, view: &View<'_>) -> bool {
        let PlanChanges { shards, divisions } = &self.round.changes;
        let since = self.fenced_since.unwrap_or(Duration::MAX);
        // Lost shards count, too: this replica may have written in them shortly before.
        let planned = 0..self.plan.as_ref().map_or(0, |plan| plan.shards.len());
        let all = || std::iter::once(Passage::Leader).chain(planned.map(Passage::Shard));
        let of_divisions = || all().all(|passage| view.is_settled_as_of(passage, since));
        let mut shards = shards.iter().map(|shard| Passage::Shard(*shard));
        shards.all(|passage| view.is_settled(passage)) && (!divisions || of_divisions())
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

    /// Decides whether all replicas agree on the plan, so that work can be taken over. Returns `false` if this replica
    /// takes no part yet.
    fn agree(&mut self, view: &View<'_>, now: Duration) -> bool {
        let own = self.state();
        // A replica without a plan has no work, and takes none before it has announced a plan.
        let mut others = self.peers.others(&self.own_lease, now).filter(|peer| peer.plan > 0);
        let agree = others.all(|peer| own.agrees_with(peer));
        let is_left = self.peers.has_left_work(self.announced, now);
        // Others do not know an unannounced version, and may still work by the previous plan.
        let is_announced = self.version() == self.announced;
        let is_current = self.round.read.is_some() && self.plan == self.round.read;
        let was_announced = self.round.announced.is_some() && self.round.announced == self.announced;
        self.round.is_settled = is_current
            && self.holds(Guard::Agreed, agree)
            && self.holds(Guard::NoneLeft, !is_left)
            && self.holds(Guard::Announced, is_announced && was_announced)
            && self.peers.leader_takes_part(now);
        let (Some(plan), Some(_)) = (&self.plan, self.valid_until) else {
            return false;
        };
        if self.round.is_settled {
            self.divisions = Arc::new(agreed(&plan.controllers, view.divisions));
            // All replicas agree on the plan. Controllers that only this one leaves out may pass until it adopts
            // another plan: that plan waits for writes that have passed until then.
            self.fenced_divisions = Arc::new(plan.controllers.clone());
        }
        true
    }
}

impl View<'_> {
    fn is_settled(&self, passage: Passage) -> bool {
        self.is_settled_as_of(passage, Duration::MAX)
    }

    fn is_settled_as_of(&self, passage: Passage, begun_by: Duration) -> bool {
        let mut unsettled = self.unsettled.iter();
        !unsettled.any(|(by, begun)| *by == passage && *begun <= begun_by)
    }
}

/// The division of controllers' work that a replica applies. Its plugins may be of another version than the leader's:
/// it leaves out controllers that the plan divides and its own versions do not, because they would contribute for a
/// part of the primaries.
fn agreed(planned: &Divisions, own: &Divisions) -> Divisions {
    let mut agreed = planned.clone();
    agreed.retain(|controller, planned| *planned == Division::Leader || own.get(controller) != Some(&Division::Leader));
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_as_a_whole_is_not_done_in_parts() {
        use Division::{Leader, Namespaces};

        let of = |divisions: &[(&str, Division)]| -> Divisions {
            let divisions = divisions.iter().map(|(name, division)| ((*name).to_owned(), *division));
            divisions.collect()
        };
        let planned = of(&[
            ("a", Leader),
            ("b", Leader),
            ("c", Namespaces),
            ("d", Namespaces),
            ("e", Namespaces),
        ]);
        let own = of(&[
            ("a", Leader),
            ("b", Namespaces),
            ("c", Leader),
            ("d", Namespaces),
            ("f", Namespaces),
        ]);
        let expected = of(&[("a", Leader), ("b", Leader), ("d", Namespaces), ("e", Namespaces)]);
        assert_eq!(agreed(&planned, &own), expected);
    }
}
