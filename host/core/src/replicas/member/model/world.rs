//! A world in which replicas take part in dividing the work: an API server with Leases and a plan, the replicas with
//! their fences, and writes that are on their way.
//!
//! A request is one event when the API server carries it out, and another when the replica gets the response. A write
//! is on its way until it is answered, for at most as long as the Lease by which it passed keeps others away.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use super::super::*;
use crate::replicas::lease::{LeaseCandidate, LeaseRecord, LeaseStep};
use crate::replicas::shards::{Division, HashRange, PlannedShard};

pub const TICK: Duration = Duration::from_secs(1);

const TIMES: LeaseTimes = LeaseTimes {
    duration: Duration::from_secs(3),
    renew_deadline: Duration::from_secs(2),
    retry_period: Duration::from_secs(1),
};

const SHARDS: usize = 2;

pub const NAMESPACES: [&str; 2] = ["a", "b"];

const CONTROLLER: &str = "plugin/controller";

/// A Lease in the API server.
#[derive(Clone, Debug)]
pub struct Lease(Arc<Stored>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Stored {
    revision: u32,
    record: LeaseRecord,
    state: ReplicaState,
}

impl PartialEq for Lease {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl Eq for Lease {}

impl Hash for Lease {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl StoredLease for Lease {
    fn record(&self) -> &LeaseRecord {
        &self.0.record
    }

    fn replica(&self) -> ReplicaState {
        self.0.state.clone()
    }
}

/// A revision for each change, and the Lease if it exists.
type Slot = (u32, Option<Lease>);

/// How often each disturbance may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Budget {
    pub joins: u8,
    pub leaves: u8,
    pub kills: u8,
    /// A process is stopped, as by SIGSTOP, until it is continued.
    pub stops: u8,
    /// Time passes while a request is on its way.
    pub stalls: u8,
    /// A request, or its response, is lost.
    pub losses: u8,
    /// A reconcile is started, which writes.
    pub jobs: u8,
    /// The connection of a write breaks.
    pub breaks: u8,
    /// The leader cuts the plan anew.
    pub cuts: u8,
    /// A controller's work is divided in another way.
    pub divisions: u8,
    /// Somebody deletes the plan, or a Lease, or edits it.
    pub plan_deletions: u8,
    pub plan_edits: u8,
    pub lease_deletions: u8,
    pub lease_edits: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    Tick,
    Join(usize),
    Leave(usize),
    Kill(usize),
    Stop(usize),
    Continue(usize),
    /// Begins a round, or gets the response to a request, and sends the next one.
    Act(usize),
    /// The API server carries out the request of a replica.
    Serve(usize),
    /// A request or its response is lost.
    Lose(usize),
    /// Starts a reconcile in a namespace.
    Start(usize, usize),
    /// A reconcile sends its write.
    Send(usize),
    Answer(usize),
    Break(usize),
    Cut,
    Divide,
    DeletePlan,
    EditPlan,
    DeleteLease(usize),
    EditLease(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Life {
    ToJoin,
    Running,
    Stopped,
    Gone,
}

/// The fence of a replica.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Fence {
    shards: BTreeMap<usize, (HashRanges, Duration)>,
    divisions: Arc<Divisions>,
    known_until: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Request {
    None,
    /// Sent, and not carried out.
    Sent(Action<Lease>),
    Answered(Answer),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Answer {
    List(BTreeMap<String, Lease>),
    Plan(Option<Arc<ShardPlan>>),
    Announced(Duration, Option<Lease>),
    Held(Vec<(usize, Duration, Lease)>),
    Given(Vec<(String, Lease)>),
    Deleted,
}

/// A process that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Node {
    life: Life,
    member: Member<Lease>,
    candidate: LeaseCandidate,
    leads_until: Duration,
    fence: Fence,
    request: Request,
    rests_until: Duration,
    /// Set if it is to end in order, and once it does so.
    leaves: bool,
    departs: bool,
    /// The plans by which others worked when it joined.
    found: BTreeMap<String, u64>,
}

/// A reconcile, or a write whose response nobody awaits any more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Job {
    node: usize,
    namespace: usize,
    sent: Option<Sent>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Sent {
    passage: Passage,
    begun: Duration,
    /// The deadline for the response.
    answered: Duration,
    /// The last renewal of the Lease by which it passed.
    renewed: Duration,
    abandoned: Option<Duration>,
}

impl Sent {
    /// The time from which it cannot take effect any more.
    fn ends(&self) -> Duration {
        let abandoned = self.abandoned.unwrap_or(Duration::MAX - TIMES.duration);
        abandoned.min(self.renewed) + TIMES.duration
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    pub now: Duration,
    leases: BTreeMap<String, Slot>,
    plan: Option<Arc<ShardPlan>>,
    nodes: Vec<Arc<Node>>,
    /// When each replica last renewed a Lease.
    renewals: BTreeMap<(usize, String), Duration>,
    jobs: Vec<Job>,
    pub budget: Budget,
    /// The division of the controller's work by the plugin that runs.
    division: Division,
    is_cut_due: bool,
    /// Leaves out the fence of shards.
    is_unfenced: bool,
    /// Rules that are broken.
    pub broken: Option<String>,
}

/// Cuts of the namespaces into shards.
fn cut(number: u64) -> Vec<PlannedShard> {
    let of_a = HashRanges::of_namespace("a");
    let others = HashRanges::all().without(&of_a);
    let ranges = match number % 3 {
        0 => [of_a, others],
        1 => [others, of_a],
        _ => [HashRanges::from(vec![HashRange::ALL]), HashRanges::default()],
    };
    ranges.map(|ranges| PlannedShard { ranges, load: 0 }).into()
}

fn identity(node: usize) -> String {
    format!("replica-{node}")
}

fn time(now: Duration) -> String {
    now.as_secs().to_string()
}

impl World {
    /// A world with so many replicas, of which the others may join later.
    pub fn new(nodes: usize) -> Self {
        let node = |node| {
            Arc::new(Node {
                life: Life::ToJoin,
                member: Member::new(identity(node), TIMES, SHARDS),
                candidate: LeaseCandidate::new(identity(node), TIMES),
                leads_until: Duration::ZERO,
                fence: Fence::default(),
                request: Request::None,
                rests_until: Duration::ZERO,
                leaves: false,
                departs: false,
                found: BTreeMap::new(),
            })
        };
        Self {
            now: Duration::from_secs(10),
            leases: BTreeMap::new(),
            plan: None,
            nodes: (0..nodes).map(node).collect(),
            renewals: BTreeMap::new(),
            jobs: Vec::new(),
            budget: Budget::default(),
            division: Division::Namespaces,
            is_cut_due: false,
            is_unfenced: false,
            broken: None,
        }
    }

    /// Leaves out a guard in all replicas.
    pub fn leave_out(&mut self, guard: Guard) {
        for node in &mut self.nodes {
            Arc::make_mut(node).member.without = Some(guard);
        }
    }

    /// Lets writes in shards pass the fence at any time.
    pub fn leave_out_fence(&mut self) {
        self.is_unfenced = true;
    }

    pub fn join(&mut self, node: usize) {
        let found = self.leases.iter().filter_map(|(name, (_, lease))| {
            let lease = lease.as_ref().filter(|lease| !lease.record().holder.is_empty())?;
            (lease.0.state.plan > 0).then(|| (name.clone(), lease.0.state.plan))
        });
        let found = found.collect();
        let node = self.node(node);
        node.life = Life::Running;
        node.found = found;
    }

    fn node(&mut self, node: usize) -> &mut Node {
        Arc::make_mut(&mut self.nodes[node])
    }

    /// The events that may happen now.
    pub fn events(&self) -> Vec<Event> {
        let budget = &self.budget;
        let mut events = Vec::new();
        let mut is_busy = false;
        for (index, node) in self.nodes.iter().enumerate() {
            match node.life {
                Life::ToJoin if budget.joins > 0 => events.push(Event::Join(index)),
                Life::Stopped => {
                    events.push(Event::Continue(index));
                    events.extend(matches!(node.request, Request::Sent(_)).then_some(Event::Serve(index)));
                }
                Life::Running => {
                    match &node.request {
                        Request::None if node.rests_until <= self.now => events.push(Event::Act(index)),
                        Request::None => {}
                        Request::Sent(_) => events.push(Event::Serve(index)),
                        Request::Answered(_) => events.push(Event::Act(index)),
                    }
                    let is_active = node.request != Request::None;
                    is_busy |= is_active || node.rests_until <= self.now;
                    if is_active && budget.losses > 0 {
                        events.push(Event::Lose(index));
                    }
                    let disturbances = [
                        (budget.leaves > 0 && !node.leaves, Event::Leave(index)),
                        (budget.kills > 0, Event::Kill(index)),
                        (budget.stops > 0, Event::Stop(index)),
                    ];
                    events.extend(disturbances.iter().filter(|(may, _)| *may).map(|(_, event)| *event));
                    if budget.jobs > 0 {
                        let owned = (0..NAMESPACES.len()).filter(|namespace| self.owns(node, *namespace));
                        events.extend(owned.map(|namespace| Event::Start(index, namespace)));
                    }
                }
                Life::ToJoin | Life::Gone => {}
            }
        }
        for (index, job) in self.jobs.iter().enumerate() {
            match &job.sent {
                None if self.nodes[job.node].life == Life::Running => events.push(Event::Send(index)),
                Some(sent) if sent.abandoned.is_none() && self.nodes[job.node].life == Life::Running => {
                    events.push(Event::Answer(index));
                    if budget.breaks > 0 {
                        events.push(Event::Break(index));
                    }
                }
                _ => {}
            }
        }
        if !is_busy || budget.stalls > 0 {
            events.push(Event::Tick);
        }
        let leads = self
            .nodes
            .iter()
            .any(|node| node.life == Life::Running && self.now < node.leads_until);
        let others = [
            (budget.cuts > 0 && leads, Event::Cut),
            (budget.divisions > 0 && leads, Event::Divide),
            (budget.plan_deletions > 0 && self.plan.is_some(), Event::DeletePlan),
            (budget.plan_edits > 0 && self.plan.is_some(), Event::EditPlan),
        ];
        events.extend(others.iter().filter(|(may, _)| *may).map(|(_, event)| *event));
        for (index, (name, (_, lease))) in self.leases.iter().enumerate() {
            // A replica that has never seen a Lease that is deleted takes it at once; docs/replicas.md says so.
            let is_known = |node: &Arc<Node>| match node.life {
                Life::Running | Life::Stopped if name.is_empty() => node.candidate.unchanged_for(self.now).is_some(),
                Life::Running | Life::Stopped => node.member.peers().live(name).is_some(),
                Life::ToJoin => budget.joins == 0,
                Life::Gone => true,
            };
            if lease.is_some() && self.nodes.iter().all(is_known) {
                events.extend((budget.lease_deletions > 0).then_some(Event::DeleteLease(index)));
                events.extend((budget.lease_edits > 0).then_some(Event::EditLease(index)));
            }
        }
        events
    }

    pub fn apply(&mut self, event: Event) {
        match event {
            Event::Tick => {
                let is_busy = |node: &Arc<Node>| {
                    node.life == Life::Running && (node.request != Request::None || node.rests_until <= self.now)
                };
                self.budget.stalls -= u8::from(self.nodes.iter().any(is_busy));
                self.now += TICK;
                self.forget_ended();
                for node in 0..self.nodes.len() {
                    if self.nodes[node].life == Life::Running {
                        self.watch_time(node);
                    }
                }
            }
            Event::Join(node) => {
                self.budget.joins -= 1;
                self.join(node);
            }
            Event::Leave(node) => {
                self.budget.leaves -= 1;
                // It begins no more reconciles, and waits for those that run.
                let has_ended = |job: &Job| job.node != node || job.sent.is_some();
                self.jobs.retain(has_ended);
                let node = self.node(node);
                node.leaves = true;
                // A request in flight may take effect, and then has to be undone.
                if node.request == Request::None {
                    node.rests_until = Duration::ZERO;
                }
            }
            Event::Kill(node) => {
                self.budget.kills -= 1;
                self.end(node);
            }
            Event::Stop(node) => {
                self.budget.stops -= 1;
                self.node(node).life = Life::Stopped;
            }
            Event::Continue(node) => {
                self.node(node).life = Life::Running;
                self.watch_time(node);
            }
            Event::Act(node) => self.act(node),
            Event::Serve(node) => self.serve(node),
            Event::Lose(node) => {
                self.budget.losses -= 1;
                self.lose(node);
            }
            Event::Start(node, namespace) => {
                self.budget.jobs -= 1;
                let sent = None;
                self.jobs.push(Job { node, namespace, sent });
            }
            Event::Send(job) => self.send(job),
            Event::Answer(job) => drop(self.jobs.remove(job)),
            Event::Break(job) => {
                self.budget.breaks -= 1;
                let now = self.now;
                if let Some(sent) = &mut self.jobs[job].sent {
                    sent.abandoned = Some(now);
                }
            }
            Event::Cut => {
                self.budget.cuts -= 1;
                self.is_cut_due = true;
            }
            Event::Divide => {
                self.budget.divisions -= 1;
                self.division = match self.division {
                    Division::Namespaces => Division::Leader,
                    Division::Leader => Division::Namespaces,
                };
            }
            Event::DeletePlan => {
                self.budget.plan_deletions -= 1;
                self.plan = None;
            }
            Event::EditPlan => {
                self.budget.plan_edits -= 1;
                if let Some(plan) = &self.plan {
                    let shards = if plan.shards == cut(0) { cut(1) } else { cut(0) };
                    let plan = ShardPlan::clone(plan);
                    self.plan = Some(Arc::new(ShardPlan { shards, ..plan }));
                }
            }
            Event::DeleteLease(index) | Event::EditLease(index) => {
                let name = self.leases.keys().nth(index).cloned().unwrap_or_default();
                let lease = self.leases[&name].1.clone();
                let edited = lease
                    .filter(|_| event == Event::EditLease(index))
                    .map(|lease| LeaseRecord {
                        holder: "somebody".to_owned(),
                        ..lease.record().clone()
                    });
                match edited {
                    Some(record) => {
                        self.budget.lease_edits -= 1;
                        let state = self.leases[&name].1.as_ref().map(|lease| lease.0.state.clone());
                        self.store(&name, record, state.unwrap_or_default());
                    }
                    None => {
                        self.budget.lease_deletions -= 1;
                        self.leases.entry(name).and_modify(|slot| slot.1 = None);
                    }
                }
            }
        }
    }

    fn end(&mut self, node: usize) {
        self.jobs.retain(|job| job.node != node || job.sent.is_some());
        let node = self.node(node);
        node.life = Life::Gone;
        node.request = Request::None;
    }

    /// Drops writes that cannot take effect any more and are not waited for.
    fn forget_ended(&mut self) {
        let (now, nodes) = (self.now, &self.nodes);
        self.jobs.retain(|job| {
            let Some(sent) = &job.sent else { return true };
            match nodes[job.node].life {
                Life::Gone => now < sent.ends(),
                // The replica itself counts from when it has abandoned the write.
                _ => sent.abandoned.is_none_or(|abandoned| now < abandoned + TIMES.duration),
            }
        });
    }

    /// Lets a replica see which of its deadlines have passed.
    fn watch_time(&mut self, index: usize) {
        let now = self.now;
        for job in &mut self.jobs {
            if let Some(sent) = job.sent.as_mut().filter(|_| job.node == index)
                && sent.abandoned.is_none()
                && now >= sent.answered
            {
                sent.abandoned = Some(now);
            }
        }
        let node = self.node(index);
        if node.member.expiry().is_some_and(|expiry| expiry <= now) && !node.departs {
            let lost = node.member.expire(now);
            node.set_fence(&lost, now);
            node.request = Request::None;
            node.rests_until = now;
        }
    }

    /// Loses a request or its response: without the plan the round goes on, otherwise it fails.
    pub fn lose(&mut self, index: usize) {
        match self.nodes[index].request {
            Request::Sent(Action::ReadPlan) | Request::Answered(Answer::Plan(_)) => {
                self.node(index).request = Request::Answered(Answer::Plan(None));
            }
            _ => self.fail(index),
        }
    }

    /// The round fails.
    fn fail(&mut self, index: usize) {
        let now = self.now;
        let node = self.node(index);
        node.request = Request::None;
        node.rests_until = now + TICK;
        if node.departs {
            self.end(index);
        }
    }

    fn owns(&self, node: &Node, namespace: usize) -> bool {
        match node.member.divisions().get(CONTROLLER) {
            Some(Division::Namespaces) => node.member.ranges().has(NAMESPACES[namespace]),
            Some(Division::Leader) => self.now < node.leads_until,
            None => false,
        }
    }

    /// The Lease by which a write of a replica passes its fence.
    fn passage(&self, node: &Node, namespace: usize) -> Option<Passage> {
        if self.now >= node.fence.known_until {
            return None;
        }
        match node.fence.divisions.get(CONTROLLER)? {
            Division::Namespaces => {
                let shards = node.fence.shards.iter();
                let mut shards = shards.filter(|(_, (ranges, _))| ranges.has(NAMESPACES[namespace]));
                let (shard, (_, until)) = shards.next()?;
                (self.now < *until).then_some(Passage::Shard(*shard))
            }
            Division::Leader => (self.now < node.leads_until).then_some(Passage::Leader),
        }
    }

    /// Returns the replicas that may write in a namespace now.
    pub fn writers(&self, namespace: usize) -> Vec<usize> {
        let may = |(index, node): (usize, &Arc<Node>)| {
            let lives = matches!(node.life, Life::Running | Life::Stopped);
            let passes = lives && self.passage(node, namespace).is_some();
            let mut jobs = self.jobs.iter();
            let is_late = jobs.any(|job| {
                let is_of = job.node == index && job.namespace == namespace;
                is_of && job.sent.as_ref().is_some_and(|sent| self.now < sent.ends())
            });
            (passes || is_late).then_some(index)
        };
        self.nodes.iter().enumerate().filter_map(may).collect()
    }

    fn send(&mut self, job: usize) {
        let Job { node, namespace, .. } = self.jobs[job];
        let now = self.now;
        let (passage, renewed) = match self.passage(&self.nodes[node], namespace) {
            Some(passage) => (passage, self.renewals.get(&(node, lease_of(passage))).copied()),
            None if self.is_unfenced => (Passage::Shard(0), None),
            None => {
                self.jobs.remove(job);
                return;
            }
        };
        self.jobs[job].sent = Some(Sent {
            passage,
            begun: now,
            answered: now + TIMES.duration,
            renewed: renewed.unwrap_or(now),
            abandoned: None,
        });
    }

    fn unsettled(&self, node: usize) -> Vec<(Passage, Duration)> {
        let sent = self.jobs.iter().filter(|job| job.node == node);
        let sent = sent.filter_map(|job| job.sent.as_ref());
        sent.map(|sent| (sent.passage, sent.begun)).collect()
    }

    fn store(&mut self, name: &str, record: LeaseRecord, state: ReplicaState) -> Lease {
        let slot = self.leases.entry(name.to_owned()).or_default();
        let revision = slot.0 + 1;
        let lease = Lease(Arc::new(Stored {
            revision,
            record,
            state,
        }));
        *slot = (revision, Some(lease.clone()));
        lease
    }

    /// Writes a Lease if it is unchanged. Its holder is known to live.
    fn write(&mut self, node: usize, write: &LeaseWrite<Lease>, state: Option<&ReplicaState>) -> Option<Lease> {
        let stored = self.leases.get(&write.name).and_then(|slot| slot.1.clone());
        if stored.as_ref().map(|lease| lease.0.revision) != write.live.as_ref().map(|lease| lease.0.revision) {
            return None;
        }
        let state = state.cloned().or(stored.map(|lease| lease.0.state.clone()));
        let lease = self.store(&write.name, write.record.clone(), state.unwrap_or_default());
        self.renew(node, &write.name);
        Some(lease)
    }

    fn renew(&mut self, node: usize, name: &str) {
        let now = self.now;
        self.renewals.insert((node, name.to_owned()), now);
        let sent = self.jobs.iter_mut().filter(|job| job.node == node);
        for sent in sent.filter_map(|job| job.sent.as_mut()) {
            if lease_of(sent.passage) == name && now < sent.ends() {
                sent.renewed = now;
            }
        }
    }

    /// Takes or renews the leader's Lease.
    fn lead(&mut self, index: usize) {
        let now = self.now;
        let live = self.leases.get("").and_then(|slot| slot.1.clone());
        let live = live.as_ref().map(StoredLease::record);
        match self.node(index).candidate.next(live, now, &time(now)) {
            LeaseStep::Wait(_) => self.node(index).leads_until = Duration::ZERO,
            LeaseStep::Write(record) => {
                self.store("", record.clone(), ReplicaState::default());
                self.renew(index, "");
                let node = self.node(index);
                node.candidate.observe(Some(&record), now);
                node.leads_until = now + TIMES.renew_deadline;
            }
        }
    }

    /// Begins a round or gets a response, and goes on until the next request.
    fn act(&mut self, index: usize) {
        let now = self.now;
        let answer = std::mem::replace(&mut self.node(index).request, Request::None);
        match answer {
            Request::Answered(answer) => self.node(index).receive(answer, now),
            _ if self.nodes[index].leaves => {
                self.node(index).departs = true;
                self.node(index).member.leave();
            }
            _ => {
                self.lead(index);
                self.node(index).member.begin();
            }
        }
        loop {
            let unsettled = self.unsettled(index);
            let divisions = Divisions::from([(CONTROLLER.to_owned(), self.division)]);
            let view = View {
                leads: now < self.nodes[index].leads_until,
                is_held_back: false,
                divisions: &divisions,
                unsettled: &unsettled,
                time: &time(now),
            };
            match self.node(index).member.step(&view, now) {
                Action::Drain(_) => {
                    let node = &self.nodes[index];
                    let jobs = self.jobs.iter().filter(|job| job.node == index);
                    let mut running = jobs.filter(|job| job.sent.as_ref().is_none_or(|sent| sent.abandoned.is_none()));
                    let is_drained = running.all(|job| self.owns(node, job.namespace));
                    self.node(index).member.wait(is_drained);
                }
                Action::Fence { closed, .. } => self.node(index).set_fence(&closed, now),
                Action::Forget(_) => self.node(index).member.wait(true),
                Action::Write { writes, lost } => {
                    for (shard, _) in &lost {
                        self.node(index).fence.shards.remove(shard);
                    }
                    self.node(index).request = Request::Sent(Action::Write { writes, lost });
                    return;
                }
                Action::KeptOut => return self.fail(index),
                Action::End(_) if self.nodes[index].departs => {
                    self.release_leadership(index);
                    return self.end(index);
                }
                Action::End(_) => {
                    let node = self.node(index);
                    node.rests_until = if node.leaves { now } else { now + TICK };
                    return;
                }
                action => {
                    self.node(index).request = Request::Sent(action);
                    return;
                }
            }
        }
    }

    fn release_leadership(&mut self, index: usize) {
        let is_settled = self
            .unsettled(index)
            .iter()
            .all(|(passage, _)| *passage != Passage::Leader);
        let live = self.leases.get("").and_then(|slot| slot.1.clone());
        if let Some(live) = live.filter(|live| is_settled && live.record().holder == identity(index)) {
            self.store("", live.record().given_back(&time(self.now)), ReplicaState::default());
        }
    }

    /// Carries out the request of a replica.
    fn serve(&mut self, index: usize) {
        let now = self.now;
        let Request::Sent(request) = std::mem::replace(&mut self.node(index).request, Request::None) else {
            return;
        };
        let answer = match request {
            Action::List => {
                let leases = self.leases.iter();
                let leases = leases.filter_map(|(name, (_, lease))| Some((name.clone(), lease.clone()?)));
                Answer::List(leases.collect())
            }
            Action::ReadPlan if now < self.nodes[index].leads_until => Answer::Plan(Some(self.keep_plan(index))),
            Action::ReadPlan => Answer::Plan(self.plan.clone()),
            Action::Announce(write, state) => Answer::Announced(write.sent, self.write(index, &write, Some(&state))),
            Action::Write { writes, .. } => {
                let written = writes.into_iter().filter_map(|(shard, write)| {
                    let lease = self.write(index, &write, None)?;
                    Some((shard, write.sent, lease))
                });
                Answer::Held(written.collect())
            }
            Action::Release { leases, .. } => {
                let given = leases.into_iter().filter_map(|(name, live)| {
                    let stored = self.leases.get(&name)?.1.clone()?;
                    let is_held = stored.record().holder == live.record().holder;
                    let record = stored.record().given_back(&time(now));
                    is_held.then(|| (name.clone(), self.store(&name, record, stored.0.state.clone())))
                });
                Answer::Given(given.collect())
            }
            Action::Delete(leases) => {
                for (name, live) in leases {
                    let slot = self.leases.entry(name).or_default();
                    if slot.1.as_ref() == Some(&live) {
                        slot.1 = None;
                    }
                }
                Answer::Deleted
            }
            _ => return,
        };
        self.node(index).request = Request::Answered(answer);
    }

    /// Keeps the plan up to date as the leader.
    fn keep_plan(&mut self, index: usize) -> Arc<ShardPlan> {
        let known = self.nodes[index].member.known(self.now);
        let controllers = Divisions::from([(CONTROLLER.to_owned(), self.division)]);
        let kept = self.plan.clone().filter(|plan| known.keeps(plan));
        let next = match kept {
            Some(kept) if !self.is_cut_due && kept.controllers == controllers => return kept,
            Some(kept) => {
                let version = kept.version + 1;
                let shards = if self.is_cut_due {
                    cut(version)
                } else {
                    kept.shards.clone()
                };
                self.is_cut_due = false;
                ShardPlan {
                    version,
                    shards,
                    controllers,
                }
            }
            None => ShardPlan {
                version: self.plan.as_ref().map_or(0, |plan| plan.version).max(known.version) + 1,
                shards: known
                    .works_by
                    .as_ref()
                    .map_or_else(|| cut(0), |plan| plan.shards.clone()),
                controllers,
            },
        };
        let is_held = |name: &str| {
            let lease = self.leases.get(name).and_then(|slot| slot.1.as_ref());
            lease.is_some_and(|lease| !lease.record().holder.is_empty())
        };
        let mut found = self.nodes[index].found.iter();
        if let Some((name, version)) = found.find(|(name, version)| **version >= next.version && is_held(name)) {
            self.broken = Some(format!(
                "the leader writes version {}, and {name} works by {version}",
                next.version
            ));
        }
        let next = Arc::new(next);
        self.plan = Some(next.clone());
        next
    }

    /// Ends all disturbances.
    pub fn calm(&mut self) {
        self.budget = Budget::default();
        for node in 0..self.nodes.len() {
            if self.nodes[node].life == Life::Stopped {
                self.apply(Event::Continue(node));
            }
        }
        self.jobs.retain(|job| job.sent.is_some());
    }

    /// Reports whether a replica runs that is not to end.
    pub fn has_replica(&self) -> bool {
        self.nodes.iter().any(|node| node.life == Life::Running && !node.leaves)
    }

    /// The rule that is broken, if one is.
    pub fn fault(&self) -> Option<String> {
        let several = |namespace: &usize| self.writers(*namespace).len() > 1;
        let several = (0..NAMESPACES.len()).find(several);
        let several = several.map(|namespace| {
            let writers = self.writers(namespace);
            format!(
                "the replicas {writers:?} may write in namespace {}",
                NAMESPACES[namespace]
            )
        });
        several.or(self.broken.clone())
    }
}

impl Node {
    fn set_fence(&mut self, closed: &[usize], now: Duration) {
        let (divisions, known_until) = self.member.fenced();
        self.fence.divisions = divisions.clone();
        self.fence.known_until = known_until.unwrap_or(Duration::ZERO);
        for shard in closed {
            self.fence.shards.remove(shard);
        }
        self.member.fence_is_set(now);
    }

    fn receive(&mut self, answer: Answer, now: Duration) {
        match answer {
            Answer::List(leases) => self.member.list(leases, now),
            Answer::Plan(plan) => self.member.read(plan),
            Answer::Announced(sent, lease) => {
                if let Some(lease) = lease {
                    self.member.announce(sent, lease, now);
                }
            }
            Answer::Held(held) => {
                for (shard, sent, lease) in held {
                    self.member.hold(shard, sent, lease, now);
                    if let Some(held) = self.member.held().get(&shard).filter(|held| !held.is_closed) {
                        self.fence.shards.insert(shard, (held.ranges.clone(), held.until));
                    }
                }
            }
            Answer::Given(given) => {
                for (name, lease) in given {
                    self.member.give(&name, lease, now);
                }
            }
            Answer::Deleted => {}
        }
    }
}

fn lease_of(passage: Passage) -> String {
    match passage {
        Passage::Leader => String::new(),
        Passage::Shard(shard) => shard_lease(shard),
    }
}
