//! Queues targets: each at most once, and never settled twice at the same time. `due` decides when a target is settled.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tokio::time::Instant;

use super::target::TargetId;

/// Decision on when a target is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At once.
    Now,
    /// Not yet: something is awaited that ends without a notification.
    Later,
    /// Not before this time, unless the target is marked again.
    At(Instant),
}

/// Targets to settle, and when.
#[derive(Default)]
pub struct TargetQueue {
    /// Targets to settle, with the time since which they are marked.
    dirty: BTreeMap<TargetId, Instant>,
    /// Targets being settled.
    busy: HashSet<TargetId>,
    /// Targets to settle at a later time.
    later: BTreeSet<(Instant, TargetId)>,
}

impl TargetQueue {
    /// Returns `true` if no target has to be settled before a change or a time.
    pub fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.busy.is_empty()
    }

    /// Returns `true` if a target waits for more claims.
    pub fn is_lingering(&self) -> bool {
        self.dirty.keys().any(|id| !self.busy.contains(id))
    }

    /// The earliest time at which a delayed target is due.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Returns `true` if a target of a plugin is being settled.
    pub fn is_busy_with(&self, plugin: &str) -> bool {
        self.busy.iter().any(|(busy, _)| **busy == *plugin)
    }

    /// Returns `true` if a target is being settled, or will be as soon as possible.
    pub fn has_now(&self, id: &TargetId) -> bool {
        self.dirty.contains_key(id) || self.busy.contains(id)
    }

    /// Returns `true` if a target is being settled, or will be.
    pub fn has(&self, id: &TargetId) -> bool {
        self.has_now(id) || self.later.iter().any(|(_, later)| later == id)
    }

    /// Marks a target to be settled.
    pub fn mark(&mut self, id: TargetId) {
        self.later.retain(|(_, later)| *later != id);
        self.dirty.entry(id).or_insert_with(Instant::now);
    }

    /// Takes at most `room` targets to settle now; each counts as busy until [`TargetQueue::done`]. `decide` is called
    /// for each candidate with the time since which it is marked.
    pub fn take(
        &mut self,
        now: Instant,
        room: usize,
        mut decide: impl FnMut(&TargetId, Instant) -> Look,
    ) -> Vec<TargetId> {
        let Self { dirty, busy, later } = self;
        while let Some((due, _)) = later.first()
            && *due <= now
            && let Some((due, id)) = later.pop_first()
        {
            dirty.entry(id).or_insert(due);
        }
        let (mut taken, mut resting) = (Vec::new(), Vec::new());
        for (id, since) in dirty.iter().filter(|(id, _)| !busy.contains(id)) {
            if taken.len() == room {
                break;
            }
            match decide(id, *since) {
                Look::Now => taken.push(id.clone()),
                Look::Later => {}
                Look::At(due) => resting.push((due, id.clone())),
            }
        }
        for (due, id) in resting {
            dirty.remove(&id);
            later.insert((due, id));
        }
        for id in &taken {
            dirty.remove(id);
            busy.insert(id.clone());
        }
        taken
    }

    /// Ends the settlement of a target.
    pub fn done(&mut self, id: &TargetId) {
        self.busy.remove(id);
    }

    /// Settles a target again at `due`, unless it is marked before.
    pub fn look_again(&mut self, id: &TargetId, due: Instant) {
        self.later.insert((due, id.clone()));
    }
}
