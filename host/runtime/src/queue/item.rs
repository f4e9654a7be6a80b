//! Holds the queue's state of one object of a lane.

use std::time::Duration;

use tokio::time::Instant;

use super::ready_queue::ReadyPlace;
use super::{Cause, Priority, Trigger, TriggerReason};

/// One object.
#[derive(Debug, Default)]
pub struct QueueItem {
    /// Place in the queue, if it is queued.
    pub queued: Option<Queued>,
    /// Its run, if it runs.
    pub running: Option<ActiveRun>,
    /// Priority with which it was requested while it was running.
    pub again: Option<Priority>,
    /// Set if the object was deleted while it was running, so that the result of the run is dropped.
    pub gone: bool,
    /// Dominant cause of the requests since its last run began.
    pub cause: Option<Cause>,
    /// Trigger of the most urgent request since its last run began; the first one among equals.
    pub trigger: Option<(Priority, Trigger)>,
    /// Set if it was edited since its last run began.
    pub edited: bool,
    /// Failures in a row.
    pub failures: u32,
    /// Set if only a change can help it after its last failure.
    pub stalled: bool,
    /// Time at which it is queued again.
    pub due: Option<Due>,
    /// Time that the cluster has asked it to wait.
    pub hold: Option<Hold>,
    /// Writes of its own that the cache does not show yet.
    pub unseen: u32,
}

/// Place of an object in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    /// Urgency.
    pub priority: Priority,
    /// Time since which it is queued.
    pub since: Instant,
    /// Place in the order; `None` while it waits for the cache to show its writes.
    pub place: Option<ReadyPlace>,
}

/// A run that is not over.
#[derive(Clone, Debug)]
pub struct ActiveRun {
    /// Start of the run, moved by the time that it was parked.
    pub since: Instant,
    /// Cause for which it was queued.
    pub cause: Cause,
    /// Trigger for which it was queued.
    pub trigger: Trigger,
    /// Time that it was queued.
    pub waited: Duration,
}

/// A wait that the cluster has asked for (`Retry-After`): the object does not run earlier.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// End of the wait.
    pub until: Instant,
    /// End of the wait for an object that was edited meanwhile.
    pub edited_until: Instant,
}

/// Time at which an object is queued again, and its priority then.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The time.
    pub at: Instant,
    /// Priority then.
    pub priority: Priority,
    /// Set if the time was computed from the wall clock.
    pub by_clock: bool,
    /// Trigger with which it is queued then. `None`: it keeps the one for which it was queued before it was delayed.
    pub trigger: Option<TriggerReason>,
}

impl QueueItem {
    /// Returns `true` if there is nothing to remember.
    pub fn is_idle(&self) -> bool {
        let Self {
            queued,
            running,
            again,
            gone: _,
            cause: _,
            trigger: _,
            edited: _,
            failures,
            stalled: _,
            due,
            hold,
            unseen,
        } = self;
        queued.is_none()
            && running.is_none()
            && again.is_none()
            && *failures == 0
            && due.is_none()
            && hold.is_none()
            && *unseen == 0
    }
}
