//! Owns what one lane has to do, and in which order: changes before what is new, before what was woken, before resyncs,
//! before retries.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::time::Duration;

use pilothouse_core::{Name, backoff};
use tokio::time::Instant;

use super::brake::{Brakes, Storm};
use super::{Depth, Ended, Priority, Verdict};

/// The priorities in their order.
const PRIORITIES: [Priority; 5] = [
    Priority::Change,
    Priority::New,
    Priority::Wake,
    Priority::Resync,
    Priority::Retry,
];

/// The objects of a lane that are queued, run, wait or have failed; nothing is kept of the others.
#[derive(Debug, Default)]
pub struct Backlog {
    items: HashMap<Name, Item>,
    ready: [VecDeque<Name>; PRIORITIES.len()],
    delayed: BTreeMap<Instant, HashSet<Name>>,
    brakes: Brakes,
    running: usize,
    /// The time that its jobs took.
    pub used: Duration,
}

#[derive(Debug, Default)]
struct Item {
    queued: Option<Queued>,
    /// Since when it has been running.
    running: Option<Instant>,
    /// Asked for while it was running.
    again: Option<Priority>,
    failures: u32,
    due: Option<Due>,
    /// Whatever happens, it does not run before: the cluster has asked for time.
    not_before: Option<Instant>,
    /// Writes of its own that the cache has not seen yet.
    unseen: u32,
}

#[derive(Clone, Copy, Debug)]
struct Queued {
    priority: Priority,
    since: Instant,
}

/// A time that an object waits for, and how urgent it is then.
#[derive(Clone, Copy, Debug)]
struct Due {
    at: Instant,
    priority: Priority,
}

impl Item {
    fn is_idle(&self) -> bool {
        let Self {
            queued,
            running,
            again,
            failures,
            due,
            not_before,
            unseen,
        } = self;
        queued.is_none()
            && running.is_none()
            && again.is_none()
            && *failures == 0
            && due.is_none()
            && not_before.is_none()
            && *unseen == 0
    }
}

impl Backlog {
    /// Asks for a reconcile. Says whether that made it ready.
    pub fn push(&mut self, name: &Name, priority: Priority, now: Instant) -> bool {
        let item = self.items.entry(name.clone()).or_default();
        if item.running.is_some() {
            item.again = Some(item.again.map_or(priority, |before| before.min(priority)));
            return false;
        }
        if item.queued.is_some_and(|before| before.priority <= priority) {
            return false;
        }
        let since = item.queued.map_or(now, |before| before.since);
        item.queued = Some(Queued { priority, since });
        let is_ready = item.unseen == 0;
        if is_ready {
            self.ready[priority as usize].push_back(name.clone());
        }
        is_ready
    }

    /// Whether something may be ready; what is may still turn out to have been forgotten, held or slowed.
    pub fn has_ready(&self) -> bool {
        self.ready.iter().any(|ready| !ready.is_empty())
    }

    /// How many objects run.
    pub fn running(&self) -> usize {
        self.running
    }

    /// What an object waited for others is not its time.
    pub fn excuse(&mut self, name: &Name, waited: Duration) {
        if let Some(since) = self.items.get_mut(name).and_then(|item| item.running.as_mut()) {
            *since += waited;
        }
    }

    /// The next object to run, how often it has failed, and the storm that it is in.
    pub fn take(&mut self, now: Instant) -> Option<(Name, u32, Option<Storm>)> {
        for priority in PRIORITIES {
            while let Some(name) = self.ready[priority as usize].pop_front() {
                // An entry is stale when the object was forgotten, held, or moved to a more urgent list since.
                let Some(item) = self.items.get_mut(&name) else {
                    continue;
                };
                let is_next = item.queued.is_some_and(|queued| queued.priority == priority);
                if !is_next || item.running.is_some() || item.unseen > 0 {
                    continue;
                }
                item.queued = None;
                let wait = item.not_before.max(self.brakes.until(&name));
                if let Some(at) = wait.filter(|at| *at > now) {
                    self.delay(&name, Due { at, priority });
                    continue;
                }
                item.not_before = None;
                item.running = Some(now);
                let failures = item.failures;
                self.undelay(&name);
                self.running += 1;
                let storm = self.brakes.storm(&name, now);
                return Some((name, failures, storm));
            }
        }
        None
    }

    /// A job is over. Says how long it took.
    pub fn end(&mut self, name: &Name, ended: &Ended, now: Instant) -> Duration {
        let Ended {
            verdict,
            used,
            wrote,
            failure: _,
            story,
        } = ended;
        self.running = self.running.saturating_sub(1);
        let calm = self.brakes.ran(name, *wrote, story.as_ref(), now);
        let Some(item) = self.items.get_mut(name) else {
            self.used += *used;
            return *used;
        };
        let took = item.running.take().map_or(*used, |since| (now - since).max(*used));
        self.used += took;
        let again = item.again.take();
        let due = match *verdict {
            Verdict::Done { again } => {
                item.failures = 0;
                again.map(|at| (at, Priority::Resync))
            }
            Verdict::Retry { at_least } => {
                item.failures = item.failures.saturating_add(1);
                if !at_least.is_zero() {
                    item.not_before = Some(now + at_least);
                }
                let wait = backoff::delay(item.failures, seed(name)).max(at_least);
                Some((now + wait, Priority::Retry))
            }
            Verdict::AwaitChange => {
                item.failures = item.failures.saturating_add(1);
                None
            }
            Verdict::Gone => {
                item.failures = 0;
                None
            }
        };
        let calm = calm
            .filter(|_| *verdict != Verdict::Gone)
            .map(|at| (at, Priority::Resync));
        if let Some((at, priority)) = [due, calm].into_iter().flatten().min_by_key(|(at, _)| *at) {
            self.delay(name, Due { at, priority });
        }
        if let Some(priority) = again {
            self.push(name, priority, now);
        }
        self.tidy(name);
        took
    }

    /// It wrote something that the cache has not seen.
    pub fn hold(&mut self, name: &Name) {
        self.items.entry(name.clone()).or_default().unseen += 1;
    }

    /// The cache has seen one of its writes. Says whether that made it ready.
    pub fn release(&mut self, name: &Name) -> bool {
        let Some(item) = self.items.get_mut(name) else {
            return false;
        };
        item.unseen = item.unseen.saturating_sub(1);
        let released = item.queued.filter(|_| item.unseen == 0 && item.running.is_none());
        if let Some(queued) = released {
            self.ready[queued.priority as usize].push_back(name.clone());
        }
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
            item.queued = None;
            item.again = None;
            item.failures = 0;
            item.not_before = None;
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
                self.push(&name, due.priority, now);
            }
        }
    }

    /// The first time that something waits for.
    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.keys().next().copied()
    }

    /// What it holds.
    pub fn depth(&self, now: Instant) -> Depth {
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

    fn delay(&mut self, name: &Name, due: Due) {
        self.undelay(name);
        self.items.entry(name.clone()).or_default().due = Some(due);
        self.delayed.entry(due.at).or_default().insert(name.clone());
    }

    fn undelay(&mut self, name: &Name) {
        let Some(due) = self.items.get_mut(name).and_then(|item| item.due.take()) else {
            return;
        };
        if let Some(names) = self.delayed.get_mut(&due.at) {
            names.remove(name);
            if names.is_empty() {
                self.delayed.remove(&due.at);
            }
        }
    }

    fn tidy(&mut self, name: &Name) {
        if self.items.get(name).is_some_and(Item::is_idle) {
            self.items.remove(name);
        }
    }
}

/// A seed for the jitter that is the same in each run: FNV-1a over the object's place.
pub fn seed(name: &Name) -> u64 {
    let text = name
        .namespace
        .iter()
        .chain([&name.name])
        .flat_map(|part| part.bytes().chain([0]));
    text.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
