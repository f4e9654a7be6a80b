//! Owns what one lane has to do, and what holds an object back. In which order the rest comes is the matter of
//! `ready_queue`.

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

/// The objects of a lane that are queued, run, wait or have failed; nothing is kept of the others.
#[derive(Debug, Default)]
pub struct Backlog {
    items: HashMap<Name, QueueItem>,
    order: ReadyQueue,
    /// How many objects have been ready since each time.
    ready_since: BTreeMap<Instant, usize>,
    delayed: BTreeMap<Instant, HashSet<Name>>,
    tally: Tally,
    /// How many of those who wait do for a time of day.
    by_clock: usize,
    hot_loops: HotLoopLimiter,
    running: usize,
    /// The time that its jobs took.
    pub used: Duration,
}

/// How many objects there are of those that a [`Depth`] counts, so that none has to be looked at.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    delayed: usize,
    unseen: usize,
    failing: usize,
}

/// An object that runs from now on.
#[derive(Debug)]
pub struct TakenObject {
    /// Which.
    pub name: Name,
    /// How often it has failed in a row.
    pub failures: u32,
    /// The hot loop that it is in.
    pub hot_loop: Option<HotLoop>,
    /// What it was asked for by.
    pub trigger: Trigger,
    /// How long it was queued.
    pub waited: Duration,
}

impl Backlog {
    /// Asks for a reconcile. Says whether that made it ready.
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

    /// Queues an object for what it was asked for before.
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

    /// Forgets all other objects than these. What runs, runs to its end.
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

    /// Whether something is ready; it may still turn out to be slowed.
    pub fn has_ready(&self) -> bool {
        self.order.has_ready()
    }

    /// How many objects run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// A run waits for what others do.
    pub fn park(&mut self, name: &Name) {
        self.order.park(name);
    }

    /// A run that waited goes on. What it waited for others is not its time.
    pub fn unpark(&mut self, name: &Name, waited: Duration) {
        self.order.unpark(name);
        if let Some(running) = self.items.get_mut(name).and_then(|item| item.running.as_mut()) {
            running.since += waited;
        }
    }

    /// The next object to run of a tenant that is not held back.
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

    /// A job is over.
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
        let was_failing = item.failures > 0;
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
                // Time is something that was read; an object that fails whenever it moves on comes back ever more seldom.
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
        run.failures = item.failures;
        self.tally.failing += usize::from(item.failures > 0);
        self.tally.failing -= usize::from(was_failing);
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

    /// What is known of an object.
    pub fn look(&self, name: &Name) -> QueuedObject {
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

    /// It wrote something that the cache has not seen.
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

    /// The cache has seen one of its writes. Says whether that made it ready.
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

    /// What is held, and how often.
    pub fn held(&self) -> impl Iterator<Item = (&Name, u32)> {
        let items = self.items.iter().filter(|(_, item)| item.unseen > 0);
        items.map(|(name, item)| (name, item.unseen))
    }

    /// It is gone.
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
            item.hold = None;
        }
        self.tidy(name);
    }

    /// Takes up what has been waiting for a time that has come.
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

    /// The wall clock has jumped: whoever waits for a time that was reckoned from it asks again. Says whether that made
    /// anything ready.
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

    /// Whether anybody waits for a time of day.
    pub fn waits_for_clock(&self) -> bool {
        self.by_clock > 0
    }

    fn come_due(&mut self, name: &Name, due: &Due, now: Instant) -> bool {
        match due.trigger {
            Some(trigger) => self.push(name, due.priority, Cause::Ours, trigger.into(), now),
            None => self.enqueue(name, due.priority, now),
        }
    }

    /// The first time that something waits for.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.keys().next().copied()
    }

    /// What it holds. Looks at no object.
    pub fn depth(&self, now: Instant) -> Depth {
        let Tally {
            delayed,
            unseen,
            failing,
        } = self.tally;
        let oldest = self.ready_since.keys().next();
        Depth {
            ready: self.order.len(),
            running: self.running,
            delayed,
            unseen,
            failing,
            oldest: oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(*since)),
        }
    }

    /// The same, by looking at each object.
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
            if let Some(queued) = item.queued.filter(|_| item.unseen == 0) {
                depth.ready += 1;
                depth.oldest = depth.oldest.max(now - queued.since);
            }
        }
        depth
    }

    /// Whether nothing is to be done before a time comes or something changes.
    pub fn is_idle(&self) -> bool {
        self.running == 0
            && self
                .items
                .values()
                .all(|item| item.queued.is_none() && item.unseen == 0)
    }

    /// How many are queued or held.
    pub fn waiting(&self) -> usize {
        self.items.values().filter(|item| item.queued.is_some()).count()
    }

    /// Whether nothing is known of any object.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many tenants are remembered.
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

/// What is remembered of a run that is over, without what became of its object.
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

/// One more object has been ready since a time.
fn enter(ready_since: &mut BTreeMap<Instant, usize>, since: Instant) {
    *ready_since.entry(since).or_default() += 1;
}

/// One of the objects is not ready any more.
fn leave(ready_since: &mut BTreeMap<Instant, usize>, since: Instant) {
    if let Some(count) = ready_since.get_mut(&since) {
        *count -= 1;
        if *count == 0 {
            ready_since.remove(&since);
        }
    }
}
