//! Takes part in the leader election: takes, renews and releases the Lease, and opens and closes the write fence before
//! the API server. [`pilothouse_core::replicas::lease`] decides what to do about a Lease.
//!
//! A replica that does not lead does everything that changes nothing: it keeps its caches, loads and tries plugins,
//! queues changes, and answers admission. When it leads, it works through its queue.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::fence::{LeaseTerm, Passage, WriteFence};
use pilothouse_cluster::resources::lease::{LeaseApi, LeaseGroup, LiveLease};
use pilothouse_cluster::resources::shard_plan::ShardPlanApi;
use pilothouse_core::replicas::lease::{LeaseCandidate, LeaseStep, LeaseTimes};
use pilothouse_core::replicas::peers::{Peers, plan_name};
use pilothouse_core::status::backoff;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::election::lease_task::{LeaseTask, LoggedProblems};
use crate::process::clock::{WallClock, sleep_until};
use crate::process::contact::ServerContact;
use crate::sharding::leftovers::Leftovers;

/// Options of the leader election.
#[derive(Clone, Debug)]
pub struct ElectionOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease. Hosts with the same Plugins share it.
    pub name: String,
    /// Identity of this process in the Lease, never reused by another process.
    pub identity: String,
    /// Durations of the election.
    pub times: LeaseTimes,
    /// Fence that the client's write requests pass.
    pub fence: WriteFence,
    /// Number of shards, if all replicas share the work; `None`: only the leader works.
    pub shards: Option<usize>,
}

/// Leadership of this replica. Without an election it always leads.
#[derive(Clone, Debug)]
pub struct Leadership {
    leads: watch::Sender<bool>,
    is_elected: bool,
    /// Set if this replica is able to lead.
    is_eligible: Arc<AtomicBool>,
}

impl Leadership {
    /// Makes the leadership of a replica that leads without an election.
    pub fn without_election() -> Self {
        Self {
            leads: watch::Sender::new(true),
            is_elected: false,
            is_eligible: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Makes the leadership of a replica that takes part in an election and does not lead yet.
    pub fn by_election() -> Self {
        Self {
            leads: watch::Sender::new(false),
            is_elected: true,
            is_eligible: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Returns `true` if it leads now.
    pub fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    /// Returns whether it leads now; `None` without an election.
    pub fn elected(&self) -> Option<bool> {
        self.is_elected.then(|| self.leads())
    }

    /// Resolves when it leads.
    pub async fn leading(&self) {
        // The sender is `self`, so it exists.
        let _ = self.leads.subscribe().wait_for(|leads| *leads).await;
    }

    /// Sets whether this replica is able to lead. If not, it does not take the Lease, and releases it.
    pub fn set_eligible(&self, is_eligible: bool) {
        self.is_eligible.store(is_eligible, Ordering::Relaxed);
    }

    fn is_eligible(&self) -> bool {
        self.is_eligible.load(Ordering::Relaxed)
    }

    /// Subscribes to changes of the leadership.
    pub fn follow(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    fn set(&self, leads: bool) {
        self.leads
            .send_if_modified(|known| std::mem::replace(known, leads) != leads);
    }
}

/// Starts to take part in the election.
pub fn start(
    client: &Client,
    options: &ElectionOptions,
    clock: WallClock,
    leadership: Leadership,
    contact: Arc<ServerContact>,
) -> LeaseTask {
    let ElectionOptions {
        namespace,
        name,
        identity,
        times,
        fence,
        shards,
    } = options.clone();
    let timeout = times.renew_deadline / 2;
    let participant = Participant {
        others: shards.is_none().then(|| OtherMode {
            leases: LeaseGroup::new(client.clone(), namespace.clone(), name.clone(), timeout),
            plan: ShardPlanApi::new(client.clone(), namespace.clone(), plan_name(&name), timeout),
            peers: Peers::new(identity.clone(), times),
            deleting: JoinSet::new(),
        }),
        api: LeaseApi::new(client.clone(), namespace, name, timeout),
        candidate: LeaseCandidate::new(identity, times),
        times,
        fence,
        leadership,
        contact,
        clock,
        begun: Instant::now(),
        live: None,
        leads_until: None,
        pauses: 0,
        logged: Logged::default(),
    };
    LeaseTask::spawn(timeout, |stopped| participant.run(stopped))
}

struct Participant {
    api: LeaseApi,
    candidate: LeaseCandidate,
    times: LeaseTimes,
    fence: WriteFence,
    leadership: Leadership,
    /// Time of the last response: every answered request for the Lease counts.
    contact: Arc<ServerContact>,
    clock: WallClock,
    /// Origin of the candidate's clock.
    begun: Instant,
    /// The Lease as last observed.
    live: Option<LiveLease>,
    /// Time until which writes may start; `None` if another replica leads.
    leads_until: Option<Instant>,
    /// Number of waits, which varies the jitter.
    pauses: u64,
    logged: Logged,
    /// Replicas that divide the work, if this one does not.
    others: Option<OtherMode>,
}

/// Detects replicas that were started with --shards, next to one that was not.
struct OtherMode {
    leases: LeaseGroup,
    plan: ShardPlanApi,
    peers: Peers<LiveLease>,
    /// Deletes what they have left, while this replica leads.
    deleting: JoinSet<()>,
}

impl OtherMode {
    /// Fails if there is one: it would consider a part of the work its own.
    async fn check(&mut self, now: Duration) -> Result<(), ElectionError> {
        self.peers.observe(self.leases.list().await?, now);
        match self.peers.any_replica(now) {
            Some(replica) => Err(ElectionError::Divided(replica.to_owned())),
            None => Ok(()),
        }
    }

    /// Begins to delete what they have left, if there is anything.
    fn delete_leftovers(&mut self, candidate: &LeaseCandidate, times: LeaseTimes) {
        if self.peers.has_any_of(0) {
            let identity = candidate.identity().to_owned();
            let left = Leftovers::new(self.leases.clone(), self.plan.clone(), identity, times);
            self.deleting.spawn(left.delete());
        }
    }
}

/// State that was logged.
#[derive(Default)]
struct Logged {
    holder: Option<String>,
    problem: LoggedProblems,
}

/// Result of an attempt.
enum Attempt {
    /// The Lease is ours, since the request that was sent at this time.
    Leads(Instant),
    /// Another replica holds it, at least until this time.
    Held(Instant),
    /// The Lease has changed in between.
    Changed,
}

/// Reason why an attempt failed.
#[derive(Debug, thiserror::Error)]
enum ElectionError {
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error(
        "it was made by other software: its label app.kubernetes.io/managed-by is not pilothouse; give another name with --lease"
    )]
    Foreign,
    #[error(
        "the replica {0} was started with --shards, and this one was not; start all replicas with the same options. Until then \
         this one does not lead"
    )]
    Divided(String),
}

impl Participant {
    async fn run(mut self, mut stopped: oneshot::Receiver<()>) {
        loop {
            if !self.leadership.is_eligible() {
                self.release().await;
                tokio::select! {
                    () = tokio::time::sleep(self.times.retry_period) => continue,
                    // It holds nothing.
                    _ = &mut stopped => return,
                }
            }
            let leads_until = self.leads_until;
            let patience = self.times.renew_deadline / 4;
            let (attempt, stops) = {
                let mut attempt = pin!(self.attempt());
                tokio::select! {
                    attempt = &mut attempt => (Some(attempt), false),
                    () = sleep_until(leads_until) => (None, false),
                    // A request in flight may take effect, and then the Lease has to be released.
                    _ = &mut stopped => (tokio::time::timeout(patience, attempt).await.ok(), true),
                }
            };
            if stops {
                if let Some(Ok(Attempt::Leads(since))) = attempt {
                    self.leads_until.get_or_insert(since);
                }
                break;
            }
            let Some(attempt) = attempt else {
                // The fence has closed by itself.
                self.step_down("it could not be renewed in time");
                continue;
            };
            let wait = match attempt {
                Ok(Attempt::Leads(since)) => {
                    self.lead(since);
                    self.times.retry_period
                }
                Ok(Attempt::Held(until)) => {
                    if self.leads_until.is_some() {
                        self.step_down("another replica has it");
                    }
                    self.log_holder();
                    // Others have observed the last renewal at other times, so they do not all try when it ends.
                    self.pause().min(until.saturating_duration_since(Instant::now()))
                }
                Ok(Attempt::Changed) => self.pause() / 8,
                Err(error) => {
                    self.live = None;
                    self.log_problem(&error);
                    self.pause()
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = sleep_until(self.leads_until) => self.step_down("it could not be renewed in time"),
                _ = &mut stopped => break,
            }
        }
        self.release().await;
    }

    /// Returns the wait between two attempts, with jitter as in client-go, so that replicas do not ask together.
    fn pause(&mut self) -> Duration {
        let mut seed = DefaultHasher::new();
        (self.candidate.identity(), self.pauses).hash(&mut seed);
        self.pauses += 1;
        backoff::jittered(self.times.retry_period, seed.finish())
    }

    async fn attempt(&mut self) -> Result<Attempt, ElectionError> {
        let is_ours = |live: &LiveLease| live.record.holder == self.candidate.identity();
        // The leader knows the content of the Lease until a write is rejected.
        if !self.live.as_ref().is_some_and(is_ours) {
            self.live = self.api.read().await?;
            self.contact.heard();
        }
        // A Lease that names this replica has lost its label, and gets it again.
        let is_foreign = |live: &LiveLease| {
            let is_its_own = live.record.holder == self.candidate.identity();
            !live.is_ours() && !is_its_own && !live.record.is_unused()
        };
        if self.live.as_ref().is_some_and(is_foreign) {
            return Err(ElectionError::Foreign);
        }
        let record = self.live.as_ref().map(|live| &live.record);
        let step = self
            .candidate
            .next(record, self.begun.elapsed(), &self.clock.microseconds());
        let record = match step {
            LeaseStep::Write(record) => record,
            LeaseStep::Wait(until) => return Ok(Attempt::Held(self.begun + until)),
        };
        let is_new = self.leads_until.is_none();
        if let Some(others) = self.others.as_mut().filter(|_| is_new) {
            others.check(self.begun.elapsed()).await?;
        }
        // Taken before the request is sent: others observe it later, and wait from then on.
        let sent = Instant::now();
        let written = self.api.write(self.live.as_ref(), &record).await?;
        self.contact.heard();
        let won = written.is_some();
        self.live = written;
        // A replica that started in between sees in turn that this one leads.
        if let Some(others) = self.others.as_mut().filter(|_| won && is_new)
            && let Err(error) = others.check(self.begun.elapsed()).await
        {
            self.give_back().await;
            return Err(error);
        }
        Ok(if won { Attempt::Leads(sent) } else { Attempt::Changed })
    }

    fn lead(&mut self, since: Instant) {
        let term = LeaseTerm::new(since, self.times);
        self.fence.open_until(term);
        if self.leads_until.replace(term.begin).is_none() {
            tracing::info!(
                lease = self.api.title(),
                identity = self.candidate.identity(),
                "this replica leads"
            );
            if let Some(others) = &mut self.others {
                others.delete_leftovers(&self.candidate, self.times);
            }
        }
        self.logged = Logged::default();
        self.leadership.set(true);
    }

    fn stop_leading(&mut self) {
        self.fence.close();
        self.leadership.set(false);
        if let Some(others) = &mut self.others {
            others.deleting.abort_all();
        }
    }

    fn step_down(&mut self, why: &str) {
        self.stop_leading();
        self.leads_until = None;
        tracing::warn!(lease = self.api.title(), "this replica leads no longer: {why}");
    }

    async fn release(&mut self) {
        self.stop_leading();
        if self.leads_until.take().is_some() {
            let answered = self.fence.answered(Passage::Leader);
            let _ = tokio::time::timeout(self.times.renew_deadline / 8, answered).await;
            self.give_back().await;
        }
    }

    /// Releases the Lease, unless a write that has passed the fence may still take effect: then others wait until it
    /// ends.
    async fn give_back(&mut self) {
        if !self.fence.is_settled(Passage::Leader) {
            tracing::warn!(
                lease = self.api.title(),
                "left the Lease to end by itself: a write got no answer, and may still take effect"
            );
            return;
        }
        // After a failed attempt the content of the Lease is not known.
        let live = match self.live.take() {
            Some(live) => Some(live),
            None => self.api.read().await.ok().flatten(),
        };
        let Some(live) = live.filter(|live| live.record.holder == self.candidate.identity()) else {
            return;
        };
        match self.api.give_back(&live, &self.clock.microseconds()).await {
            Ok(written) => {
                if written.is_some() {
                    tracing::info!(lease = self.api.title(), "gave the Lease back");
                }
                self.live = written;
            }
            Err(error) => tracing::warn!(
                lease = self.api.title(),
                error = chain(&error),
                "cannot give the Lease back; others wait until it ends"
            ),
        }
    }

    fn log_holder(&mut self) {
        let holder = self.live.as_ref().map(|live| live.record.holder.clone());
        if self.logged.holder != holder {
            let leader = holder.as_deref().unwrap_or_default();
            tracing::info!(
                lease = self.api.title(),
                leader,
                "another replica leads; this one stands by"
            );
            self.logged.holder = holder;
        }
    }

    fn log_problem(&mut self, error: &ElectionError) {
        let problem = match error {
            ElectionError::Request(error) if error.is_missing_right() => format!(
                "{error}; grant the host get, list, create and update on leases.coordination.k8s.io in the namespace of the Lease"
            ),
            error => chain(error),
        };
        if self.logged.problem.take_due(&problem) {
            tracing::warn!(
                lease = self.api.title(),
                "cannot take or renew the Lease: {problem}; retrying"
            );
        }
    }
}
