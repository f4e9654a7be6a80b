//! The hot-loop limiter. It slows an object that writes or crashes again and again, each time soon after the last: its
//! result depends on its own write, another writer reverts its writes, or its calls keep crashing. Without a limit that
//! would go on for ever. Other objects are not slowed.
//!
//! A run that answers a change of others does not count, because that change cost them a write, too. These count: a run
//! that writes again what was written before, and a run that nobody else caused and that writes an object written
//! before, or the status. A run that writes other objects than the runs before it is assumed to converge.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::status::backoff;
use pilothouse_core::{Failure, Key, Name};
use tokio::time::Instant;

use super::{Cause, Writes};

/// Runs in a row that may count before an object is slowed.
pub const FREE_RUNS: u32 = 10;

/// The weight of a run that counts.
const WHOLE_RUN: u32 = 6;

/// The weight of a run that answers what others made of its object's own write, such as a controller that sets
/// `observedGeneration`: it may be a consequence of the write before, and go on for ever.
const ANSWERING_RUN: u32 = 4;

/// Time after a write in which changes of others may be a consequence of that write alone.
const CONSEQUENCE: Duration = Duration::from_secs(1);

/// Time without a counted run after which the next one begins a new hot loop.
pub const CALM: Duration = Duration::from_secs(10);

/// Upper bound of the delay of an object.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Number of hot loops that are remembered before old ones are forgotten.
const REMEMBERED: usize = 1000;

/// Facts of a run that matter for hot loops.
#[derive(Clone, Copy, Debug)]
pub struct RunRecord<'a> {
    /// Cause of the run.
    pub cause: Cause,
    /// Objects that it wrote, except its own status.
    pub writes: &'a Writes,
    /// Set if it wrote the plugin's status.
    pub reported: bool,
    /// Digest of the status that it wrote, by the plugin or the host.
    pub said: Option<u64>,
    /// Set if the call crashed.
    pub crashed: bool,
    /// The conflicting writer and the fields, if known.
    pub contention: Option<&'a Arc<Failure>>,
}

impl RunRecord<'_> {
    /// The weight of the run; `None` if it ends a hot loop. `repeats` is set if it wrote the same as the last run that
    /// wrote that object or the status: another writer has reverted that since, perhaps another host that runs the same
    /// plugin and sees something else.
    fn weight(&self, before: Option<&HotLoopState>, repeats: bool, now: Instant) -> Option<u32> {
        let is_again = before.is_some_and(|before| self.writes.overlaps(&before.writes));
        let is_soon = before.is_some_and(|before| now < before.wrote + CONSEQUENCE);
        match self.cause {
            _ if self.crashed => Some(WHOLE_RUN),
            _ if self.writes.is_empty() && !self.reported && !repeats => None,
            // Each edit by others costs them a write of their own.
            Cause::Edit => Some(0),
            _ if repeats => Some(WHOLE_RUN),
            Cause::Answer if is_again && is_soon => Some(ANSWERING_RUN),
            // The echoed write has been counted itself, unless it was the first of its object.
            Cause::Echo if is_again => Some(WHOLE_RUN),
            Cause::Ours if is_again || self.writes.is_empty() => Some(WHOLE_RUN),
            Cause::Others | Cause::Answer | Cause::Echo | Cause::Ours => Some(0),
        }
    }
}

/// State of the hot loop that an object is in, as a job sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct HotLoop {
    /// The conflicting writer and the fields, as found by an earlier run.
    pub contention: Option<Arc<Failure>>,
    /// Set if it has been calm for so long that the hot loop is over unless this run writes, too.
    pub over: bool,
    /// Set if only the status is written again and again, without changes by others.
    pub of_status: bool,
    /// Set if the same status is written again and again, because another writer reverts it.
    pub repeats: bool,
    /// Set if this run was not caused by others.
    pub by_itself: bool,
    /// Objects that earlier runs wrote.
    pub writes: Writes,
}

impl HotLoop {
    /// The contention that an earlier run found, for a run that finds none itself.
    ///
    /// `None` if the status itself is reverted. Another host that runs the same plugin would revert this, too, because
    /// it has found something else or nothing, and the two would fight for ever over the condition alone.
    pub fn lasting_contention(&self) -> Option<Arc<Failure>> {
        self.contention.clone().filter(|_| !self.over && !self.repeats)
    }
}

/// The hot-loop limiter of one lane.
#[derive(Debug, Default)]
pub struct HotLoopLimiter {
    by_object: HashMap<Name, HotLoopState>,
    /// Number of entries after old ones were last forgotten.
    kept: usize,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct HotLoopState {
    /// Sum of the weights of the runs.
    weight: u32,
    /// Time of the last counted run.
    last: Instant,
    /// Delay of the next run; zero while runs are free.
    wait: Duration,
    contention: Option<Arc<Failure>>,
    of_status: bool,
    /// Time of the last run that wrote anything.
    wrote: Instant,
    /// Objects that were written, each with its last body.
    writes: Writes,
    /// Digest of the last written status.
    said: Option<u64>,
    /// Set if a status was written twice in a row.
    repeats: bool,
    /// Set if anything was written twice in a row.
    is_taken_back: bool,
    crashed: bool,
}

impl HotLoopState {
    fn is_on(&self) -> bool {
        self.weight >= FREE_RUNS * WHOLE_RUN
    }

    fn is_over(&self, now: Instant) -> bool {
        now >= self.calm()
    }

    fn calm(&self) -> Instant {
        self.last + CALM + self.wait
    }

    /// Returns `true` if a counted run now begins another hot loop. In a hot loop that takes twice as long: the run
    /// that checks whether it is over starts only after the calm.
    fn is_past(&self, now: Instant) -> bool {
        now >= self.last + (CALM + self.wait) * if self.is_on() { 2 } else { 1 }
    }

    /// Returns `true` if earlier writes no longer matter either.
    fn is_forgotten(&self, now: Instant) -> bool {
        self.is_past(now) && now >= self.wrote + CALM
    }
}

impl HotLoopLimiter {
    /// Time until which an object is held back, if it is.
    pub fn until(&self, name: &Name) -> Option<Instant> {
        self.by_object.get(name).map(|limit| limit.last + limit.wait)
    }

    /// Returns the cause that counts if an object is queued for a change of another: that one may be an answer to its
    /// own write.
    pub fn cause(&self, name: &Name, cause: Cause, changed: Option<&Key>) -> Cause {
        let has_written = |key| {
            let limit = self.by_object.get(name);
            limit.is_some_and(|limit| limit.writes.of(key).is_some())
        };
        match cause {
            Cause::Others if changed.is_some_and(has_written) => Cause::Answer,
            cause => cause,
        }
    }

    /// State of the hot loop that an object is in.
    pub fn hot_loop(&self, name: &Name, cause: Cause, now: Instant) -> Option<HotLoop> {
        let limit = self.by_object.get(name)?;
        (limit.is_on() && !limit.is_past(now)).then(|| HotLoop {
            contention: limit.contention.clone(),
            over: limit.is_over(now),
            of_status: limit.of_status,
            repeats: limit.repeats,
            by_itself: cause < Cause::Others,
            writes: limit.writes.clone(),
        })
    }

    /// Records a run. Returns the time of the run that checks whether the hot loop is over, if there is one.
    ///
    /// While runs are free, a run with nothing to write ends the hot loop, unless nobody else caused it: objects that
    /// wake each other need not all write each time. After that only calm ends it: whoever reverts the writes may be
    /// slower than the run that finds them unharmed.
    pub fn ran(&mut self, name: &Name, run: &RunRecord<'_>, now: Instant) -> Option<Instant> {
        let known = self.by_object.get(name).filter(|known| !known.is_forgotten(now));
        let says_the_same = run.said.is_some() && self.by_object.get(name).is_some_and(|it| it.said == run.said);
        let repeats = says_the_same || known.is_some_and(|known| run.writes.repeats(&known.writes));
        // A written status has to be remembered, although a status of the host itself has no weight the first time.
        let weight = run.weight(known, repeats, now);
        let Some(weight) = weight.or_else(|| (run.said.is_some() && !self.by_object.contains_key(name)).then_some(0))
        else {
            return self.wrote_nothing(name, run, now);
        };
        let before = known.filter(|before| !before.is_past(now) && (weight > 0 || !before.is_over(now)));
        let total = before.map_or(0, |before| before.weight).saturating_add(weight);
        let wait = match total.checked_sub(FREE_RUNS * WHOLE_RUN) {
            None => Duration::ZERO,
            Some(over) => backoff::delay((over / WHOLE_RUN).saturating_add(1), seed(name)).min(LONGEST),
        };
        let mut writes = known.map(|known| known.writes.clone()).unwrap_or_default();
        writes.remember(run.writes);
        let limit = HotLoopState {
            weight: total,
            last: before.filter(|_| weight == 0).map_or(now, |before| before.last),
            wait,
            contention: run.contention.cloned().or_else(|| before?.contention.clone()),
            of_status: run.reported && run.writes.is_empty() && run.cause == Cause::Ours,
            wrote: now,
            writes,
            said: run.said.or_else(|| known?.said),
            repeats: says_the_same || before.is_some_and(|it| it.repeats),
            is_taken_back: repeats || before.is_some_and(|it| it.is_taken_back),
            crashed: run.crashed,
        };
        // An object that crashed is retried when something has changed, not to check for calm.
        let calm = (limit.is_on() && !limit.crashed).then(|| limit.calm());
        self.by_object.insert(name.clone(), limit);
        if self.by_object.len() >= REMEMBERED.max(2 * self.kept) {
            self.by_object.retain(|_, limit| !limit.is_forgotten(now));
            self.kept = self.by_object.len();
        }
        calm
    }

    fn wrote_nothing(&mut self, name: &Name, run: &RunRecord<'_>, now: Instant) -> Option<Instant> {
        let limit = self.by_object.get_mut(name)?;
        limit.said = run.said.or(limit.said);
        if limit.is_on() && !limit.is_over(now) {
            return Some(limit.calm());
        }
        if !limit.is_on() && run.cause < Cause::Others {
            return None;
        }
        if limit.is_on() || limit.is_forgotten(now) {
            self.by_object.remove(name);
        } else if !limit.is_taken_back {
            // If three writers fight over a status, two may agree: a run that finds its own status there does not end
            // the hot loop of reverted writes.
            limit.weight = 0;
        }
        None
    }
}

/// Seed of the jitter, the same in each run: FNV-1a over namespace and name.
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
