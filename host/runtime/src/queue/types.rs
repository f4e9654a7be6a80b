//! Defines the queue's inputs and outputs: priorities, causes, jobs and their results.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::{Failure, Name};
use tokio::time::Instant;

use super::{HotLoop, Trigger, Writes};
use crate::lanes::primary::LaneId;

/// Priority of a queued object; the first has precedence, and none is starved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The object or one of its children has changed.
    Change,
    /// The object was created while no host watched: it has no status yet.
    New,
    /// An object that it has read has changed. One such change may affect thousands of objects, and a new object does
    /// not wait behind them.
    Wake,
    /// The object runs without a known change: a start, a resync, a requeue.
    Resync,
    /// The object failed before.
    Retry,
}

/// Origin of a request. Among several, the last in this order counts: what others began is attributed to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// Another writer has changed an object that this one had just written, such as the controller of a Deployment.
    Answer,
    /// The cache shows a write of this object's own.
    Echo,
    /// Another write of the host, including its own status, or nothing but time.
    Ours,
    /// Another writer than the host has changed a dependency or a child.
    Others,
    /// Another writer than the host created or edited the object.
    Edit,
}

/// A time at which an object runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequeueAt {
    /// The time.
    pub at: Instant,
    /// Set if it was computed from the wall clock, so that it moves when that jumps.
    pub by_clock: bool,
}

impl RequeueAt {
    /// Makes a time that does not depend on the wall clock.
    pub fn at(at: Instant) -> Self {
        Self { at, by_clock: false }
    }
}

/// Result of a reconcile, as the queue sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// Success; run again at this time at the latest.
    Done { again: Option<RequeueAt> },
    /// Failure that time may help. The cluster may have asked for a longer wait than the back-off's (`at_least`): a
    /// change does not shorten it, an edit shortens it to `edited`.
    Retry { at_least: Duration, edited: Duration },
    /// Failure that only a change can help. Time may be one of the inputs that change.
    AwaitChange { again: Option<RequeueAt> },
    /// The object no longer exists.
    Gone,
}

/// Result of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobResult {
    /// Result of its reconcile.
    pub verdict: ReconcileResult,
    /// Time spent in the guest. With paused clocks (tests), nothing else shows the cost of a job.
    pub used: Duration,
    /// Objects that were written, except the primary's own status.
    pub writes: Writes,
    /// Set if the primary's status was written, for a reason other than the hot loop itself.
    pub reported: bool,
    /// Digest of the status that was written, for whatever reason.
    pub said: Option<u64>,
    /// The failure, for the plugin's health; the queue uses the verdict.
    pub failure: Option<Failure>,
    /// The conflicting writer and the fields, if the object is in a hot loop and they are known.
    pub contention: Option<Arc<Failure>>,
}

impl JobResult {
    /// Makes the result of a job that did nothing.
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

/// An object to reconcile now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
    /// Failures in a row before this one.
    pub failures: u32,
    /// Its hot loop, if it is slowed for one.
    pub hot_loop: Option<HotLoop>,
    /// Trigger for which it was queued.
    pub trigger: Trigger,
    /// Time that it was queued.
    pub waited: Duration,
}

/// Record of a run that is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedRun {
    /// Trigger for which it was queued; `None` if the object was deleted meanwhile.
    pub trigger: Option<Trigger>,
    /// Time that the object was queued.
    pub waited: Duration,
    /// Duration of the run without the time that it was parked.
    pub took: Duration,
    /// Failures in a row, including this one.
    pub failures: u32,
}

/// State of an object in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueuedObject {
    /// Position in the queue.
    pub state: ObjectState,
    /// Failures in a row.
    pub failures: u32,
}

/// Position of an object in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ObjectState {
    /// Idle until something changes.
    #[default]
    Idle,
    /// Queued since this time.
    Queued(Instant),
    /// Waits until the cache shows its own writes.
    Held,
    /// Running since this time.
    Running(Instant),
    /// Waits until this time.
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
    /// Failed, and waiting for a change only.
    pub stalled: usize,
    /// Time that the oldest ready object has been ready.
    pub oldest: Duration,
}

/// Limits of objects that are reconciled at once.
#[derive(Clone, Copy, Debug)]
pub struct Capacity {
    /// Limit over all plugins.
    pub workers: usize,
    /// Limit of one plugin without a limit of its own.
    pub per_plugin: usize,
}
