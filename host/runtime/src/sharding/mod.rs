//! Takes part in dividing the work among active replicas: carries out what [`Member`] decides, which is to announce this
//! replica, and to take and release shards, and sets the work of the queue and the fence.
//! [`pilothouse_core::replicas::shards`] decides how namespaces are divided into shards, and shards among replicas.
//!
//! Each shard has a Lease, and so has each replica. A replica's Lease says which version of the plan the replica works
//! by.
//!
//! With `--shards` all replicas write, and the fence checks the controller and namespace of every request again. A replica caches the
//! namespaces of its shards: informers list again when shards move, and the queue takes in a namespace when all kinds of the lane have
//! been listed there.
//!
//! Versions of a plan end at 9223372036854775807. If somebody writes that one, into the plan or into a replica's Lease, all replicas refuse
//! the leader's next plan. To recover, stop all replicas, delete the ConfigMap, and start them again.
//!
//! A replica that takes up work does not wait until its watches have shown all that the one before it has made, where a kind is cached
//! whole. A create may then meet an object that exists (409); it changes nothing, and the object is read and adopted.

mod leases;
pub mod leftovers;
mod plan_keeper;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::fence::WriteFence;
use pilothouse_cluster::resources::lease::{LeaseGroup, LiveLease};
use pilothouse_core::replicas::lease::LeaseTimes;
use pilothouse_core::replicas::member::{Action, HURRY, Member, Progress, View};
use pilothouse_core::replicas::peers::{WorkCount, plan_name, shard_lease};
use pilothouse_core::replicas::shards::{HashRanges, HoldingReplica, OwnedWork, ShardHolder, ShardHolders, ShardPlan};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use self::plan_keeper::{GroupState, PlanKeeper};
use crate::context::{HostContext, ReplicaShare};
use crate::election::leadership::ElectionOptions;
use crate::election::lease_task::{LeaseTask, LoggedProblems};
use crate::lanes::cached_namespaces::CachedPart;
use crate::process::clock::sleep_until;

/// The most Leases of other software that the log names.
const MOST_NAMED: usize = 8;

/// Time without changes after which work that this replica no longer has is dropped from the cache.
const NARROW_AFTER: Duration = Duration::from_secs(30);

/// Interval at which a replica counts its work.
const COUNT_INTERVAL: Duration = Duration::from_secs(10);

/// Starts to take part, with this number of shards. Other replicas reach the webhook server of this one at `address`.
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
    let patience = times.renew_deadline / 2;
    let replica = Replica {
        leases: LeaseGroup::new(client.clone(), namespace.clone(), name.clone(), patience),
        plans: PlanKeeper::new(client.clone(), namespace, plan_name(&name), patience, shards),
        member: Member::new(identity, times, shards),
        address,
        times,
        fence,
        host,
        begun: Instant::now(),
        cached: HashRanges::default(),
        settled_since: None,
        work: (WorkCount::default(), None),
        logged: LoggedProblems::default(),
    };
    replica.host.state.own(&OwnedWork::none());
    replica.hold_in_cache();
    LeaseTask::spawn(patience * 2, |stopped| replica.run(stopped))
}

struct Replica {
    leases: LeaseGroup,
    plans: PlanKeeper,
    /// Decides about Leases and the plan.
    member: Member<LiveLease>,
    /// Address at which other replicas reach the webhook server of this one.
    address: Option<SocketAddr>,
    times: LeaseTimes,
    fence: WriteFence,
    host: Arc<HostContext>,
    /// Origin of the member's clock.
    begun: Instant,
    /// Hashes of the namespaces that the cache holds: those held now, and lately.
    cached: HashRanges,
    /// Time since which no shard has to be taken or handed over.
    settled_since: Option<Instant>,
    /// Size of this replica's work, and when it was counted.
    work: (WorkCount, Option<Instant>),
    logged: LoggedProblems,
}

/// Reason why a round failed.
#[derive(Debug, thiserror::Error)]
enum ShardingError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("{0}")]
    Plan(String),
    #[error("somebody else has written into the Lease of this replica")]
    KeptOut,
    #[error(
        "the plan {plan} has {planned} shards, and this replica was started with --shards {own}; start all replicas with the \
         same number. Until then this one takes no shards and does not lead"
    )]
    OtherNumber { plan: String, planned: usize, own: usize },
    #[error("{}", unlabelled(.0))]
    Unlabelled(BTreeMap<String, String>),
}

/// Message about Leases without the host's label, each with its holder.
fn unlabelled(leases: &BTreeMap<String, String>) -> String {
    const LABEL: &str = "label app.kubernetes.io/managed-by=pilothouse";
    const OTHERWISE: &str = "if other software did, give another name with --lease";
    let held = |holder: &String| match holder.as_str() {
        "" => "nobody holds it".to_owned(),
        holder => format!("{holder:?} holds it"),
    };
    if let (1, Some((lease, holder))) = (leases.len(), leases.first_key_value()) {
        let held = held(holder);
        return format!(
            "the Lease {lease} has no {LABEL}, and {held}; if this host made it, label it, or delete it; {OTHERWISE}"
        );
    }
    let named = leases.iter().take(MOST_NAMED);
    let mut named: Vec<String> = named
        .map(|(lease, holder)| format!("{lease} ({})", held(holder)))
        .collect();
    named.extend((leases.len() > MOST_NAMED).then(|| format!("and {} more", leases.len() - MOST_NAMED)));
    format!(
        "the Leases {} have no {LABEL}; if this host made them, label them, or delete them; {OTHERWISE}",
        named.join(", ")
    )
}

impl Replica {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        let mut leadership = self.host.leadership.follow();
        let mut pauses = 0_u64;
        loop {
            let expiry = self.expiry();
            let patience = self.times.renew_deadline / 2;
            let progress = {
                let mut round = pin!(self.round());
                tokio::select! {
                    progress = &mut round => Some(progress),
                    () = sleep_until(expiry) => None,
                    // A request in flight may take effect, and then has to be undone.
                    _ = &mut stopped => {
                        let _ = timeout(patience, round).await;
                        break;
                    }
                }
            };
            let Some(progress) = progress else {
                self.expire();
                continue;
            };
            self.own();
            pauses += 1;
            let pause = self.member.peers().pause(pauses);
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
                    self.log_problem(&error);
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
                    _ = &mut stopped => return self.leave().await,
                }
            }
        }
        self.leave().await;
    }

    async fn leave(mut self) {
        self.member.leave();
        // Each failure is logged, and whatever is left expires.
        let _ = self.carry_out().await;
        self.own();
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Time on the runtime's clock.
    fn at(&self, now: Duration) -> Instant {
        self.begun + now
    }

    /// Time at which the first of this replica's Leases expires.
    fn expiry(&self) -> Option<Instant> {
        self.member.expiry().map(|expiry| self.at(expiry))
    }

    /// Sets this replica's work in the queue.
    fn own(&mut self) {
        let ranges = self.member.ranges();
        self.cached = self.cached.union(&ranges);
        // A shard that is handed over may return soon, and would have to be listed again.
        if self.settled_since.is_some_and(|since| since.elapsed() >= NARROW_AFTER) {
            self.cached.clone_from(&ranges);
        }
        self.hold_in_cache();
        self.host.state.own(&OwnedWork::Part {
            ranges,
            leads: self.host.leadership.leads(),
            divisions: self.member.divisions().clone(),
        });
        let peers = self.member.peers();
        let identity = peers.identity().to_owned();
        let mut replicas = peers.living(self.now());
        replicas.insert(identity.clone());
        *self.host.shards.lock() = Some(ReplicaShare {
            held: self.member.held().len(),
            of: self.member.shards(),
            identity,
            replicas: replicas.into_iter().collect(),
        });
        *self.host.holders.lock() = Arc::new(self.holders());
    }

    /// Holder of each shard, as far as known.
    fn holders(&self) -> ShardHolders {
        let (now, peers) = (self.now(), self.member.peers());
        let shards = self
            .member
            .plan()
            .into_iter()
            .flat_map(|plan| plan.shards.iter().enumerate());
        let holders = shards.map(|(shard, planned)| {
            let holder = peers.holder(&shard_lease(shard), now);
            ShardHolder {
                ranges: planned.ranges.clone(),
                replica: holder.map(|holder| HoldingReplica {
                    identity: holder.to_owned(),
                    is_own: holder == peers.identity(),
                    address: peers.address_of(holder, now),
                }),
            }
        });
        ShardHolders(holders.collect())
    }

    /// Sets the namespaces that the informers cache.
    fn hold_in_cache(&self) {
        let plan = self.member.plan();
        let divisions = plan.map(|plan| plan.controllers.clone()).unwrap_or_default();
        let part = CachedPart::Namespaces(self.cached.clone(), Arc::new(divisions));
        if self.host.cached.set(part) {
            self.host.state.cached_namespaces_change();
            self.host.cached.announce();
        }
    }

    /// Counts this replica's work, from time to time.
    fn count(&mut self) -> WorkCount {
        if self.work.1.is_none_or(|counted| counted.elapsed() >= COUNT_INTERVAL) {
            let held = self.member.held().iter();
            let held = held.map(|(shard, held)| (*shard, held.ranges.clone())).collect();
            self.work = (self.host.state.count_work(&held), Some(Instant::now()));
        }
        let mut objects = self.work.0.by_controller.clone();
        let member = &self.member;
        for other in member.peers().others(member.own_lease(), self.now()) {
            for (controller, count) in &other.work.by_controller {
                let objects = objects.entry(controller.clone()).or_default();
                *objects = objects.saturating_add(*count);
            }
        }
        *self.host.divided_objects.lock() = objects;
        self.work.0.clone()
    }

    async fn round(&mut self) -> Result<Progress, ShardingError> {
        self.member.begin();
        let progress = self.carry_out().await?;
        if !self.member.peers().leader_takes_part(self.now()) {
            let problem = "a replica that was started without --shards leads; start all replicas with the same options. Until \
                           then this one takes up nothing";
            self.log_problem(&ShardingError::Plan(problem.to_owned()));
        }
        Ok(progress)
    }

    /// Carries out what the member decides, until the round ends.
    async fn carry_out(&mut self) -> Result<Progress, ShardingError> {
        // Without the plan nothing new is taken, and held shards are renewed; so are others if one fails.
        let mut problem = None;
        loop {
            let version = self.member.version();
            let action = self.step();
            if self.member.version() != version {
                self.log_plan();
            }
            match action {
                Action::List => self.list().await?,
                Action::ReadPlan => match self.read_plan().await {
                    Ok(plan) => self.member.read(plan),
                    Err(error) => problem = Some(error),
                },
                Action::Drain(patience) => {
                    self.own();
                    let drained = timeout(patience, self.host.state.drain_unowned()).await;
                    self.member.wait(drained.is_ok());
                }
                Action::Fence { closed, overdue } => self.set_fence(&closed, overdue),
                Action::Announce(write, mut state) => {
                    state.work = self.count();
                    state.address = self.address;
                    let written = self.announce(write, &state).await;
                    self.may_lead(problem.as_ref(), written.as_ref().err());
                    written?;
                }
                Action::KeptOut => {
                    self.may_lead(problem.as_ref(), Some(&ShardingError::KeptOut));
                    return Err(ShardingError::KeptOut);
                }
                Action::Forget(ranges) => {
                    let is_forgotten = self.forget(&ranges).await;
                    self.member.wait(is_forgotten);
                }
                Action::Write { writes, lost } => {
                    self.lose(lost);
                    problem = self.write(writes).await.err().or(problem);
                }
                Action::Release { leases, ended, left } => self.release(leases, ended, &left).await,
                Action::Delete(leases) => {
                    for (name, lease) in leases {
                        self.leases.lease(&name).delete(&lease).await?;
                    }
                }
                Action::End(progress) => {
                    let is_held_back = self.member.version().is_none()
                        && !self.host.unstarted.run_elsewhere(&self.host.leadership).is_empty();
                    // It takes longer than to start a plugin.
                    let progress = if is_held_back { Progress::Settled } else { progress };
                    return problem.map_or(Ok(progress), Err);
                }
            }
        }
    }

    fn step(&mut self) -> Action<LiveLease> {
        let unsettled = self.fence.unsettled().into_iter();
        let unsettled = unsettled.map(|(passage, begun)| (passage, begun.saturating_duration_since(self.begun)));
        let view = View {
            leads: self.host.leadership.leads(),
            // A replica without a plan gets no shards: others would stop to work at them.
            is_held_back: self.host.unstarted.lacks_any(&self.host.leadership),
            divisions: &self.host.divisions(),
            unsettled: &unsettled.collect::<Vec<_>>(),
            time: &self.host.clock.microseconds(),
        };
        self.member.step(&view, self.begun.elapsed())
    }

    /// Reads the plan; the leader keeps it up to date.
    async fn read_plan(&mut self) -> Result<Option<Arc<ShardPlan>>, ShardingError> {
        if !self.host.leadership.leads() {
            return self.plans.read().await;
        }
        let (now, peers, shards) = (self.now(), self.member.peers(), self.member.shards());
        let version = self.member.version().unwrap_or_default();
        let state = GroupState {
            known: self.member.known(now),
            counts: peers.counts(now),
            loads: peers.loads(shards, version, now),
            shares: peers.shares(shards, version, now),
        };
        self.plans.read_and_keep(&self.host, &state).await
    }

    /// Sets whether this replica may lead, after an attempt to announce it.
    fn may_lead(&self, of_plan: Option<&ShardingError>, of_announcement: Option<&ShardingError>) {
        // A leader with another number would neglect work that is not divided.
        let is_other = |problem: &ShardingError| match problem {
            ShardingError::OtherNumber { planned, .. } => self.member.peers().counts(self.now()).contains(planned),
            _ => false,
        };
        // If another holder has its Lease, it cannot do a leader's work either, once others do not wait for it.
        let is_kept_out = |error: &ShardingError| !matches!(error, ShardingError::Request(_));
        let is_awaited = self.member.fenced().1.is_some_and(|until| self.now() < until);
        let is_kept_out = of_announcement.is_some_and(is_kept_out) && !is_awaited;
        let is_eligible = !of_plan.is_some_and(is_other) && !is_kept_out;
        self.host.leadership.set_eligible(is_eligible);
    }

    fn log_problem(&mut self, error: &ShardingError) {
        let problem = match error {
            ShardingError::Request(error) if error.is_missing_right() => format!(
                "{error}; grant the host get, list, create, update and delete on leases.coordination.k8s.io and get, create and \
                 update on configmaps in the namespace of the Leases"
            ),
            error => chain(error),
        };
        if self.logged.take_due(&problem) {
            tracing::warn!(
                leases = self.leases.title(),
                "cannot take part in dividing the work: {problem}; retrying"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_leases_are_named_in_order_up_to_a_limit() {
        let leases = |numbers: std::ops::Range<usize>| {
            let holder = |number: usize| if number == 1 { "theirs" } else { "" };
            let lease = |number: usize| (format!("a/it-shard-{number}"), holder(number).to_owned());
            ShardingError::Unlabelled(numbers.rev().map(lease).collect()).to_string()
        };
        assert_eq!(
            leases(1..2),
            "the Lease a/it-shard-1 has no label app.kubernetes.io/managed-by=pilothouse, and \"theirs\" holds it; if this host \
             made it, label it, or delete it; if other software did, give another name with --lease"
        );
        let two = leases(0..2);
        assert!(
            two.starts_with(
                "the Leases a/it-shard-0 (nobody holds it), a/it-shard-1 (\"theirs\" holds it) have no label "
            ),
            "{two}"
        );
        let many = leases(0..MOST_NAMED + 3);
        assert!(many.contains(", and 3 more have no label"), "{many}");
    }
}
