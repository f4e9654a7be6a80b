//! Owns the queue of targets: each is there once, and is not looked at twice at the same time. When a target is looked at
//! is decided in `due`.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tokio::time::Instant;

use super::target::TargetId;

/// Whether a target is looked at now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// At once.
    Now,
    /// Not yet: something is waited for that ends without being told.
    Later,
    /// Not before this time, unless something makes it worth it.
    At(Instant),
}

/// Which targets are to be looked at, and when.
#[derive(Default)]
pub struct TargetQueue {
    /// To be looked at, since when.
    dirty: BTreeMap<TargetId, Instant>,
    /// Looked at now.
    busy: HashSet<TargetId>,
    /// To be looked at again when it is time.
    later: BTreeSet<(Instant, TargetId)>,
}

impl TargetQueue {
    /// Whether nothing is to be looked at before something changes or a time comes.
    pub fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.busy.is_empty()
    }

    /// Whether a target waits for more claims.
    pub fn is_lingering(&self) -> bool {
        self.dirty.keys().any(|id| !self.busy.contains(id))
    }

    /// When the next target is to be looked at that only waits for its time.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// Whether an object that a plugin contributes to is looked at now.
    pub fn is_busy_with(&self, plugin: &str) -> bool {
        self.busy.iter().any(|(busy, _)| **busy == *plugin)
    }

    /// Whether a target is looked at, or will be as soon as it can be.
    pub fn has_now(&self, id: &TargetId) -> bool {
        self.dirty.contains_key(id) || self.busy.contains(id)
    }

    /// Whether a target is looked at, or will be.
    pub fn has(&self, id: &TargetId) -> bool {
        self.has_now(id) || self.later.iter().any(|(_, later)| later == id)
    }

    /// A target is to be looked at.
    pub fn mark(&mut self, id: TargetId) {
        self.later.retain(|(_, later)| *later != id);
        self.dirty.entry(id).or_insert_with(Instant::now);
    }

    /// Takes targets to look at now, at most so many; each counts as busy until it is done. `decide` is asked for each
    /// that could be looked at, with the time since which it is to be.
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

    /// A target has been looked at.
    pub fn done(&mut self, id: &TargetId) {
        self.busy.remove(id);
    }

    /// Looks at a target again at a time, unless something makes it worth it before.
    pub fn look_again(&mut self, id: &TargetId, due: Instant) {
        self.later.insert((due, id.clone()));
    }
}
