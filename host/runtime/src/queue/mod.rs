//! Owns what is to be reconciled when: a lane for each controller, fair over plugins and over tenants by time used, and
//! one object at a time.
//!
//! `backlog` is what one lane has to do, `order` in which order it comes, `share` what each plugin has used of the
//! workers, `brake` how objects are slowed that would go on for ever. Nothing here waits or does I/O.

mod backlog;
mod brake;
mod order;
mod share;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::{Failure, Name, Tenant};
use tokio::time::Instant;

use self::backlog::Backlog;
pub use self::brake::Storm;
use self::share::Share;
use crate::lane::LaneId;

/// Of this many workers one is kept for plugins of which none is at work, so that however many others are busy, a plugin
/// with little to do begins at once.
const KEPT_FREE: usize = 4;

/// How urgent an object in the queue is; the first has precedence, and none waits behind the others for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// It has changed, or one of its children has.
    Change,
    /// It was made while nobody watched: nothing has been told of it yet.
    New,
    /// Something that it has read has changed. One such change may concern thousands of objects, and a new object does
    /// not wait behind them.
    Wake,
    /// Nothing is known to have changed: a start, a resync, a requeue.
    Resync,
    /// It failed before.
    Retry,
}

/// Whose doing it is that an object is asked for. Of several, the last counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Somebody else than the host made or edited it.
    Edit,
    /// Somebody else than the host has changed what it depends on, or one of its children.
    Others,
    /// A write of the host, of whichever object, or nothing but time.
    Ours,
}

/// A time at which an object runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Again {
    /// The time.
    pub at: Instant,
    /// Whether it was reckoned from the wall clock, so that it is another when that jumps.
    pub by_clock: bool,
}

impl Again {
    /// At this time, whatever the wall clock says.
    pub fn at(at: Instant) -> Self {
        Self { at, by_clock: false }
    }
}

/// What became of a reconcile, as far as the queue is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It succeeded; run again at this time at the latest.
    Done { again: Option<Again> },
    /// It failed; time may help. The cluster may have asked for a longer wait than the back-off's: before that is over, a
    /// change does not make it run either, and an edit not before a shorter one.
    Retry { at_least: Duration, edited: Duration },
    /// It failed; only a change can help. Time may be one of the things that change.
    AwaitChange { again: Option<Again> },
    /// There is nothing to reconcile any more.
    Gone,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// What became of it.
    pub verdict: Verdict,
    /// The guest's time. Where clocks are paused, nothing else shows what a job has cost.
    pub used: Duration,
    /// Whether an object was written; the primary's own status apart.
    pub wrote: bool,
    /// Whether the primary's status was written, for a reason that is not the storm itself.
    pub reported: bool,
    /// Why it failed, for the plugin's account; the queue goes by the verdict.
    pub failure: Option<Failure>,
    /// Who fights over what, if the object is in a storm and that was found out.
    pub story: Option<Arc<Failure>>,
}

impl Ended {
    /// Nothing was done, and there is nothing to tell.
    pub fn idly(verdict: Verdict) -> Self {
        Self {
            verdict,
            used: Duration::ZERO,
            wrote: false,
            reported: false,
            failure: None,
            story: None,
        }
    }
}

/// An object that is to be reconciled now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
    /// Failures in a row before this one.
    pub failures: u32,
    /// Whether it has written so often that it is slowed.
    pub storm: Option<Storm>,
}

/// What a lane holds, for status and metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Depth {
    /// Ready to run.
    pub ready: usize,
    /// Running now.
    pub running: usize,
    /// Waiting for a time.
    pub delayed: usize,
    /// Waiting for the cache to see their own writes.
    pub unseen: usize,
    /// Failed, and waiting for a time or a change.
    pub failing: usize,
    /// How long the oldest of those that are ready has been so.
    pub oldest: Duration,
}

/// How many objects are reconciled at once.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Over all plugins.
    pub workers: usize,
    /// Of one plugin, unless it has a limit of its own.
    pub per_plugin: usize,
}

/// The queue of all lanes.
#[derive(Debug)]
pub struct Queue {
    lanes: HashMap<LaneId, Lane>,
    /// In the order in which plugins came. A plugin that goes and comes back finds its own again.
    shares: Vec<Share>,
    capacity: Capacity,
    running: usize,
    /// What the plugin that was served last had used by then: who comes back from having nothing to do begins here.
    level: Duration,
    /// Whether something has become ready since [`Queue::take_stirred`] said so last.
    stirred: bool,
}

#[derive(Debug, Default)]
struct Lane {
    backlog: Backlog,
    open: bool,
    /// The index of its plugin's share, from the first time that it is open.
    share: Option<usize>,
    /// Jobs that wait for what others do, and keep no worker meanwhile.
    parked: usize,
}

impl Queue {
    /// An empty queue.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            lanes: HashMap::new(),
            shares: Vec::new(),
            capacity,
            running: 0,
            level: Duration::ZERO,
            stirred: false,
        }
    }

    /// Lets a lane of a plugin run, which runs so many objects at once as it says itself, if it does.
    pub fn open(&mut self, lane: LaneId, plugin: &Arc<str>, concurrency: Option<usize>) {
        let at_most = concurrency.unwrap_or(self.capacity.per_plugin);
        let known = self.shares.iter().position(|share| share.plugin == *plugin);
        let share = known.unwrap_or_else(|| {
            self.shares.push(Share::new(plugin.clone()));
            self.shares.len() - 1
        });
        self.shares[share].at_most = at_most;
        let lanes = self.lanes.values().filter(|lane| lane.share == Some(share));
        let level = lanes.map(|lane| lane.backlog.used).min().unwrap_or_default();
        let lane = self.lanes.entry(lane).or_default();
        lane.open = true;
        lane.share = Some(share);
        lane.backlog.used = lane.backlog.used.max(level);
    }

    /// Hands out nothing of a lane any more until it opens again. What runs, runs to its end.
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
            self.stirred = true;
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

    /// Asks for a reconcile. What is queued already moves up if this is more urgent.
    pub fn push(&mut self, lane: LaneId, name: &Name, priority: Priority) {
        let cause = match priority {
            Priority::Change | Priority::New | Priority::Wake => Cause::Others,
            Priority::Resync | Priority::Retry => Cause::Ours,
        };
        self.push_for(lane, name, priority, cause);
    }

    /// The same where it is known whose doing it is.
    pub fn push_for(&mut self, lane: LaneId, name: &Name, priority: Priority, cause: Cause) {
        let backlog = &mut self.lanes.entry(lane).or_default().backlog;
        self.stirred |= backlog.push(name, priority, cause, Instant::now());
    }

    /// The wall clock has jumped: whoever waits for a time of day is asked again.
    pub fn clock_jumped(&mut self, now: Instant) {
        for lane in self.lanes.values_mut() {
            self.stirred |= lane.backlog.clock_jumped(now);
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
            let Some((name, failures, storm)) = next else {
                continue;
            };
            self.level = self.level.max(share.claim());
            share.begin(Tenant::of(&name));
            self.running += 1;
            return Some(Job {
                lane: id,
                name,
                failures,
                storm,
            });
        }
        None
    }

    /// Whether something has become ready since this was asked last, so that it is worth looking what is next.
    pub fn take_stirred(&mut self) -> bool {
        std::mem::take(&mut self.stirred)
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

    /// A job is over.
    pub fn done(&mut self, job: &Job, ended: &Ended, now: Instant) {
        self.running = self.running.saturating_sub(1);
        let Some(lane) = self.lanes.get_mut(&job.lane) else {
            return;
        };
        let took = lane.backlog.end(&job.name, ended, now);
        if let Some(share) = lane.share {
            self.shares[share].end(&Tenant::of(&job.name), took);
        }
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
            self.stirred |= lane.backlog.release(name);
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
            stirred: _,
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
