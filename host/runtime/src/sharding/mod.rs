//! Owns this replica's part in dividing the work among active replicas: it announces itself, takes and gives back shards, and
//! tells the queue and the fence what is its own. How namespaces are divided into shards, and shards among replicas, is
//! decided in [`pilothouse_core::shards`].
//!
//! Each shard has a Lease, and so has each replica. A replica's Lease says which version of the plan the replica works by.
//! Nobody takes up anything that is new in a version before all replicas that live work by it: a replica writes its Lease
//! with the version, then reads the plan again, then all Leases, and only then takes up work. If another replica has a
//! later version meanwhile, it sees in turn that this one still works by the earlier one, and waits.

pub mod peers;
mod plan_keeper;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::fence::WriteFence;
use pilothouse_cluster::lease::{GroupWrite, LeaseGroup, LiveLease};
use pilothouse_core::lease::LeaseTimes;
use pilothouse_core::shards::{
    Divisions, HashRanges, HoldingReplica, LiveShard, OwnedWork, ShardHolder, ShardHolders, ShardPlan, assign,
};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::peers::{Peers, ReplicaState, replica_lease, shard_lease};
use self::plan_keeper::PlanKeeper;
use crate::cached_namespaces::CachedPart;
use crate::clock::sleep_until;
use crate::context::{HostContext, ReplicaShare};
use crate::leadership::ElectionOptions;
use crate::lease_task::{InFlight, LeaseTask, LoggedProblem};
use crate::state::WorkCount;

/// How much shorter the wait is while something is to come.
const HURRY: u32 = 4;

/// How long nothing has to move before what this replica does not work at any more is dropped from the cache.
const NARROW_AFTER: Duration = Duration::from_secs(30);

/// How often a replica counts what it works at.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// Begins to take part, in so many shards. Other replicas reach the webhook server of this one at `address`.
pub fn start(
    client: &Client,
    options: &ElectionOptions,
    shards: usize,
    address: Option<SocketAddr>,
    host: Arc<HostContext>,
) -> LeaseTask {
    let ElectionOptions {
        namespace,
        name,
        identity,
        times,
        fence,
        shards: _,
    } = options.clone();
    let timeout = times.renew_deadline / 2;
    let replica = Replica {
        leases: LeaseGroup::new(client.clone(), namespace.clone(), name.clone(), timeout),
        plans: PlanKeeper::new(client.clone(), namespace, format!("{name}-shards"), timeout, shards),
        own_lease: replica_lease(&identity),
        peers: Peers::new(identity, times),
        address,
        times,
        fence,
        host,
        begun: Instant::now(),
        plan: None,
        divisions: Arc::default(),
        fenced_divisions: Arc::default(),
        adopting: None,
        announced: None,
        valid_until: None,
        held: BTreeMap::new(),
        cached: HashRanges::default(),
        settled_since: None,
        work: (WorkCount::default(), None),
        handed_over: None,
        logged: LoggedProblem::default(),
    };
    replica.host.state.own(&OwnedWork::none());
    replica.hold_in_cache();
    LeaseTask::spawn(timeout * 2, |stopped| replica.run(stopped))
}

struct Replica {
    leases: LeaseGroup,
    plans: PlanKeeper,
    /// The name of this replica's own Lease, without the prefix.
    own_lease: String,
    peers: Peers,
    /// Where other replicas reach the webhook server of this one.
    address: Option<SocketAddr>,
    times: LeaseTimes,
    fence: WriteFence,
    host: Arc<HostContext>,
    /// Where the clock of the candidates begins.
    begun: Instant,
    /// What this replica works by.
    plan: Option<Arc<ShardPlan>>,
    /// The version of the plan that it waits to work by, until what the plan changes has ended.
    adopting: Option<u64>,
    /// How the work of controllers is divided, as far as all replicas agree.
    divisions: Arc<Divisions>,
    /// The same as the fence has it: what runs by what is no more agreed on comes to its end.
    fenced_divisions: Arc<Divisions>,
    /// The version in this replica's Lease.
    announced: Option<u64>,
    /// Until when others wait for this replica.
    valid_until: Option<Instant>,
    held: BTreeMap<usize, HeldShard>,
    /// The hashes of the namespaces that the cache is to hold: what is held, and what was held lately.
    cached: HashRanges,
    /// Since when nothing is to be taken or given.
    settled_since: Option<Instant>,
    /// What this replica works at, and when that was counted.
    work: (WorkCount, Option<Instant>),
    /// The shard that was given to another replica last, and when: the next is given when it has been taken.
    handed_over: Option<(usize, Instant)>,
    logged: LoggedProblem,
}

/// A shard that this replica has a Lease on.
struct HeldShard {
    ranges: HashRanges,
    /// Until when something may be begun.
    until: Instant,
    /// Nothing of it is begun any more; it is given back when what runs has ended.
    is_leaving: bool,
}

/// What came of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Everybody has what is to be theirs.
    Settled,
    /// Something is to come soon.
    Moving,
}

/// Why a round failed.
#[derive(Debug, thiserror::Error)]
enum ShardingError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("{0}")]
    Plan(String),
    #[error(
        "the plan {plan} has {planned} shards, and this replica was started with --shards {own}; start all replicas with the \
         same number. Until then this one takes no shards and does not lead"
    )]
    OtherNumber { plan: String, planned: usize, own: usize },
    #[error(
        "the Lease {lease} has no label app.kubernetes.io/managed-by=pilothouse{}; if this host made it, label it, or delete it; \
         if other software did, give another name with --lease", held_by(.holder)
    )]
    Unlabelled { lease: String, holder: String },
}

fn held_by(holder: &str) -> String {
    match holder {
        "" => ", and nobody holds it".to_owned(),
        holder => format!(", and {holder:?} holds it"),
    }
}

impl Replica {
    async fn run(mut self, mut stopped: oneshot::Receiver<InFlight>) {
        let mut leadership = self.host.leadership.follow();
        let mut pauses = 0_u64;
        let in_flight = loop {
            let expiry = self.expiry();
            let patience = self.times.renew_deadline / 2;
            let progress = {
                let mut round = pin!(self.round());
                tokio::select! {
                    progress = &mut round => Some(progress),
                    () = sleep_until(expiry) => None,
                    // What is on its way may take effect, and then has to be given back.
                    in_flight = &mut stopped => {
                        let _ = tokio::time::timeout(patience, round).await;
                        break in_flight;
                    }
                }
            };
            let Some(progress) = progress else {
                self.expire();
                continue;
            };
            self.own();
            pauses += 1;
            let pause = self.peers.pause(pauses);
            let wait = match progress {
                Ok(Progress::Settled) => {
                    self.logged.clear();
                    self.settled_since.get_or_insert_with(Instant::now);
                    self.times.retry_period
                }
                Ok(Progress::Moving) => {
                    self.settled_since = None;
                    pause / HURRY
                }
                Err(error) => {
                    self.say_problem(&error);
                    pause
                }
            };
            let again = Instant::now() + wait;
            while Instant::now() < again {
                let expiry = self.expiry();
                tokio::select! {
                    () = tokio::time::sleep_until(again) => {}
                    () = sleep_until(expiry) => self.expire(),
                    _ = leadership.changed() => self.own(),
                    in_flight = &mut stopped => return self.leave(in_flight.unwrap_or_default()).await,
                }
            }
        };
        self.leave(in_flight.unwrap_or_default()).await;
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// When the first of what this replica holds ends.
    fn expiry(&self) -> Option<Instant> {
        let held = self.held.values().map(|held| held.until);
        held.chain(self.valid_until).min()
    }

    /// Drops what could not be renewed in time. The fence has closed by itself.
    fn expire(&mut self) {
        let now = Instant::now();
        if self.valid_until.is_some_and(|until| until <= now) {
            self.valid_until = None;
            self.announced = None;
            self.divisions = Arc::default();
            self.pass_divisions();
            for held in self.held.values_mut() {
                held.until = now;
            }
        }
        let lost: Vec<usize> = self
            .held
            .extract_if(.., |_, held| held.until <= now)
            .map(|(shard, _)| shard)
            .collect();
        for shard in &lost {
            self.fence.close_shard(*shard);
        }
        if !lost.is_empty() {
            self.settled_since = None;
            let title = |shard: &usize| self.leases.lease(&shard_lease(*shard)).title();
            let leases: Vec<String> = lost.iter().map(title).collect();
            tracing::warn!(?leases, "lost shards: their Leases could not be renewed in time");
        }
        self.own();
    }

    /// Tells the queue what is this replica's work.
    fn own(&mut self) {
        let stays = self.held.values().filter(|held| !held.is_leaving);
        let ranges: HashRanges = stays.flat_map(|held| held.ranges.iter()).collect();
        self.cached = self.cached.union(&ranges);
        // What moves away may come back soon, and costs a list again.
        if self.settled_since.is_some_and(|since| since.elapsed() >= NARROW_AFTER) {
            self.cached.clone_from(&ranges);
        }
        self.hold_in_cache();
        self.host.state.own(&OwnedWork::Part {
            ranges,
            leads: self.host.leadership.leads(),
            divisions: self.divisions.clone(),
        });
        let identity = self.peers.identity().to_owned();
        let mut replicas = self.peers.living(self.now());
        replicas.insert(identity.clone());
        *self.host.shards.lock() = Some(ReplicaShare {
            held: self.held.len(),
            of: self.plans.shards(),
            identity,
            replicas: replicas.into_iter().collect(),
        });
        *self.host.holders.lock() = Arc::new(self.holders());
    }

    /// Which replica holds which shard, as far as this one knows.
    fn holders(&self) -> ShardHolders {
        let (now, own) = (self.now(), self.peers.identity());
        let shards = self.plan.iter().flat_map(|plan| plan.shards.iter().enumerate());
        let holders = shards.map(|(shard, planned)| {
            let holder = self.peers.holder(&shard_lease(shard), now);
            ShardHolder {
                ranges: planned.ranges.clone(),
                replica: holder.map(|holder| HoldingReplica {
                    identity: holder.to_owned(),
                    is_own: holder == own,
                    address: self.peers.address_of(holder, now),
                }),
            }
        });
        ShardHolders(holders.collect())
    }

    /// Tells the informers which namespaces are to be cached.
    fn hold_in_cache(&self) {
        let divisions = self
            .plan
            .as_ref()
            .map(|plan| plan.controllers.clone())
            .unwrap_or_default();
        let part = CachedPart::Namespaces(self.cached.clone(), Arc::new(divisions));
        if self.host.cached.set(part) {
            self.host.state.cached_namespaces_change();
            self.host.cached.tell();
        }
    }

    /// Counts what this replica works at, from time to time.
    fn count(&mut self) {
        if self.work.1.is_none_or(|counted| counted.elapsed() >= COUNT_INTERVAL) {
            let held = self
                .held
                .iter()
                .map(|(shard, held)| (*shard, held.ranges.clone()))
                .collect();
            self.work = (self.host.state.count_work(&held), Some(Instant::now()));
        }
        let mut objects = self.work.0.by_controller.clone();
        for other in self.peers.others(&self.own_lease, self.now()) {
            for (controller, count) in &other.work.by_controller {
                let objects = objects.entry(controller.clone()).or_default();
                *objects = objects.saturating_add(*count);
            }
        }
        *self.host.divided_objects.lock() = objects;
    }

    async fn round(&mut self) -> Result<Progress, ShardingError> {
        // Written in an earlier round, so before the plan is read now.
        let announced = self.announced;
        let known = self
            .plan
            .as_ref()
            .map_or(0, |plan| plan.version)
            .max(self.peers.latest_plan(self.now()));
        let (counts, loads) = (
            self.peers.counts(self.now()),
            self.peers.loads(
                self.plans.shards(),
                self.plan.as_ref().map_or(0, |plan| plan.version),
                self.now(),
            ),
        );
        let shares = self.peers.shares(self.plans.shards(), self.now());
        let read = if self.host.leadership.leads() {
            self.plans
                .read_and_keep(
                    &self.host,
                    self.plan.as_deref(),
                    known,
                    &counts,
                    loads.as_deref(),
                    &shares,
                )
                .await
        } else {
            self.plans.read().await
        };
        // A leader with another number would leave undone what is not divided.
        let is_other = |problem: &ShardingError| match problem {
            ShardingError::OtherNumber { planned, .. } => self.peers.counts(self.now()).contains(planned),
            _ => false,
        };
        self.host.leadership.set_eligible(!read.as_ref().is_err_and(is_other));
        // Without the plan nothing new is taken up; what is held is renewed.
        let (read, problem) = match read {
            Ok(read) => (read, None),
            Err(error) => (None, Some(error)),
        };
        if let Some(read) = &read
            && self.plan.as_ref().is_none_or(|plan| plan.version < read.version)
        {
            self.adopt(read.clone()).await;
        }
        self.count();
        self.announce().await?;
        let listed = self.leases.list().await?;
        self.host.contact.heard();
        let now = self.now();
        self.peers.observe(listed, now);
        let agrees = {
            // Who works by no plan yet has nothing, and takes up nothing before it has announced one.
            let mut others = self.peers.others(&self.own_lease, now).filter(|peer| peer.plan > 0);
            others.all(|peer| Some(peer.plan) == self.announced)
        };
        let is_current = read.is_some_and(|read| self.plan.as_ref().is_some_and(|plan| plan.version == read.version));
        let has_leader = self.peers.leader_takes_part(now);
        if !has_leader {
            let problem = "a replica that was started without --shards leads; start all replicas with the same options. Until \
                           then this one takes up nothing";
            self.say_problem(&ShardingError::Plan(problem.to_owned()));
        }
        let is_settled = is_current && agrees && has_leader && announced.is_some() && announced == self.announced;
        if is_settled && let Some(plan) = self.plan.clone() {
            self.divisions = Arc::new(plan.controllers.clone());
            self.fenced_divisions = self.divisions.clone();
        }
        self.fence
            .set_divisions(self.fenced_divisions.clone(), self.valid_until);
        let taken = self.take_and_renew(is_settled).await;
        if self.host.leadership.leads() {
            for (name, lease) in self.peers.abandoned(now) {
                self.leases.lease(&name).delete(&lease).await?;
            }
        }
        let is_done = taken?;
        match problem {
            Some(problem) => Err(problem),
            None if is_settled && is_done => Ok(Progress::Settled),
            None => Ok(Progress::Moving),
        }
    }

    /// From here on nothing passes the fence that is not agreed on.
    fn pass_divisions(&mut self) {
        self.fenced_divisions = self.divisions.clone();
        self.fence
            .set_divisions(self.fenced_divisions.clone(), self.valid_until);
    }

    /// Begins to work by another plan: what it changes is given up first. While something of that runs, the replica begins
    /// nothing more of it, holds its Leases, and tries again in the next round; until it works by the plan, the others take up
    /// nothing new.
    async fn adopt(&mut self, plan: Arc<ShardPlan>) {
        if let Some(before) = &self.plan {
            let ranges = |plan: &ShardPlan, shard: usize| plan.shards.get(shard).map(|shard| shard.ranges.clone());
            for (shard, held) in &mut self.held {
                held.is_leaving |= ranges(before, *shard) != ranges(&plan, *shard);
            }
        }
        let mut divisions = Divisions::clone(&self.divisions);
        divisions.retain(|controller, division| plan.controllers.get(controller) == Some(division));
        self.divisions = Arc::new(divisions);
        self.own();
        let drained = self.host.state.nothing_runs_that_is_not_owned();
        // The Leases are renewed after this, so only the first try waits for long.
        let is_first_try = self.adopting.replace(plan.version) != Some(plan.version);
        let patience = if is_first_try {
            self.times.renew_deadline / 3
        } else {
            self.times.retry_period / HURRY
        };
        if tokio::time::timeout(patience, drained).await.is_err() {
            return;
        }
        self.adopting = None;
        self.work.1 = None;
        self.pass_divisions();
        for shard in self.leaving() {
            self.give_back(shard).await;
        }
        tracing::info!(
            leases = self.leases.title(),
            version = plan.version,
            shards = plan.shards.len(),
            "works by a plan of shards"
        );
        self.plan = Some(plan);
    }

    /// Says in this replica's Lease that it lives, and which plan it works by.
    async fn announce(&mut self) -> Result<(), ShardingError> {
        let version = self.plan.as_ref().map(|plan| plan.version);
        let state = ReplicaState {
            plan: version.unwrap_or_default(),
            shards: self.plans.shards(),
            work: self.work.0.clone(),
            address: self.address,
        };
        let sent = Instant::now();
        let time = self.host.clock.microseconds();
        let Some((live, record)) = self.peers.next(&self.own_lease, sent - self.begun, &time) else {
            return Err(ShardingError::Plan(
                "somebody else has written into the Lease of this replica".to_owned(),
            ));
        };
        let lease = self.leases.lease(&self.own_lease);
        match lease
            .write_in_group(live.as_ref(), &record, &state.annotations())
            .await?
        {
            GroupWrite::Written(written) => {
                self.peers.written(&self.own_lease, written, self.now());
                self.valid_until = Some(sent + self.times.renew_deadline);
                self.announced = version;
            }
            GroupWrite::Changed => {}
            GroupWrite::Unlabelled(holder) => {
                let lease = lease.title();
                return Err(ShardingError::Unlabelled { lease, holder });
            }
        }
        Ok(())
    }

    /// Renews what is held, takes what is free and to be this replica's, and gives one shard away that is to be another's.
    /// Says whether everything is as it is to be.
    async fn take_and_renew(&mut self, is_settled: bool) -> Result<bool, ShardingError> {
        let (Some(plan), Some(valid_until)) = (self.plan.clone(), self.valid_until) else {
            return Ok(false);
        };
        let now = self.now();
        let takes_part = plan.shards.len() == self.plans.shards();
        let targets: Vec<bool> = {
            let replicas = self.peers.taking_part(plan.shards.len(), now);
            let shards: Vec<LiveShard<'_>> = (0..plan.shards.len())
                .map(|shard| LiveShard {
                    load: plan.shards[shard].load,
                    holder: self.peers.holder(&shard_lease(shard), now),
                })
                .collect();
            let own = self.peers.identity();
            assign(&replicas, &shards)
                .into_iter()
                .map(|holder| holder == Some(own))
                .collect()
        };
        let is_target = |shard: usize| takes_part && targets.get(shard).copied().unwrap_or(false);
        self.hand_over(is_settled, &is_target).await;
        let is_free = |shard: usize| {
            let holder = self.peers.holder(&shard_lease(shard), now);
            holder.is_none_or(|holder| holder == self.peers.identity())
        };
        let all = 0..plan.shards.len();
        let mut taken: BTreeSet<usize> = all
            .filter(|shard| !self.held.contains_key(shard) && is_settled && is_free(*shard) && is_target(*shard))
            .collect();
        if !self.forget(&taken, &plan).await {
            taken.clear();
        }
        let mut requests = JoinSet::new();
        let time = self.host.clock.microseconds();
        for shard in 0..plan.shards.len() {
            if !(self.held.contains_key(&shard) || taken.contains(&shard)) {
                continue;
            }
            let name = shard_lease(shard);
            let sent = Instant::now();
            let Some((live, record)) = self.peers.next(&name, sent - self.begun, &time) else {
                // Somebody else has taken it.
                if let Some(held) = self.held.remove(&shard) {
                    self.fence.close_shard(shard);
                    tracing::warn!(
                        lease = self.leases.lease(&name).title(),
                        hashes = %held.ranges,
                        holder = self.peers.holder(&name, now).unwrap_or_default(),
                        "lost a shard: its Lease names another holder"
                    );
                }
                continue;
            };
            let lease = self.leases.lease(&name);
            requests.spawn(async move { (shard, sent, lease.write_in_group(live.as_ref(), &record, &[]).await) });
        }
        let (mut is_done, mut failed) = (true, None);
        while let Some(ended) = requests.join_next().await {
            let Ok((shard, sent, written)) = ended else { continue };
            match written {
                Ok(GroupWrite::Written(lease)) => self.hold(shard, &plan, sent, valid_until, lease),
                Ok(GroupWrite::Changed) => is_done = false,
                Ok(GroupWrite::Unlabelled(holder)) => {
                    let lease = self.leases.lease(&shard_lease(shard)).title();
                    failed = Some(ShardingError::Unlabelled { lease, holder });
                }
                Err(error) => failed = Some(error.into()),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        let has_all = (0..plan.shards.len()).all(|shard| is_target(shard) == self.held.contains_key(&shard));
        Ok(is_done && has_all)
    }

    /// Before shards are taken that another replica may have had, the cache forgets what it has of them: their watches may
    /// have been interrupted, and come back one after another, so that a primary may be known, and not what the other replica
    /// has made for it. What is listed after a shard was taken shows all of that. Says whether the cache has done so.
    async fn forget(&mut self, taken: &BTreeSet<usize>, plan: &ShardPlan) -> bool {
        let foreign = taken
            .iter()
            .filter(|shard| self.peers.own(&shard_lease(**shard)).is_none());
        let ranges: HashRanges = foreign.flat_map(|shard| plan.shards[*shard].ranges.iter()).collect();
        if !self.cached.intersection(&ranges).is_empty() {
            self.cached = self.cached.without(&ranges);
            self.hold_in_cache();
        }
        let forgotten = self.host.cached.is_taken_in();
        tokio::time::timeout(self.times.retry_period / HURRY, forgotten)
            .await
            .is_ok()
    }

    fn hold(&mut self, shard: usize, plan: &ShardPlan, sent: Instant, valid_until: Instant, lease: LiveLease) {
        let LeaseTimes {
            duration,
            renew_deadline,
            ..
        } = self.times;
        self.peers.written(&shard_lease(shard), lease, self.now());
        let until = (sent + renew_deadline).min(valid_until);
        if !self.held.contains_key(&shard) {
            self.settled_since = None;
            self.work.1 = None;
        }
        let held = self.held.entry(shard).or_insert_with(|| {
            tracing::info!(lease = self.leases.lease(&shard_lease(shard)).title(), hashes = %plan.shards[shard].ranges, "took a shard");
            HeldShard {
                ranges: plan.shards[shard].ranges.clone(),
                until,
                is_leaving: false,
            }
        });
        held.until = until;
        let answered = sent + (renew_deadline + duration) / 2;
        self.fence.open_shard_until(shard, held.ranges.clone(), until, answered);
    }

    /// Gives one shard to the replica that is to have it: first nothing of it is begun any more, then, when what runs has
    /// ended, its Lease is given back.
    async fn hand_over(&mut self, is_settled: bool, is_target: &impl Fn(usize) -> bool) {
        if let Some((shard, since)) = self.handed_over {
            let holder = self.peers.holder(&shard_lease(shard), self.now());
            let is_taken = holder.is_some_and(|holder| holder != self.peers.identity());
            if is_taken || since.elapsed() >= self.times.duration {
                self.handed_over = None;
            }
        }
        let is_leaving = self.held.values().any(|held| held.is_leaving);
        if is_settled && !is_leaving && self.handed_over.is_none() {
            let next = self.held.iter_mut().find(|(shard, _)| !is_target(**shard));
            if let Some((_, held)) = next {
                held.is_leaving = true;
            }
        }
        let leaving = self.leaving();
        if leaving.is_empty() {
            return;
        }
        self.own();
        // What does not end soon is looked at again in the next round: until then the shard is renewed.
        let drained = self.host.state.nothing_runs_that_is_not_owned();
        if tokio::time::timeout(self.times.retry_period / HURRY, drained)
            .await
            .is_err()
        {
            return;
        }
        for shard in leaving {
            self.give_back(shard).await;
            self.handed_over = Some((shard, Instant::now()));
        }
    }

    /// The shards of which nothing is begun any more.
    fn leaving(&self) -> Vec<usize> {
        let held = self.held.iter().filter(|(_, held)| held.is_leaving);
        held.map(|(shard, _)| *shard).collect()
    }

    /// Gives the Lease of a shard back, so that nobody has to wait for it.
    async fn give_back(&mut self, shard: usize) {
        self.fence.close_shard(shard);
        if self.held.remove(&shard).is_none() {
            return;
        }
        self.settled_since = None;
        self.work.1 = None;
        self.give_back_leases(vec![shard_lease(shard)]).await;
    }

    /// Gives Leases back that this replica holds, all at once.
    async fn give_back_leases(&mut self, names: Vec<String>) {
        let time = self.host.clock.microseconds();
        let mut requests = JoinSet::new();
        for name in names {
            let Some(live) = self.peers.own(&name).cloned() else {
                continue;
            };
            let (lease, time) = (self.leases.lease(&name), time.clone());
            requests.spawn(async move {
                let written = lease.give_back(&live, &time).await;
                (name, lease.title(), written)
            });
        }
        while let Some(ended) = requests.join_next().await {
            let Ok((name, lease, written)) = ended else { continue };
            match written {
                Ok(Some(written)) => {
                    tracing::info!(lease, "gave a Lease back");
                    self.peers.written(&name, written, self.now());
                }
                // Somebody else has it.
                Ok(None) => {}
                Err(error) => tracing::warn!(
                    lease,
                    error = chain(&error),
                    "cannot give a Lease back; others wait until it ends"
                ),
            }
        }
    }

    async fn leave(mut self, in_flight: InFlight) {
        self.divisions = Arc::default();
        self.valid_until = None;
        self.pass_divisions();
        let (mut held, mut left) = (Vec::new(), Vec::new());
        for (shard, HeldShard { ranges, .. }) in std::mem::take(&mut self.held) {
            self.fence.close_shard(shard);
            let is_in_flight = in_flight.namespaces.iter().any(|namespace| ranges.has(namespace));
            if is_in_flight { &mut left } else { &mut held }.push(shard);
        }
        if !left.is_empty() {
            let leases: Vec<String> = left
                .into_iter()
                .map(|shard| self.leases.lease(&shard_lease(shard)).title())
                .collect();
            tracing::warn!(
                ?leases,
                "left Leases to end by themselves: reconciles were abandoned, and their last writes may still take effect"
            );
        }
        // Others leave no shard to a replica that has given its own Lease back, and do not wait for it to work by their plan.
        let own_lease = self.own_lease.clone();
        self.give_back_leases(vec![own_lease.clone()]).await;
        self.give_back_leases(held.into_iter().map(shard_lease).collect()).await;
        self.own();
        // Where there are others, they are to see it, and the leader deletes it later.
        let is_last = self.peers.others(&own_lease, self.now()).next().is_none();
        if is_last && let Some(live) = self.peers.live(&own_lease) {
            let _ = self.leases.lease(&own_lease).delete(live).await;
        }
    }

    fn say_problem(&mut self, error: &ShardingError) {
        let problem = match error {
            ShardingError::Request(error) if error.code() == Some(403) => format!(
                "{error}; grant the host get, list, create, update and delete on leases.coordination.k8s.io and get, create and \
                 update on configmaps in the namespace of the Leases"
            ),
            error => chain(error),
        };
        if self.logged.is_due(&problem) {
            tracing::warn!(
                leases = self.leases.title(),
                "cannot take part in dividing the work: {problem}; retrying"
            );
        }
    }
}
