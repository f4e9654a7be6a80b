//! Holds the work of one lane, and what delays an object. The order of ready objects is decided by `ready_queue`.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use pilothouse_core::status::backoff;
use pilothouse_core::{Name, Tenant};
use tokio::time::Instant;

use super::hot_loop::{HotLoop, HotLoopLimiter, RunRecord, seed};
use super::item::{ActiveRun, Due, Hold, QueueItem, Queued};
use super::ready_queue::ReadyQueue;
use super::{
    Cause, Depth, EndedRun, JobResult, ObjectState, Priority, QueuedObject, ReconcileResult, RequeueAt, Trigger,
    TriggerReason,
};

/// Objects of a lane that are queued, running, delayed or failing; no others are kept.
#[derive(Debug, Default)]
pub struct Backlog {
    items: HashMap<Name, QueueItem>,
    order: ReadyQueue,
    /// Number of ready objects by the time since which they are ready.
    ready_since: BTreeMap<Instant, usize>,
    delayed: BTreeMap<Instant, HashSet<Name>>,
    tally: Tally,
    /// Number of delayed objects that wait for a time of day.
    by_clock: usize,
    hot_loops: HotLoopLimiter,
    running: usize,
    /// Time that its jobs took.
    pub used: Duration,
}

/// Number of objects that a [`Depth`] counts, kept so that [`Backlog::depth`] visits none.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    delayed: usize,
    unseen: usize,
    failing: usize,
    stalled: usize,
}

/// An object that starts to run.
#[derive(Debug)]
pub struct TakenObject {
    /// Name of the object.
    pub name: Name,
    /// Failures in a row.
    pub failures: u32,
    /// Its hot loop, if it is in one.
    pub hot_loop: Option<HotLoop>,
    /// Reason why it was queued.
    pub trigger: Trigger,
    /// Time that it was queued.
    pub waited: Duration,
}

impl Backlog {
    /// Requests a reconcile. Returns `true` if the object became ready.
    pub fn push(&mut self, name: &Name, priority: Priority, cause: Cause, trigger: Trigger, now: Instant) -> bool {
        let cause = self.hot_loops.cause(name, cause, trigger.object.as_deref());
        let item = self.items.entry(name.clone()).or_default();
        item.cause = item.cause.max(Some(cause));
        item.edited |= cause == Cause::Edit;
        if item.trigger.as_ref().is_none_or(|(before, _)| priority < *before) {
            item.trigger = Some((priority, trigger));
        }
        self.enqueue(name, priority, now)
    }

    /// Requests a reconcile of each failing object, as if it had been edited: before its back-off ends. Returns `true` if
    /// one became ready.
    pub fn push_failing(&mut self, now: Instant) -> bool {
        let failing = self.items.iter().filter(|(_, item)| item.failures > 0);
        let failing: Vec<Name> = failing.map(|(name, _)| name.clone()).collect();
        let mut is_ready = false;
        for name in failing {
            is_ready |= self.push(&name, Priority::Wake, Cause::Edit, TriggerReason::Requested.into(), now);
        }
        is_ready
    }

    /// Queues an object without another cause or trigger.
    fn enqueue(&mut self, name: &Name, priority: Priority, now: Instant) -> bool {
        let item = self.items.entry(name.clone()).or_default();
        if item.running.is_some() {
            item.again = Some(item.again.map_or(priority, |before| before.min(priority)));
            return false;
        }
        if item.queued.is_some_and(|before| before.priority <= priority) {
            return false;
        }
        if let Some(Queued {
            priority,
            place: Some(place),
            since,
        }) = item.queued
        {
            self.order.remove(name, priority, place);
            leave(&mut self.ready_since, since);
        }
        let is_ready = item.unseen == 0;
        let since = item.queued.map_or(now, |before| before.since);
        item.queued = Some(Queued {
            priority,
            since,
            place: is_ready.then(|| self.order.push(name, priority)),
        });
        if is_ready {
            enter(&mut self.ready_since, since);
        }
        is_ready
    }

    /// Forgets all objects but these. Running jobs continue.
    pub fn retain(&mut self, is_kept: impl Fn(&Name) -> bool) {
        let forgotten: Vec<Name> = self.items.keys().filter(|name| !is_kept(name)).cloned().collect();
        for name in forgotten {
            self.forget(&name);
        }
    }

    /// The objects that run.
    pub fn names_running(&self) -> impl Iterator<Item = &Name> {
        let running = self.items.iter().filter(|(_, item)| item.running.is_some());
        running.map(|(name, _)| name)
    }

    /// Returns `true` if an object is ready; it may still turn out to be slowed.
    pub fn has_ready(&self) -> bool {
        self.order.has_ready()
    }

    /// Number of running objects.
    pub fn running(&self) -> usize {
        self.running
    }

    /// Parks a run that waits for others.
    pub fn park(&mut self, name: &Name) {
        self.order.park(name);
    }

    /// Resumes a parked run. Its wait does not count as its time.
    pub fn unpark(&mut self, name: &Name, waited: Duration) {
        self.order.unpark(name);
        if let Some(running) = self.items.get_mut(name).and_then(|item| item.running.as_mut()) {
            running.since += waited;
        }
    }

    /// Takes the next object of a tenant that is not held back.
    pub fn take(&mut self, now: Instant, is_held_back: impl Fn(&Tenant) -> bool) -> Option<TakenObject> {
        while let Some((name, priority)) = self.order.take(&is_held_back) {
            let Some(item) = self.items.get_mut(&name) else {
                continue;
            };
            let queued = item.queued.take();
            if let Some(queued) = queued {
                leave(&mut self.ready_since, queued.since);
            }
            let hold = item
                .hold
                .map(|hold| if item.edited { hold.edited_until } else { hold.until });
            let wait = hold.max(self.hot_loops.until(&name));
            if let Some(at) = wait.filter(|at| *at > now) {
                let due = Due {
                    at,
                    priority,
                    by_clock: false,
                    trigger: None,
                };
                self.delay(&name, due);
                continue;
            }
            item.hold = None;
            item.edited = false;
            let trigger = item
                .trigger
                .take()
                .map_or(TriggerReason::Resync.into(), |(_, trigger)| trigger);
            let waited = queued.map_or(Duration::ZERO, |queued| now.saturating_duration_since(queued.since));
            let cause = item.cause.take().unwrap_or(Cause::Others);
            item.running = Some(ActiveRun {
                since: now,
                cause,
                trigger: trigger.clone(),
                waited,
            });
            let failures = item.failures;
            self.undelay(&name);
            self.order.begin(&name, priority);
            self.running += 1;
            let hot_loop = self.hot_loops.hot_loop(&name, cause, now);
            return Some(TakenObject {
                name,
                failures,
                hot_loop,
                trigger,
                waited,
            });
        }
        None
    }

    /// Ends a job.
    pub fn end(&mut self, name: &Name, ended: &JobResult, now: Instant) -> EndedRun {
        let JobResult {
            verdict,
            used,
            writes,
            reported,
            said,
            failure,
            contention,
        } = ended;
        self.running = self.running.saturating_sub(1);
        let running = self.items.get_mut(name).and_then(|item| item.running.take());
        let record = RunRecord {
            cause: running.as_ref().map_or(Cause::Others, |running| running.cause),
            writes,
            reported: *reported,
            said: *said,
            crashed: failure.as_ref().is_some_and(pilothouse_core::Failure::is_crash),
            contention: contention.as_ref(),
        };
        let calm = self.hot_loops.ran(name, &record, now);
        let mut run = ended_run(running, *used, now);
        self.used += run.took;
        self.order.end(name, run.took);
        let Some(item) = self.items.get_mut(name) else {
            return run;
        };
        let (was_failing, was_stalled) = (item.failures > 0, item.stalled);
        let again = item.again.take();
        let is_gone = std::mem::take(&mut item.gone) && again.is_none();
        if is_gone {
            run.trigger = None;
        }
        let verdict = if is_gone { &ReconcileResult::Gone } else { verdict };
        let due = match *verdict {
            ReconcileResult::Done { again } => {
                item.failures = 0;
                again.map(|again| (again, Priority::Resync))
            }
            ReconcileResult::Retry { at_least, edited } => {
                item.failures = item.failures.saturating_add(1);
                if !at_least.is_zero() {
                    item.hold = Some(Hold {
                        until: now + at_least,
                        edited_until: now + edited.min(at_least),
                    });
                }
                let wait = backoff::delay(item.failures, seed(name)).max(at_least);
                Some((RequeueAt::at(now + wait), Priority::Retry))
            }
            ReconcileResult::AwaitChange { again } => {
                item.failures = item.failures.saturating_add(1);
                // Time is one of the inputs that change: an object that fails each time it is due backs off.
                let least = now + backoff::delay(item.failures, seed(name));
                let later = |again: RequeueAt| RequeueAt {
                    at: again.at.max(least),
                    ..again
                };
                again.map(|again| (later(again), Priority::Retry))
            }
            ReconcileResult::Gone => {
                item.failures = 0;
                None
            }
        };
        item.stalled = matches!(verdict, ReconcileResult::AwaitChange { .. });
        run.failures = item.failures;
        self.tally.failing += usize::from(item.failures > 0);
        self.tally.failing -= usize::from(was_failing);
        self.tally.stalled += usize::from(item.stalled);
        self.tally.stalled -= usize::from(was_stalled);
        let calm = calm
            .filter(|_| *verdict != ReconcileResult::Gone)
            .map(|at| (RequeueAt::at(at), Priority::Resync, TriggerReason::HotLoop));
        let due = due.map(|(again, priority)| match priority {
            Priority::Retry => (again, priority, TriggerReason::Retry),
            _ => (again, priority, TriggerReason::Timer),
        });
        let by_clock = due.is_some_and(|(again, ..)| again.by_clock);
        if let Some((again, priority, trigger)) = [due, calm].into_iter().flatten().min_by_key(|(again, ..)| again.at) {
            let due = Due {
                at: again.at,
                priority,
                by_clock,
                trigger: Some(trigger),
            };
            self.delay(name, due);
        }
        if let Some(priority) = again {
            self.enqueue(name, priority, now);
        }
        self.tidy(name);
        run
    }

    /// State of an object.
    pub fn state_of(&self, name: &Name) -> QueuedObject {
        let Some(item) = self.items.get(name) else {
            return QueuedObject::default();
        };
        let state = match (&item.running, item.queued, item.due) {
            (Some(running), ..) => ObjectState::Running(running.since),
            (None, Some(_), _) if item.unseen > 0 => ObjectState::Held,
            (None, Some(queued), _) => ObjectState::Queued(queued.since),
            (None, None, Some(due)) => ObjectState::Delayed(due.at),
            (None, None, None) => ObjectState::Idle,
        };
        QueuedObject {
            state,
            failures: item.failures,
        }
    }

    /// Holds an object back until the cache shows a write that it made.
    pub fn hold(&mut self, name: &Name) {
        let item = self.items.entry(name.clone()).or_default();
        self.tally.unseen += usize::from(item.unseen == 0);
        item.unseen += 1;
        if let Some(queued) = &mut item.queued
            && let Some(place) = queued.place.take()
        {
            self.order.remove(name, queued.priority, place);
            leave(&mut self.ready_since, queued.since);
        }
    }

    /// Records that the cache shows one of its writes. Returns `true` if the object became ready.
    pub fn release(&mut self, name: &Name) -> bool {
        let Some(item) = self.items.get_mut(name) else {
            return false;
        };
        self.tally.unseen -= usize::from(item.unseen == 1);
        item.unseen = item.unseen.saturating_sub(1);
        let is_ready = item.unseen == 0 && item.running.is_none();
        let waits = |queued: &&mut Queued| is_ready && queued.place.is_none();
        let released = item.queued.as_mut().filter(waits).map(|queued| {
            queued.place = Some(self.order.push(name, queued.priority));
            enter(&mut self.ready_since, queued.since);
        });
        self.tidy(name);
        released.is_some()
    }

    /// The held objects, each with the number of its unseen writes.
    pub fn held(&self) -> impl Iterator<Item = (&Name, u32)> {
        let items = self.items.iter().filter(|(_, item)| item.unseen > 0);
        items.map(|(name, item)| (name, item.unseen))
    }

    /// Forgets a deleted object.
    pub fn forget(&mut self, name: &Name) {
        self.undelay(name);
        if let Some(item) = self.items.get_mut(name) {
            if let Some(Queued {
                priority,
                place: Some(place),
                since,
            }) = item.queued.take()
            {
                self.order.remove(name, priority, place);
                leave(&mut self.ready_since, since);
            }
            item.gone = item.running.is_some();
            item.again = None;
            item.cause = None;
            item.trigger = None;
            item.edited = false;
            self.tally.failing -= usize::from(item.failures > 0);
            item.failures = 0;
            self.tally.stalled -= usize::from(std::mem::take(&mut item.stalled));
            item.hold = None;
        }
        self.tidy(name);
    }

    /// Queues the objects whose time is due.
    pub fn wake_due(&mut self, now: Instant) {
        while let Some(entry) = self.delayed.first_entry() {
            if *entry.key() > now {
                return;
            }
            for name in entry.remove() {
                let due = self.items.get_mut(&name).and_then(|item| item.due.take());
                let due = due.expect("what is delayed has an item that says so");
                self.by_clock -= usize::from(due.by_clock);
                self.tally.delayed -= 1;
                self.come_due(&name, &due, now);
            }
        }
    }

    /// Queues the objects that wait for a time computed from the wall clock, after that has jumped. Returns `true` if
    /// any became ready.
    pub fn clock_jumped(&mut self, now: Instant) -> bool {
        let waits = |(name, item): (&Name, &QueueItem)| item.due.filter(|due| due.by_clock).map(|_| name.clone());
        let names: Vec<_> = self.items.iter().filter_map(waits).collect();
        let mut ready_signal = false;
        for name in names {
            if let Some(due) = self.undelay(&name) {
                ready_signal |= self.come_due(&name, &due, now);
            }
        }
        ready_signal
    }

    /// Returns `true` if an object waits for a time of day.
    pub fn waits_for_clock(&self) -> bool {
        self.by_clock > 0
    }

    fn come_due(&mut self, name: &Name, due: &Due, now: Instant) -> bool {
        match due.trigger {
            Some(trigger) => self.push(name, due.priority, Cause::Ours, trigger.into(), now),
            None => self.enqueue(name, due.priority, now),
        }
    }

    /// The earliest time at which an object is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.keys().next().copied()
    }

    /// Depth of the lane, without visiting objects.
    pub fn depth(&self, now: Instant) -> Depth {
        let Tally {
            delayed,
            unseen,
            failing,
            stalled,
        } = self.tally;
        let oldest = self.ready_since.keys().next();
        Depth {
            ready: self.order.len(),
            running: self.running,
            delayed,
            unseen,
            failing,
            stalled,
            oldest: oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(*since)),
        }
    }

    /// Depth of the lane, counted by visiting each object.
    #[cfg(test)]
    pub fn counted_depth(&self, now: Instant) -> Depth {
        let mut depth = Depth {
            running: self.running,
            ..Depth::default()
        };
        for item in self.items.values() {
            depth.unseen += usize::from(item.unseen > 0);
            depth.delayed += usize::from(item.due.is_some());
            depth.failing += usize::from(item.failures > 0);
            depth.stalled += usize::from(item.stalled);
            if let Some(queued) = item.queued.filter(|_| item.unseen == 0) {
                depth.ready += 1;
                depth.oldest = depth.oldest.max(now - queued.since);
            }
        }
        depth
    }

    /// Returns `true` if there is nothing to do before a time is due or a change arrives.
    pub fn is_idle(&self) -> bool {
        self.running == 0
            && self
                .items
                .values()
                .all(|item| item.queued.is_none() && item.unseen == 0)
    }

    /// Number of objects that are queued or held.
    pub fn waiting(&self) -> usize {
        self.items.values().filter(|item| item.queued.is_some()).count()
    }

    /// Returns `true` if no object is known.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Number of tenants that are remembered.
    #[cfg(test)]
    pub fn tenants(&self) -> usize {
        self.order.tenants()
    }

    fn delay(&mut self, name: &Name, due: Due) {
        self.undelay(name);
        self.by_clock += usize::from(due.by_clock);
        self.tally.delayed += 1;
        self.items.entry(name.clone()).or_default().due = Some(due);
        self.delayed.entry(due.at).or_default().insert(name.clone());
    }

    fn undelay(&mut self, name: &Name) -> Option<Due> {
        let due = self.items.get_mut(name).and_then(|item| item.due.take())?;
        self.by_clock -= usize::from(due.by_clock);
        self.tally.delayed -= 1;
        if let Some(names) = self.delayed.get_mut(&due.at) {
            names.remove(name);
            if names.is_empty() {
                self.delayed.remove(&due.at);
            }
        }
        Some(due)
    }

    fn tidy(&mut self, name: &Name) {
        if self.items.get(name).is_some_and(QueueItem::is_idle) {
            self.items.remove(name);
        }
    }
}

/// The record of a run, without the outcome for its object.
fn ended_run(running: Option<ActiveRun>, used: Duration, now: Instant) -> EndedRun {
    let Some(ActiveRun {
        since,
        cause: _,
        trigger,
        waited,
    }) = running
    else {
        return EndedRun {
            trigger: None,
            waited: Duration::ZERO,
            took: used,
            failures: 0,
        };
    };
    EndedRun {
        trigger: Some(trigger),
        waited,
        took: (now - since).max(used),
        failures: 0,
    }
}

/// Counts one more object that has been ready since a time.
fn enter(ready_since: &mut BTreeMap<Instant, usize>, since: Instant) {
    *ready_since.entry(since).or_default() += 1;
}

/// Counts one fewer.
fn leave(ready_since: &mut BTreeMap<Instant, usize>, since: Instant) {
    if let Some(count) = ready_since.get_mut(&since) {
        *count -= 1;
        if *count == 0 {
            ready_since.remove(&since);
        }
    }
}
