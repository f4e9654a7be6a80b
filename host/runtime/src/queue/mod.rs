//! Owns what is to be reconciled when: a lane for each controller, fair over plugins and over tenants by time used, and
//! one object at a time.
//!
//! `backlog` is what one lane has to do, `ready_queue` in which order it comes, `share` what each plugin has used of the
//! workers, `hot_loop` how objects are slowed that would go on for ever, `writes` what a run wrote, `item` what is remembered of one
//! object, `types` what goes in and what comes out, `trigger` what people are told of why an object was queued.
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

/// Of this many workers one is kept for plugins of which none is at work, so that however many others are busy, a plugin
/// with little to do begins at once.
const KEPT_FREE: usize = 4;

/// The queue of all lanes.
#[derive(Debug)]
pub struct WorkQueue {
    lanes: HashMap<LaneId, QueueLane>,
    /// In the order in which plugins came. A plugin that goes and comes back finds its own again.
    shares: Vec<PluginShare>,
    capacity: Capacity,
    /// What this replica works at. Nothing else is queued.
    owned: OwnedWork,
    running: usize,
    /// What the plugin that was served last had used by then: who comes back from having nothing to do begins here.
    level: Duration,
    /// Whether something has become ready since [`WorkQueue::take_ready_signal`] said so last.
    ready_signal: bool,
}

#[derive(Debug, Default)]
struct QueueLane {
    backlog: Backlog,
    open: bool,
    /// `plugin/controller`, from the first time that it is open.
    title: String,
    /// The namespaces of which the cache has all that the lane needs; none: all.
    covered: Option<HashRanges>,
    /// The index of its plugin's share, from the first time that it is open.
    share: Option<usize>,
    /// Jobs that wait for what others do, and keep no worker meanwhile.
    parked: usize,
}

impl QueueLane {
    /// Whether this replica works at an object: it is its own, and the cache has all that is needed for it.
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

    /// Lets a lane of a plugin run, which runs so many objects at once as it says itself, if it does.
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

    /// From here on this replica works at this, and forgets all that is queued of anything else. What runs, runs to its end.
    pub fn own(&mut self, owned: OwnedWork) {
        self.owned = owned;
        for lane in self.lanes.values_mut() {
            lane.retain(&self.owned);
        }
    }

    /// The cache has all that a lane needs in these namespaces, or, without any, everywhere. What is queued of others is
    /// forgotten.
    pub fn cover(&mut self, lane: LaneId, covered: Option<HashRanges>) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.covered = covered;
            lane.retain(&self.owned);
        }
    }

    /// The namespaces of which the cache has all that a lane needs; none: all.
    pub fn covered(&self, lane: LaneId) -> Option<&HashRanges> {
        self.lanes.get(&lane)?.covered.as_ref()
    }

    /// Whether this replica works at an object of a lane.
    pub fn works_at(&self, lane: LaneId, name: &Name) -> bool {
        self.lanes
            .get(&lane)
            .is_some_and(|lane| lane.works_at(&self.owned, name))
    }

    /// What this replica works at.
    pub fn owned(&self) -> &OwnedWork {
        &self.owned
    }

    /// Whether something runs that is not this replica's work any more.
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

    /// Hands out nothing of these tenants of a plugin before this time. What runs, runs to its end.
    pub fn pause(&mut self, plugin: &str, tenants: HashSet<Tenant>, until: Instant) {
        if let Some(share) = self.shares.iter_mut().find(|share| *share.plugin == *plugin) {
            share.pause(tenants, until);
        }
    }

    /// Hands out objects of all tenants of a plugin again.
    pub fn resume(&mut self, plugin: &str) {
        if let Some(share) = self.shares.iter_mut().find(|share| *share.plugin == *plugin) {
            share.resume();
            self.ready_signal = true;
        }
    }

    /// Forgets a lane of which nothing runs, and all that was to be done for it.
    pub fn remove(&mut self, lane: LaneId) {
        self.lanes.remove(&lane);
    }

    /// Whether a lane runs.
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

    /// The same where it is known whose doing it is.
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

    /// The wall clock has jumped: whoever waits for a time of day is asked again.
    pub fn clock_jumped(&mut self, now: Instant) {
        for lane in self.lanes.values_mut() {
            self.ready_signal |= lane.backlog.clock_jumped(now);
        }
    }

    /// Whether anybody waits for a time of day.
    pub fn waits_for_clock(&self) -> bool {
        self.lanes.values().any(|lane| lane.backlog.waits_for_clock())
    }

    /// The next object: of the plugin that has used the least time, of its lane that has used the least, of the tenant
    /// there that has used the least.
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
            // Nothing comes where all that was ready is slowed, or of tenants that are held back.
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

    /// Whether something has become ready since this was asked last, so that it is worth looking what is next.
    pub fn take_ready_signal(&mut self) -> bool {
        std::mem::take(&mut self.ready_signal)
    }

    /// When something is due that only waits for its time.
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

    /// A job is over. What is to be remembered of it.
    pub fn done(&mut self, job: &Job, ended: &JobResult, now: Instant) -> Option<EndedRun> {
        self.running = self.running.saturating_sub(1);
        let lane = self.lanes.get_mut(&job.lane)?;
        let run = lane.backlog.end(&job.name, ended, now);
        if let Some(share) = lane.share {
            self.shares[share].end(&Tenant::of(&job.name), run.took);
        }
        Some(run)
    }

    /// A job waits for what others do: another may run in its place.
    pub fn park(&mut self, lane: LaneId, name: &Name) {
        self.running = self.running.saturating_sub(1);
        let lane = self.lanes.entry(lane).or_default();
        lane.parked += 1;
        lane.backlog.park(name);
        if let Some(share) = lane.share {
            self.shares[share].leave(&Tenant::of(name));
        }
    }

    /// A job that waited so long is to end. The wait is not held against its plugin.
    pub fn unpark(&mut self, lane: LaneId, name: &Name, waited: Duration) {
        self.running += 1;
        let lane = self.lanes.entry(lane).or_default();
        lane.parked = lane.parked.saturating_sub(1);
        lane.backlog.unpark(name, waited);
        if let Some(share) = lane.share {
            self.shares[share].begin(Tenant::of(name));
        }
    }

    /// Whether a lane has something to run, or something that runs without waiting for others.
    pub fn is_busy(&self, lane: LaneId) -> bool {
        let lane = self.lanes.get(&lane);
        lane.is_some_and(|lane| lane.backlog.has_ready() || lane.backlog.running() > lane.parked)
    }

    /// The object wrote something that the cache has not seen: it does not run until it has.
    pub fn hold(&mut self, lane: LaneId, name: &Name) {
        self.lanes.entry(lane).or_default().backlog.hold(name);
    }

    /// The cache has seen one of the object's writes.
    pub fn release(&mut self, lane: LaneId, name: &Name) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            self.ready_signal |= lane.backlog.release(name);
        }
    }

    /// The objects that are held, and how often.
    pub fn held(&self) -> impl Iterator<Item = (LaneId, &Name, u32)> {
        let lanes = self.lanes.iter();
        lanes.flat_map(|(id, lane)| lane.backlog.held().map(|(name, held)| (*id, name, held)))
    }

    /// The object is gone: nothing of it is due any more. What runs, runs to its end.
    pub fn forget(&mut self, lane: LaneId, name: &Name) {
        if let Some(lane) = self.lanes.get_mut(&lane) {
            lane.backlog.forget(name);
        }
    }

    /// What a lane holds.
    pub fn depth(&self, lane: LaneId, now: Instant) -> Depth {
        self.lanes
            .get(&lane)
            .map(|lane| lane.backlog.depth(now))
            .unwrap_or_default()
    }

    /// What is known of an object.
    pub fn look(&self, lane: LaneId, name: &Name) -> QueuedObject {
        let lane = self.lanes.get(&lane);
        lane.map(|lane| lane.backlog.look(name)).unwrap_or_default()
    }

    /// Whether nothing is to be done before a time comes or something changes.
    pub fn is_idle(&self) -> bool {
        self.lanes.values().all(|lane| lane.backlog.is_idle())
    }

    /// How many objects are queued or held.
    pub fn waiting(&self) -> usize {
        self.lanes.values().map(|lane| lane.backlog.waiting()).sum()
    }

    /// The open lanes with something ready whose plugins may run one more, with the indices of their plugins' shares, in
    /// the order in which they are next.
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
