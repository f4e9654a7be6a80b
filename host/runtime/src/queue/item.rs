//! Owns what is remembered of one object of a lane.

use std::time::Duration;

use tokio::time::Instant;

use super::ready_queue::ReadyPlace;
use super::{Cause, Priority, Trigger, TriggerReason};

/// One object.
#[derive(Debug, Default)]
pub struct QueueItem {
    /// Where it is queued, if it is.
    pub queued: Option<Queued>,
    /// Its run, if it runs.
    pub running: Option<ActiveRun>,
    /// Asked for while it was running.
    pub again: Option<Priority>,
    /// Whether the object went while it was running, so that nothing of the run's end is worth remembering.
    pub gone: bool,
    /// The cause that counts of those for which it was asked for since it began last.
    pub cause: Option<Cause>,
    /// The most urgent of what it was asked for by since it began last, and of these the first.
    pub trigger: Option<(Priority, Trigger)>,
    /// Whether somebody edited it since it began last.
    pub edited: bool,
    /// Failures in a row.
    pub failures: u32,
    /// What it waits for.
    pub due: Option<Due>,
    /// How long the cluster has asked to wait.
    pub hold: Option<Hold>,
    /// Writes of its own that the cache has not seen yet.
    pub unseen: u32,
}

/// Where an object is queued.
#[derive(Clone, Copy, Debug)]
pub struct Queued {
    /// How urgent it is.
    pub priority: Priority,
    /// Since when.
    pub since: Instant,
    /// Its place in the order; none while it waits for the cache to see its writes.
    pub place: Option<ReadyPlace>,
}

/// A run that is not over.
#[derive(Clone, Debug)]
pub struct ActiveRun {
    /// Since when, the time apart that it waited for others.
    pub since: Instant,
    /// What it was asked for.
    pub cause: Cause,
    /// What it was asked for by.
    pub trigger: Trigger,
    /// How long it was queued.
    pub waited: Duration,
}

/// The cluster has asked for time: the object does not run before.
#[derive(Clone, Copy, Debug)]
pub struct Hold {
    /// Until when.
    pub until: Instant,
    /// The same for an object that was edited meanwhile.
    pub edited_until: Instant,
}

/// A time that an object waits for, and how urgent it is then.
#[derive(Clone, Copy, Debug)]
pub struct Due {
    /// The time.
    pub at: Instant,
    /// How urgent it is then.
    pub priority: Priority,
    /// Whether the time was reckoned from the wall clock.
    pub by_clock: bool,
    /// Why the object is queued then. None: it was asked for before, and only held back.
    pub trigger: Option<TriggerReason>,
}

impl QueueItem {
    /// Whether there is nothing to remember of it.
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
