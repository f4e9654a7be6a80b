//! Takes part in dividing the work among active replicas: announces this replica, takes and releases shards, and sets
//! the work of the queue and the fence. [`pilothouse_core::replicas::shards`] decides how namespaces are divided into
//! shards, and shards among replicas.
//!
//! Each shard has a Lease, and so has each replica. A replica's Lease says which version of the plan the replica works
//! by. No replica takes over work that is new in a version before all living replicas work by it: a replica writes its
//! Lease with the version, then reads the plan again, then all Leases, and only then takes over work. If another
//! replica has a later version meanwhile, it sees in turn that this one still works by the earlier one, and waits.
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

mod adopt;
mod leases;
pub mod leftovers;
pub mod peers;
mod plan_keeper;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::fence::WriteFence;
use pilothouse_cluster::resources::lease::LeaseGroup;
use pilothouse_core::replicas::lease::LeaseTimes;
use pilothouse_core::replicas::shards::{
    Division, Divisions, HashRanges, HoldingReplica, OwnedWork, ShardHolder, ShardHolders, ShardPlan,
};
use tokio::sync::oneshot;
use tokio::time::Instant;

use self::peers::{KEPT, Peers, plan_name, replica_lease, shard_lease};
use self::plan_keeper::PlanKeeper;
use crate::context::{HostContext, ReplicaShare};
use crate::election::leadership::ElectionOptions;
use crate::election::lease_task::{LeaseTask, LoggedProblems};
use crate::lanes::cached_namespaces::CachedPart;
use crate::process::clock::sleep_until;
use crate::state::WorkCount;

/// Divisor of the wait while changes are expected.
const HURRY: u32 = 4;

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
    let timeout = times.renew_deadline / 2;
    let replica = Replica {
        leases: LeaseGroup::new(client.clone(), namespace.clone(), name.clone(), timeout),
        plans: PlanKeeper::new(client.clone(), namespace, plan_name(&name), timeout, shards),
        own_lease: replica_lease(&identity),
        peers: Peers::new(identity, times),
        has_looked: false,
        address,
        times,
        fence,
        host,
        begun: Instant::now(),
        plan: None,
        divisions: Arc::default(),
        fenced_divisions: Arc::default(),
        fenced_since: Instant::now(),
        adopting: None,
        announced: None,
        valid_until: None,
        held: BTreeMap::new(),
        cached: HashRanges::default(),
        settled_since: None,
        work: (WorkCount::default(), None),
        handed_over: None,
        logged: LoggedProblems::default(),
    };
    replica.host.state.own(&OwnedWork::none());
    replica.hold_in_cache();
    LeaseTask::spawn(timeout * 2, |stopped| replica.run(stopped))
}

struct Replica {
    leases: LeaseGroup,
    plans: PlanKeeper,
    /// Name of this replica's own Lease, without the prefix.
    own_lease: String,
    peers: Peers,
    /// Set if all Leases have been read once.
    has_looked: bool,
    /// Address at which other replicas reach the webhook server of this one.
    address: Option<SocketAddr>,
    times: LeaseTimes,
    fence: WriteFence,
    host: Arc<HostContext>,
    /// Origin of the candidates' clock.
    begun: Instant,
    /// Plan that this replica works by.
    plan: Option<Arc<ShardPlan>>,
    /// Plan that it waits to adopt, until work that the plan changes has ended.
    adopting: Option<Adopting>,
    /// Divisions of controllers on which all replicas agree.
    divisions: Arc<Divisions>,
    /// The divisions in the fence: jobs under divisions that are no longer agreed on may finish.
    fenced_divisions: Arc<Divisions>,
    /// Time since which the fence has them.
    fenced_since: Instant,
    /// Version in this replica's Lease.
    announced: Option<u64>,
    /// Time until which others wait for this replica.
    valid_until: Option<Instant>,
    held: BTreeMap<usize, HeldShard>,
    /// Hashes of the namespaces that the cache holds: those held now, and lately.
    cached: HashRanges,
    /// Time since which no shard has to be taken or handed over.
    settled_since: Option<Instant>,
    /// Size of this replica's work, and when it was counted.
    work: (WorkCount, Option<Instant>),
    /// Shard last handed over, and when: the next one waits until it has been taken.
    handed_over: Option<(usize, Instant)>,
    logged: LoggedProblems,
}

/// A shard whose Lease this replica holds.
struct HeldShard {
    ranges: HashRanges,
    /// Time until which jobs may start.
    until: Instant,
    /// Set if no job of it is started any more; it is released when running jobs have ended.
    is_leaving: bool,
    /// Set if no write of it passes the fence any more; it is released when all earlier ones are settled.
    is_closed: bool,
}

/// A plan that a replica waits to adopt.
struct Adopting {
    version: u64,
    /// Time since which it waits, possibly for an earlier version.
    since: Instant,
    /// Set if the log has said that it no longer waits for running jobs.
    is_said: bool,
}

/// Result of a round.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// Every replica has its assigned shards.
    Settled,
    /// Changes are expected soon.
    Moving,
}

/// Reason why a round failed.
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
                        let _ = tokio::time::timeout(patience, round).await;
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

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }

    /// Version of the plan that this replica works by.
    fn version(&self) -> Option<u64> {
        self.plan.as_ref().map(|plan| plan.version)
    }

    /// Returns `true` if other replicas still wait for this one.
    fn is_announced_for_now(&self) -> bool {
        self.valid_until.is_some_and(|until| Instant::now() < until)
    }

    /// Time at which the first of this replica's Leases expires.
    fn expiry(&self) -> Option<Instant> {
        let held = self.held.values().map(|held| held.until);
        held.chain(self.valid_until).min()
    }

    /// Sets this replica's work in the queue.
    fn own(&mut self) {
        let stays = self.held.values().filter(|held| !held.is_leaving);
        let ranges: HashRanges = stays.flat_map(|held| held.ranges.iter()).collect();
        self.cached = self.cached.union(&ranges);
        // A shard that is handed over may return soon, and would have to be listed again.
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

    /// Holder of each shard, as far as known.
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

    /// Sets the namespaces that the informers cache.
    fn hold_in_cache(&self) {
        let divisions = self
            .plan
            .as_ref()
            .map(|plan| plan.controllers.clone())
            .unwrap_or_default();
        let part = CachedPart::Namespaces(self.cached.clone(), Arc::new(divisions));
        if self.host.cached.set(part) {
            self.host.state.cached_namespaces_change();
            self.host.cached.announce();
        }
    }

    /// Counts this replica's work, from time to time.
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

    /// Reads all Leases.
    async fn read_leases(&mut self) -> Result<(), ShardingError> {
        let listed = self.leases.list().await?;
        self.host.contact.heard();
        self.peers.observe(listed, self.now());
        self.has_looked = true;
        Ok(())
    }

    async fn round(&mut self) -> Result<Progress, ShardingError> {
        // A leader that does not know the others would overwrite their plan.
        if !self.has_looked {
            self.read_leases().await?;
        }
        // Written in an earlier round, so before the plan is read now.
        let announced = self.announced;
        let version = self.version().unwrap_or_default();
        let known = version.max(self.peers.latest_plan(self.now()));
        // A version with two plans counts as passed.
        let known = known + u64::from(self.peers.is_disputed(&self.own_lease, self.now()));
        let (counts, loads) = (
            self.peers.counts(self.now()),
            self.peers.loads(self.plans.shards(), version, self.now()),
        );
        let shares = self.peers.shares(self.plans.shards(), version, self.now());
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
        // A leader with another number would neglect work that is not divided.
        let is_other = |problem: &ShardingError| match problem {
            ShardingError::OtherNumber { planned, .. } => self.peers.counts(self.now()).contains(planned),
            _ => false,
        };
        let is_other = read.as_ref().is_err_and(is_other);
        // Without the plan nothing new is taken; held shards are renewed.
        let (read, problem) = match read {
            Ok(read) => (read, None),
            Err(error) => (None, Some(error)),
        };
        // A replica without a plan gets no shards: others would stop to work at them.
        let is_held_back = self.plan.is_none() && self.host.unstarted.lacks_any(&self.host.leadership);
        if let Some(read) = &read
            && !is_held_back
            && self.plan.as_ref().is_none_or(|plan| plan.version < read.version)
        {
            self.adopt(read.clone()).await;
        }
        self.count();
        let own = self.published_state();
        let said = self.announce(&own).await;
        // If another holder has its Lease, it cannot do a leader's work either.
        let is_kept_out = |error: &ShardingError| !matches!(error, ShardingError::Request(_));
        let is_kept_out = said.as_ref().is_err_and(is_kept_out) && !self.is_announced_for_now();
        self.host.leadership.set_eligible(!is_other && !is_kept_out);
        said?;
        self.read_leases().await?;
        let now = self.now();
        let agrees = {
            // A replica without a plan has no work, and takes none before it has announced a plan.
            let mut others = self.peers.others(&self.own_lease, now).filter(|peer| peer.plan > 0);
            others.all(|peer| own.agrees_with(peer)) && !self.peers.has_left_work(self.announced, now)
        };
        // Others do not know an unannounced version, and may still work by the previous plan.
        let is_announced = self.version() == self.announced;
        let is_current = is_announced && read.is_some_and(|read| self.plan.as_ref() == Some(&read));
        let has_leader = self.peers.leader_takes_part(now);
        if !has_leader {
            let problem = "a replica that was started without --shards leads; start all replicas with the same options. Until \
                           then this one takes up nothing";
            self.log_problem(&ShardingError::Plan(problem.to_owned()));
        }
        let is_settled = is_current && agrees && has_leader && announced.is_some() && announced == self.announced;
        if is_settled && let Some(plan) = self.plan.clone() {
            self.divisions = Arc::new(agreed(&plan.controllers, &self.host.divisions()));
            // All replicas agree on the plan. Controllers that only this one leaves out may pass until it adopts
            // another plan: that plan waits for writes that have passed until then.
            self.fenced_divisions = Arc::new(plan.controllers.clone());
        }
        self.fence
            .set_divisions(self.fenced_divisions.clone(), self.valid_until);
        let taken = self.take_and_renew(is_settled).await;
        if self.host.leadership.leads() {
            // Leases of shards that an earlier plan had in addition.
            let shards = self.plan.as_ref().filter(|_| is_settled);
            let shards = shards.map_or(usize::MAX, |plan| plan.shards.len());
            for (name, lease) in self.peers.abandoned(shards, KEPT, now) {
                self.leases.lease(&name).delete(&lease).await?;
            }
        }
        let is_done = taken?;
        match problem {
            Some(problem) => Err(problem),
            None if is_settled && is_done => Ok(Progress::Settled),
            // It takes longer than to start a plugin.
            None if is_held_back && !self.host.unstarted.run_elsewhere(&self.host.leadership).is_empty() => {
                Ok(Progress::Settled)
            }
            None => Ok(Progress::Moving),
        }
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
