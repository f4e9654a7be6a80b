//! Schedules reconciles: one lane per controller, fair over plugins and tenants by time used, one run per object at a
//! time.
//!
//! `backlog` holds the work of one lane, `ready_queue` orders it, `share` counts each plugin's use of the workers,
//! `hot_loop` slows objects that would be reconciled for ever, `writes` records the objects that a run wrote, `item`
//! holds one object, `types` are the queue's inputs and outputs, `trigger` names for people why an object was queued.
//! Nothing here waits or does I/O.
//!
//! An object is reconciled once at a time, and once more if it was requeued meanwhile. Which object of a lane is next:
//!
//! - **Class first:** an object's own changes, then objects that were made while no host ran, then changed dependencies, then resyncs,
//!   then retries. A class that was passed over eight times is next, so no class starves.
//! - **Tenant second:** within a class, the tenant that has used the least time is next. A tenant is a namespace, because Kubernetes grants
//!   rights by namespace; a cluster-scoped object is a tenant of its own. Time counts over all classes.
//!
//! A quarter of the workers is reserved for plugins that have none, and a quarter of each plugin's share for tenants that have none. Guests
//! run on blocking threads; requests and watches run on one thread.
//!
//! `hot_loop` slows an object of which ten runs have counted, each soon after the last, by up to 30 s, until it has been calm for 10 s more.
//! Then `contest` in [`crate::reconcile`] reports, with the reason `Contested`, which field managers overwrite which fields.

mod backlog;
mod hot_loop;
mod item;
mod ready_queue;
mod share;
#[cfg(test)]
mod tests;
mod trigger;
mod types;
mod writes;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::replicas::shards::{HashRanges, OwnedOf, OwnedWork};
use pilothouse_core::{Name, Tenant};
use tokio::time::Instant;

use self::backlog::{Backlog, TakenObject};
pub use self::hot_loop::HotLoop;
use self::share::PluginShare;
pub use self::trigger::{Trigger, TriggerReason};
pub use self::types::{
    Capacity, Cause, Depth, EndedRun, Job, JobResult, ObjectState, Priority, QueuedObject, ReconcileResult, RequeueAt,
};
pub use self::writes::{Writes, WrittenBody};
use crate::lanes::primary::LaneId;

/// One of this many workers is kept for plugins that have nothing running, so that a plugin with little work starts at
/// once however busy the others are.
const KEPT_FREE: usize = 4;

/// The queue of all lanes.
#[derive(Debug)]
pub struct WorkQueue {
    lanes: HashMap<LaneId, QueueLane>,
    /// Shares in order of the plugins' first appearance. A plugin that is removed and returns gets its share back.
    shares: Vec<PluginShare>,
    capacity: Capacity,
    /// Work of this replica. Nothing else is queued.
    owned: OwnedWork,
    running: usize,
    /// Virtual time of the most recently served plugin. A plugin that becomes active again starts here (start-time fair
    /// queueing).
    level: Duration,
    /// Set if an object has become ready since the last [`WorkQueue::take_ready_signal`].
    ready_signal: bool,
}

#[derive(Debug, Default)]
struct QueueLane {
    backlog: Backlog,
    open: bool,
    /// Name of the lane (`plugin/controller`), set when it first opens.
    title: String,
    /// Namespaces for which the cache holds all that the lane needs; `None`: all.
    covered: Option<HashRanges>,
    /// Index of its plugin's share, set when it first opens.
    share: Option<usize>,
    /// Jobs that wait for others and occupy no worker meanwhile.
    parked: usize,
}

impl QueueLane {
    /// Returns `true` if this replica reconciles an object: it owns it, and the cache holds what is needed.
    fn works_at(&self, owned: &OwnedWork, name: &Name) -> bool {
        works_at(&owned.of(&self.title), self.covered.as_ref(), name)
    }

    fn retain(&mut self, owned: &OwnedWork) {
        let Self {
            backlog,
            title,
            covered,
            ..
        } = self;
        let owned = owned.of(title);
        backlog.retain(|name| works_at(&owned, covered.as_ref(), name));
    }
}

fn works_at(owned: &OwnedOf<'_>, covered: Option<&HashRanges>, name: &Name) -> bool {
    let namespace = name.namespace.as_deref();
    owned.has(namespace) && covered.is_none_or(|covered| covered.has_object_in(namespace))
}

impl WorkQueue {
    /// An empty queue.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            lanes: HashMap::new(),
            shares: Vec::new(),
            capacity,
            owned: OwnedWork::All,
            running: 0,
            level: Duration::ZERO,
            ready_signal: false,
        }
    }

    /// Opens a lane. `concurrency` is the plugin's number of objects at once; `None`: the default.
    pub fn open(&mut self, lane: LaneId, plugin: &Arc<str>, title: String, concurrency: Option<usize>) {
        let at_most = concurrency.unwrap_or(self.capacity.per_plugin);
        let known = self.shares.iter().position(|share| share.plugin == *plugin);
        let share = known.unwrap_or_else(|| {
            self.shares.push(PluginShare::new(plugin.clone()));
            self.shares.len() - 1
        });
        self.shares[share].at_most = at_most;
        let lanes = self.lanes.values().filter(|lane| lane.share == Some(share));
        let level = lanes.map(|lane| lane.backlog.used).min().unwrap_or_default();
        let lane = self.lanes.entry(lane).or_default();
        lane.open = true;
        lane.title = title;
        lane.share = Some(share);
        lane.backlog.used = lane.backlog.used.max(level);
    }

    /// Sets the work of this replica, and forgets queued objects outside of it. Running jobs continue.
    pub fn own(&mut self, owned: OwnedWork) {
        self.owned = owned;
        for lane in self.lanes.values_mut() {
            lane.retain(&self.owned);
        }
    }

    /// Sets the namespaces for which the cache holds all that a lane needs; `None`: all. Queued objects outside of them
    /// are forgotten.
    pub fn cover(&mut self, lane: LaneId, covered: Option<HashRanges>) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.covered = covered;
            lane.retain(&self.owned);
        }
    }

    /// Namespaces for which the cache holds all that a lane needs; `None`: all.
    pub fn covered(&self, lane: LaneId) -> Option<&HashRanges> {
        self.lanes.get(&lane)?.covered.as_ref()
    }

    /// Returns `true` if this replica reconciles an object of a lane.
    pub fn works_at(&self, lane: LaneId, name: &Name) -> bool {
        self.lanes
            .get(&lane)
            .is_some_and(|lane| lane.works_at(&self.owned, name))
    }

    /// Work of this replica.
    pub fn owned(&self) -> &OwnedWork {
        &self.owned
    }

    /// Returns `true` if an object is running that no longer is this replica's work.
    pub fn runs_what_is_not_owned(&self) -> bool {
        let mut lanes = self.lanes.values();
        lanes.any(|lane| {
            lane.backlog
                .names_running()
                .any(|name| !lane.works_at(&self.owned, name))
        })
    }

    /// Stops starting jobs of a lane until it opens again. Running jobs continue.
    pub fn close(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.open = false;
        }
    }

    /// Starts no jobs of these tenants of a plugin before `until`. Running jobs continue.
    pub fn pause(&mut self, plugin: &str, tenants: HashSet<Tenant>, until: Instant) {
        if let Some(share) = self.shares.iter_mut().find(|share| *share.plugin == *plugin) {
            share.pause(tenants, until);
        }
    }

    /// Starts jobs of all tenants of a plugin again.
    pub fn resume(&mut self, plugin: &str) {
        if let Some(share) = self.shares.iter_mut().find(|share| *share.plugin == *plugin) {
            share.resume();
            self.ready_signal = true;
        }
    }

    /// Forgets a lane without running jobs, with all its work.
    pub fn remove(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
    }

    /// Returns `true` if a lane is open.
    pub fn is_open(&self, lane: LaneId) -> bool {
        self.lanes.get(&lane).is_some_and(|lane| lane.open)
    }

    /// Enqueues an object. An object that is queued already moves up if the new priority is higher.
    pub fn push(&mut self, lane: LaneId, name: &Name, priority: Priority, trigger: impl Into<Trigger>) {
        let cause = match priority {
            Priority::Change | Priority::New | Priority::Wake => Cause::Others,
            Priority::Resync | Priority::Retry => Cause::Ours,
        };
        self.push_for(lane, name, priority, cause, trigger);
    }

    /// Enqueues an object for a known cause.
    pub fn push_for(
        &mut self,
        lane: LaneId,
        name: &Name,
        priority: Priority,
        cause: Cause,
        trigger: impl Into<Trigger>,
    ) {
        let lane = self.lanes.entry(lane).or_default();
        if lane.works_at(&self.owned, name) {
            self.ready_signal |= lane.backlog.push(name, priority, cause, trigger.into(), Instant::now());
        }
    }

    /// Enqueues the failing objects of a lane, before their back-off ends.
    pub fn push_failing(&mut self, lane: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.ready_signal |= lane.backlog.push_failing(Instant::now());
        }
    }

    /// Requeues the objects that wait for a time of day, after the wall clock has jumped.
    pub fn clock_jumped(&mut self, now: Instant) {
        for lane in self.lanes.values_mut() {
            self.ready_signal |= lane.backlog.clock_jumped(now);
        }
    }

    /// Returns `true` if an object waits for a time of day.
    pub fn waits_for_clock(&self) -> bool {
        self.lanes.values().any(|lane| lane.backlog.waits_for_clock())
    }

    /// Takes the next object: of the plugin that has used the least time, of its least used lane, of its least used
    /// tenant.
    pub fn pop(&mut self, now: Instant) -> Option<Job> {
        for lane in self.lanes.values_mut() {
            lane.backlog.wake_due(now);
        }
        for share in &mut self.shares {
            share.end_pause(now);
        }
        for (id, share) in self.candidates() {
            let lane = self.lanes.get_mut(&id).expect("it was found among them");
            let share = &mut self.shares[share];
            // There is nothing to take if all ready objects are slowed or belong to tenants that are held back.
            let next = lane.backlog.take(now, |tenant| share.holds_back(tenant));
            let Some(TakenObject {
                name,
                failures,
                hot_loop,
                trigger,
                waited,
            }) = next
            else {
                continue;
            };
            self.level = self.level.max(share.claim());
            share.begin(Tenant::of(&name));
            self.running += 1;
            return Some(Job {
                lane: id,
                name,
                failures,
                hot_loop,
                trigger,
                waited,
            });
        }
        None
    }

    /// Returns `true` once after an object has become ready, so that the caller looks for the next job.
    pub fn take_ready_signal(&mut self) -> bool {
        std::mem::take(&mut self.ready_signal)
    }

    /// The earliest time at which a delayed object or a paused plugin is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.lanes
            .values()
            .filter(|lane| lane.open)
            .filter_map(|lane| {
                let paused = lane.share.and_then(|share| self.shares[share].paused_until());
                let paused = paused.filter(|_| lane.backlog.has_ready());
                [lane.backlog.next_due(), paused].into_iter().flatten().min()
            })
            .min()
    }

    /// Ends a job. Returns the record of its run.
    pub fn done(&mut self, job: &Job, ended: &JobResult, now: Instant) -> Option<EndedRun> {
        self.running = self.running.saturating_sub(1);
        let lane = self.lanes.get_mut(&job.lane)?;
        let run = lane.backlog.end(&job.name, ended, now);
        if let Some(share) = lane.share {
            self.shares[share].end(&Tenant::of(&job.name), run.took);
        }
        Some(run)
    }

    /// Parks a job that waits for others: another may run in its place.
    pub fn park(&mut self, lane: LaneId, name: &Name) {
        self.running = self.running.saturating_sub(1);
        let lane = self.lanes.entry(lane).or_default();
        lane.parked += 1;
        lane.backlog.park(name);
        if let Some(share) = lane.share {
            self.shares[share].leave(&Tenant::of(name));
        }
    }

    /// Resumes a parked job. Its wait does not count as its plugin's time.
    pub fn unpark(&mut self, lane: LaneId, name: &Name, waited: Duration) {
        self.running += 1;
        let lane = self.lanes.entry(lane).or_default();
        lane.parked = lane.parked.saturating_sub(1);
        lane.backlog.unpark(name, waited);
        if let Some(share) = lane.share {
            self.shares[share].begin(Tenant::of(name));
        }
    }

    /// Returns `true` if a lane has ready objects, or jobs that run without waiting for others.
    pub fn is_busy(&self, lane: LaneId) -> bool {
        let lane = self.lanes.get(&lane);
        lane.is_some_and(|lane| lane.backlog.has_ready() || lane.backlog.running() > lane.parked)
    }

    /// Holds the object back until the cache shows a write that it made.
    pub fn hold(&mut self, lane: LaneId, name: &Name) {
        self.lanes.entry(lane).or_default().backlog.hold(name);
    }

    /// Records that the cache shows one of the object's writes.
    pub fn release(&mut self, lane: LaneId, name: &Name) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.ready_signal |= lane.backlog.release(name);
        }
    }

    /// The held objects, each with the number of its unseen writes.
    pub fn held(&self) -> impl Iterator<Item = (LaneId, &Name, u32)> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|(id, lane)| lane.backlog.held().map(|(name, held)| (*id, name, held)))
    }

    /// Forgets a deleted object. A running job continues.
    pub fn forget(&mut self, lane: LaneId, name: &Name) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.backlog.forget(name);
        }
    }

    /// Depth of a lane's queue.
    pub fn depth(&self, lane: LaneId, now: Instant) -> Depth {
        self.lanes
            .get(&lane)
            .map(|lane| lane.backlog.depth(now))
            .unwrap_or_default()
    }

    /// State of an object in the queue.
    pub fn state_of(&self, lane: LaneId, name: &Name) -> QueuedObject {
        let lane = self.lanes.get(&lane);
        lane.map(|lane| lane.backlog.state_of(name)).unwrap_or_default()
    }

    /// Returns `true` if there is nothing to do before a time is due or a change arrives.
    pub fn is_idle(&self) -> bool {
        self.lanes.values().all(|lane| lane.backlog.is_idle())
    }

    /// Number of objects that are queued or held.
    pub fn waiting(&self) -> usize {
        self.lanes.values().map(|lane| lane.backlog.waiting()).sum()
    }

    /// Open lanes with ready objects whose plugins may run one more, each with the index of its plugin's share, in the
    /// order in which they are served.
    fn candidates(&mut self) -> Vec<(LaneId, usize)> {
        let Self {
            lanes,
            shares,
            capacity,
            running,
            level,
            owned: _,
            ready_signal: _,
        } = self;
        if *running >= capacity.workers {
            return Vec::new();
        }
        let ready = || {
            let ready = lanes.iter().filter(|(_, lane)| lane.open && lane.backlog.has_ready());
            ready.filter_map(|(id, lane)| Some((*id, lane, lane.share?)))
        };
        for share in shares.iter_mut() {
            share.has_ready = false;
        }
        for (_, _, share) in ready() {
            shares[share].has_ready = true;
        }
        for share in shares.iter_mut() {
            share.settle(*level);
        }
        let kept_free = *running + capacity.workers / KEPT_FREE >= capacity.workers;
        let mut candidates: Vec<_> = ready()
            .filter(|(_, _, share)| shares[*share].may_run(kept_free))
            .map(|(id, lane, share)| (shares[share].claim(), lane.backlog.used, id, share))
            .collect();
        candidates.sort_unstable();
        candidates.into_iter().map(|(_, _, id, share)| (id, share)).collect()
    }
}
