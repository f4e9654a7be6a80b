//! Owns the queue of targets: a target is reconciled at once, or later if more claims are expected, if it was written
//! just now, or if somebody keeps reverting it. Makes no request.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::claims::{Contributions, TargetId};
use super::unclaimed::contributes;
use crate::hub::HostState;

/// Writes in a row that nobody asked for before a target is looked at less often.
const FREE_REVERTS: u32 = 10;

/// After so long without one, what comes next belongs to no hot loop.
const CALM: Duration = Duration::from_secs(10);

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

/// Writes in a row that no primary had asked for: somebody takes back what is ours.
#[derive(Default)]
pub struct RevertLimiter {
    count: u32,
    last: Option<Instant>,
    calm_at: Option<Instant>,
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

    /// A target has been looked at.
    pub fn done(&mut self, id: &TargetId) {
        self.busy.remove(id);
    }

    /// Looks at a target again at a time, unless something makes it worth it before.
    pub fn look_again(&mut self, id: &TargetId, due: Instant) {
        self.later.insert((due, id.clone()));
    }
}

impl RevertLimiter {
    /// Notes a write that nobody had asked for; when that happens again and again, looks become rare.
    pub fn note(&mut self, now: Instant, limit: impl Fn(u32) -> Duration) {
        let Self { count, last, calm_at } = self;
        let quiet_since = calm_at.or(*last);
        if quiet_since.is_some_and(|since| since + CALM < now) {
            *count = 0;
        }
        *count += 1;
        *last = Some(now);
        *calm_at = count.checked_sub(FREE_REVERTS).map(|over| now + limit(over));
    }
}

/// The targets to look at now, at most so many; they count as busy until [`Contributions::done`]. A target waits, for as
/// long as `linger`, while primaries of its plugin are about to make claims; and one that the host has just written, as
/// somebody's child or as a primary, until the cache shows it so.
pub fn take_due(state: &mut HostState, now: Instant, room: usize, linger: Duration) -> Vec<TargetId> {
    let HostState {
        contributions,
        queue,
        lanes,
        awaited,
        ..
    } = state;
    let Contributions { plugins, target_queue } = contributions;
    let TargetQueue { dirty, busy, later } = target_queue;
    while let Some((due, _)) = later.first()
        && *due <= now
        && let Some((due, id)) = later.pop_first()
    {
        dirty.entry(id).or_insert(due);
    }
    let mut more: HashMap<Arc<str>, bool> = HashMap::new();
    let mut more_to_come = |plugin: &Arc<str>| {
        *more.entry(plugin.clone()).or_insert_with(|| {
            let mut own = lanes.iter().filter(|lane| lane.plugin == *plugin && contributes(lane));
            own.any(|lane| queue.is_busy(lane.id))
        })
    };
    let (mut taken, mut resting) = (Vec::new(), Vec::new());
    let can_be_seen = |id: &TargetId| !busy.contains(id) && !awaited.contains_key(&id.1);
    for (id, since) in dirty.iter().filter(|(id, _)| can_be_seen(id)) {
        if taken.len() == room {
            break;
        }
        let target = plugins.get(&id.0).and_then(|book| book.targets.get(&id.1));
        let calm_at = target
            .filter(|target| target.waiters.is_empty())
            .and_then(|target| target.reverts.calm_at)
            .filter(|calm_at| *calm_at > now);
        let written = target.and_then(|target| target.written);
        if let Some(calm_at) = calm_at {
            resting.push((calm_at, id.clone()));
        } else if written.is_none_or(|written| written + linger <= now)
            && (*since + linger <= now || !more_to_come(&id.0))
        {
            taken.push(id.clone());
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
