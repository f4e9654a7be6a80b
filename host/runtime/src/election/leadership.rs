//! Owns this replica's part in choosing a leader: it takes the Lease, renews it and gives it back, and opens and closes the
//! fence before the API server. What to do about a Lease is decided in [`pilothouse_core::replicas::lease`].
//!
//! A replica that does not lead does all that changes nothing: it keeps its caches, loads and tries plugins, queues what
//! changes, and answers admission. When it leads, it works through its queue.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::fence::{LeaseTerm, Passage, WriteFence};
use pilothouse_cluster::resources::lease::{LeaseApi, LeaseGroup, LiveLease};
use pilothouse_core::replicas::lease::{LeaseCandidate, LeaseStep, LeaseTimes};
use pilothouse_core::status::backoff;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::election::lease_task::{LeaseTask, LoggedProblems};
use crate::process::clock::{WallClock, sleep_until};
use crate::process::contact::ServerContact;
use crate::sharding::peers::Peers;

/// How replicas choose their leader.
#[derive(Clone, Debug)]
pub struct ElectionOptions {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The Lease's name. Hosts with the same Plugins have the same.
    pub name: String,
    /// This process in the Lease: no other process has the same, now or later.
    pub identity: String,
    /// How long everything takes.
    pub times: LeaseTimes,
    /// What the client's requests pass through.
    pub fence: WriteFence,
    /// Into how many shards the work is divided, so that all replicas work; none if only the leader does.
    pub shards: Option<usize>,
}

/// Whether this replica leads. Without an election it always does.
#[derive(Clone, Debug)]
pub struct Leadership {
    leads: watch::Sender<bool>,
    is_elected: bool,
    /// Whether this replica could do a leader's work.
    is_eligible: Arc<AtomicBool>,
}

impl Leadership {
    /// A replica that leads without being elected.
    pub fn without_election() -> Self {
        Self {
            leads: watch::Sender::new(true),
            is_elected: false,
            is_eligible: Arc::new(AtomicBool::new(true)),
        }
    }

    /// A replica that takes part in an election and does not lead yet.
    pub fn by_election() -> Self {
        Self {
            leads: watch::Sender::new(false),
            is_elected: true,
            is_eligible: Arc::new(AtomicBool::new(true)),
        }
    }

    /// Whether it leads now.
    pub fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    /// Whether it leads now, if that is for an election to decide.
    pub fn elected(&self) -> Option<bool> {
        self.is_elected.then(|| self.leads())
    }

    /// Resolves when it leads.
    pub async fn leading(&self) {
        // The sender is `self`, so there is one.
        let _ = self.leads.subscribe().wait_for(|leads| *leads).await;
    }

    /// Whether this replica could do a leader's work. One that could not does not take the Lease, and gives it back.
    pub fn set_eligible(&self, is_eligible: bool) {
        self.is_eligible.store(is_eligible, Ordering::Relaxed);
    }

    fn is_eligible(&self) -> bool {
        self.is_eligible.load(Ordering::Relaxed)
    }

    /// Follows whether it leads.
    pub fn follow(&self) -> watch::Receiver<bool> {
        self.leads.subscribe()
    }

    fn set(&self, leads: bool) {
        self.leads
            .send_if_modified(|known| std::mem::replace(known, leads) != leads);
    }
}

/// Begins to take part in the election.
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
            peers: Peers::new(identity.clone(), times),
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
    /// Every request for the Lease that is answered is a sign of the API server.
    contact: Arc<ServerContact>,
    clock: WallClock,
    /// Where the candidate's clock begins.
    begun: Instant,
    /// The Lease as it was seen last.
    live: Option<LiveLease>,
    /// Until when nothing more may be begun; none if another leads.
    leads_until: Option<Instant>,
    /// How often it has waited.
    pauses: u64,
    logged: Logged,
    /// Replicas that divide the work, where this one does not.
    others: Option<OtherMode>,
}

/// Looks for replicas that were started with --shards, next to one that was not.
struct OtherMode {
    leases: LeaseGroup,
    peers: Peers,
}

impl OtherMode {
    /// Fails if there is one: it believes that a part of the work is its own.
    async fn look(&mut self, now: Duration) -> Result<(), ElectionError> {
        self.peers.observe(self.leases.list().await?, now);
        match self.peers.any_replica(now) {
            Some(replica) => Err(ElectionError::Divided(replica.to_owned())),
            None => Ok(()),
        }
    }
}

/// What the log has said.
#[derive(Default)]
struct Logged {
    holder: Option<String>,
    problem: LoggedProblems,
}

/// What came of an attempt.
enum Attempt {
    /// The Lease is ours, as of the request that was sent then.
    Leads(Instant),
    /// Somebody else has it, at least until then.
    Held(Instant),
    /// It has changed in between.
    Changed,
}

/// Why an attempt failed.
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
                    // What is on its way may take effect, and then has to be given back.
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
                    self.say_holder();
                    // Others have seen the last renewal at other times, so they do not all come when it ends.
                    self.pause().min(until.saturating_duration_since(Instant::now()))
                }
                Ok(Attempt::Changed) => self.pause() / 8,
                Err(error) => {
                    self.live = None;
                    self.say_problem(&error);
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

    /// The wait between two looks, with jitter as client-go has it, so that replicas do not ask together.
    fn pause(&mut self) -> Duration {
        let mut seed = DefaultHasher::new();
        (self.candidate.identity(), self.pauses).hash(&mut seed);
        self.pauses += 1;
        backoff::jittered(self.times.retry_period, seed.finish())
    }

    async fn attempt(&mut self) -> Result<Attempt, ElectionError> {
        let is_ours = |live: &LiveLease| live.record.holder == self.candidate.identity();
        // Who leads knows what the Lease says until a write is refused.
        if !self.live.as_ref().is_some_and(is_ours) {
            self.live = self.api.read().await?;
            self.contact.heard();
        }
        // One that names this replica has lost its label, and gets it again.
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
            others.look(self.begun.elapsed()).await?;
        }
        // Before the request is sent: others see it later, and wait from then on.
        let sent = Instant::now();
        let written = self.api.write(self.live.as_ref(), &record).await?;
        self.contact.heard();
        let won = written.is_some();
        self.live = written;
        // Who came in between sees in turn that this one leads.
        if let Some(others) = self.others.as_mut().filter(|_| won && is_new)
            && let Err(error) = others.look(self.begun.elapsed()).await
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
        }
        self.logged = Logged::default();
        self.leadership.set(true);
    }

    fn step_down(&mut self, why: &str) {
        self.fence.close();
        self.leads_until = None;
        self.leadership.set(false);
        tracing::warn!(lease = self.api.title(), "this replica leads no longer: {why}");
    }

    async fn release(&mut self) {
        self.fence.close();
        self.leadership.set(false);
        if self.leads_until.take().is_some() {
            let answered = self.fence.answered(Passage::Leader);
            let _ = tokio::time::timeout(self.times.renew_deadline / 8, answered).await;
            self.give_back().await;
        }
    }

    /// Gives the Lease back, unless a write that has passed by it may still take effect: then others wait until it ends.
    async fn give_back(&mut self) {
        if !self.fence.is_settled(Passage::Leader) {
            tracing::warn!(
                lease = self.api.title(),
                "left the Lease to end by itself: a write got no answer, and may still take effect"
            );
            return;
        }
        // After an attempt that has failed it is not known what the Lease says.
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

    fn say_holder(&mut self) {
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

    fn say_problem(&mut self, error: &ElectionError) {
        let problem = match error {
            ElectionError::Request(error) if error.code() == Some(403) => format!(
                "{error}; grant the host get, list, create and update on leases.coordination.k8s.io in the namespace of the Lease"
            ),
            error => chain(error),
        };
        if self.logged.problem.is_due(&problem) {
            tracing::warn!(
                lease = self.api.title(),
                "cannot take or renew the Lease: {problem}; retrying"
            );
        }
    }
}
