//! Owns what the queue is asked for and what it hands out: how urgent an object is, whose doing that is, jobs, and how they
//! end.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::{Failure, Name};
use tokio::time::Instant;

use super::{HotLoop, Trigger, Writes};
use crate::lanes::primary::LaneId;

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

/// Whose doing it is that an object is queued. Of several causes, the last of these counts: what others began is theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Somebody else has changed an object that this one had just written, such as the controller of a Deployment.
    Answer,
    /// The cache shows a write of this object's own.
    Echo,
    /// Another write of the host, its own status included, or nothing but time.
    Ours,
    /// Somebody else than the host has changed what it depends on, or one of its children.
    Others,
    /// Somebody else than the host made or edited it.
    Edit,
}

/// A time at which an object runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequeueAt {
    /// The time.
    pub at: Instant,
    /// Whether it was reckoned from the wall clock, so that it is another when that jumps.
    pub by_clock: bool,
}

impl RequeueAt {
    /// At this time, whatever the wall clock says.
    pub fn at(at: Instant) -> Self {
        Self { at, by_clock: false }
    }
}

/// What became of a reconcile, as far as the queue is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// It succeeded; run again at this time at the latest.
    Done { again: Option<RequeueAt> },
    /// It failed; time may help. The cluster may have asked for a longer wait than the back-off's: before that is over, a
    /// change does not make it run either, and an edit not before a shorter one.
    Retry { at_least: Duration, edited: Duration },
    /// It failed; only a change can help. Time may be one of the things that change.
    AwaitChange { again: Option<RequeueAt> },
    /// There is nothing to reconcile any more.
    Gone,
}

/// How a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResult {
    /// What became of it.
    pub verdict: ReconcileResult,
    /// The guest's time. Where clocks are paused, nothing else shows what a job has cost.
    pub used: Duration,
    /// The objects that were written; the primary's own status apart.
    pub writes: Writes,
    /// Whether the primary's status was written, for a reason that is not the hot loop itself.
    pub reported: bool,
    /// The digest of the status that was written, for whatever reason.
    pub said: Option<u64>,
    /// Why it failed, for the plugin's health; the queue goes by the verdict.
    pub failure: Option<Failure>,
    /// Who fights over what, if the object is in a hot loop and that was found out.
    pub contention: Option<Arc<Failure>>,
}

impl JobResult {
    /// Nothing was done, and there is nothing to tell.
    pub fn unchanged(verdict: ReconcileResult) -> Self {
        Self {
            verdict,
            used: Duration::ZERO,
            writes: Writes::default(),
            reported: false,
            said: None,
            failure: None,
            contention: None,
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
    pub hot_loop: Option<HotLoop>,
    /// What it was asked for by.
    pub trigger: Trigger,
    /// How long it was queued.
    pub waited: Duration,
}

/// A run that is over, as far as the queue knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// What it was asked for by; none if the object went meanwhile.
    pub trigger: Option<Trigger>,
    /// How long the object was queued before.
    pub waited: Duration,
    /// How long the run took, the time apart that it waited for others.
    pub took: Duration,
    /// Failures in a row, this one included.
    pub failures: u32,
}

/// What the queue knows of an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedObject {
    /// Where it is.
    pub state: ObjectState,
    /// Failures in a row.
    pub failures: u32,
}

/// Where an object is in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectState {
    /// Nothing is to be done before something changes.
    #[default]
    Idle,
    /// It is queued, since then.
    Queued(Instant),
    /// It waits for the cache to show its own writes.
    Held,
    /// It runs, since then.
    Running(Instant),
    /// It waits until then.
    Delayed(Instant),
}

/// The depth of a lane's queue, for status and metrics.
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
