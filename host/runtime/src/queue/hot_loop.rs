//! The hot-loop limiter. An object that writes or crashes again and again, each time soon after the last, is slowed: its
//! answer depends on its own write, or somebody takes back what is written, or its calls cost more than they bring; without
//! this that would go on for ever. Other objects are not slowed with it.
//!
//! A run that answers a change of others costs them a write, too, so it does not count. These do: a run that writes again
//! what was written before, and a run that nobody else has caused and that writes an object that was written before, or the
//! status. A run that writes other objects than the runs before it comes to an end by itself.

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

/// The weight of a run that answers what others made of its object's own write, such as a controller that notes the
/// generation that it has seen: it may be the consequence of the write before, and go on for ever.
const ANSWERING_RUN: u32 = 4;

/// The time after a write in which what others make of it may be the consequence of that write alone.
const CONSEQUENCE: Duration = Duration::from_secs(1);

/// After so long without a run that counted, what comes next belongs to no hot loop.
pub const CALM: Duration = Duration::from_secs(10);

/// The longest that an object is slowed by.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Hot loops that are remembered before the old ones are looked for and forgotten.
const REMEMBERED: usize = 1000;

/// What a run did, as far as hot loops are concerned.
#[derive(Clone, Copy, Debug)]
pub struct RunRecord<'a> {
    /// Whose doing it was.
    pub cause: Cause,
    /// The objects that it wrote, its own status apart.
    pub writes: &'a Writes,
    /// Whether it wrote what the plugin says in the status.
    pub reported: bool,
    /// The digest of the status that it wrote, whoever says it.
    pub said: Option<u64>,
    /// Whether the call came to a bad end.
    pub crashed: bool,
    /// Who fights over what, if that was found out.
    pub contention: Option<&'a Arc<Failure>>,
}

impl RunRecord<'_> {
    /// The weight of the run; none if it ends a hot loop rather than going on with it. `repeats` is whether it wrote the
    /// same as the last run that wrote that object or the status: somebody has taken that back, perhaps another host that
    /// runs the same plugin and sees something else.
    fn weight(&self, before: Option<&HotLoopState>, repeats: bool, now: Instant) -> Option<u32> {
        let is_again = before.is_some_and(|before| self.writes.overlaps(&before.writes));
        let is_soon = before.is_some_and(|before| now < before.wrote + CONSEQUENCE);
        match self.cause {
            _ if self.crashed => Some(WHOLE_RUN),
            _ if self.writes.is_empty() && !self.reported && !repeats => None,
            // Whoever edits the object pays for each write with one of their own.
            Cause::Edit => Some(0),
            _ if repeats => Some(WHOLE_RUN),
            Cause::Answer if is_again && is_soon => Some(ANSWERING_RUN),
            // The write that is seen has counted itself, unless it was the first of its object.
            Cause::Echo if is_again => Some(WHOLE_RUN),
            Cause::Ours if is_again || self.writes.is_empty() => Some(WHOLE_RUN),
            Cause::Others | Cause::Answer | Cause::Echo | Cause::Ours => Some(0),
        }
    }
}

/// What a job is told of the hot loop that its object is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct HotLoop {
    /// Who fights over what, as far as an earlier run has found out.
    pub contention: Option<Arc<Failure>>,
    /// It has been calm for so long that the hot loop is over unless this run writes too.
    pub over: bool,
    /// Nothing but the status is written again and again, and nobody else has changed anything.
    pub of_status: bool,
    /// The same status is written again and again, because somebody takes it back.
    pub repeats: bool,
    /// Nobody else has caused this run.
    pub by_itself: bool,
    /// The objects that the runs before have written.
    pub writes: Writes,
}

impl HotLoop {
    /// What an earlier run found out, for a run that finds nothing to fight over itself.
    ///
    /// Where somebody takes the status back this is not told again. Another host that runs the same plugin would take this
    /// back, too, because it has found out something else or nothing, and the two would go on for ever about nothing but
    /// the condition.
    pub fn lasting_contention(&self) -> Option<Arc<Failure>> {
        self.contention.clone().filter(|_| !self.over && !self.repeats)
    }
}

/// The hot-loop limiter of one lane.
#[derive(Debug, Default)]
pub struct HotLoopLimiter {
    by_object: HashMap<Name, HotLoopState>,
    /// How many there were when the old ones were forgotten last.
    kept: usize,
}

#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct HotLoopState {
    /// What the runs counted.
    weight: u32,
    /// The last of them.
    last: Instant,
    /// How long the next one is held back; nothing while runs are free.
    wait: Duration,
    contention: Option<Arc<Failure>>,
    of_status: bool,
    /// The last run that wrote anything.
    wrote: Instant,
    /// The objects that were written, each as it was written last.
    writes: Writes,
    /// The digest of the status that was written last.
    said: Option<u64>,
    /// Whether a status was written twice in a row.
    repeats: bool,
    /// Whether anything was.
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

    /// Whether a run that counts now begins another hot loop. In a hot loop that takes longer: the run that looks
    /// whether it is over comes only when it is calm.
    fn is_past(&self, now: Instant) -> bool {
        now >= self.last + (CALM + self.wait) * if self.is_on() { 2 } else { 1 }
    }

    /// Whether what was written before does not matter any more either.
    fn is_forgotten(&self, now: Instant) -> bool {
        self.is_past(now) && now >= self.wrote + CALM
    }
}

impl HotLoopLimiter {
    /// Until when an object is held back, if it is.
    pub fn until(&self, name: &Name) -> Option<Instant> {
        self.by_object.get(name).map(|limit| limit.last + limit.wait)
    }

    /// The cause that counts where an object is queued for a change of another: others may have changed what it wrote.
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

    /// The hot loop that an object is in.
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

    /// An object has run. Says when it has to run again for the hot loop to be over, if it is in one.
    ///
    /// While runs are free, one that has nothing to write ends the hot loop, unless nobody else has caused it: objects that wake each other need not all write each time. After that only calm does: who takes back what
    /// is written may be slower than the run that finds it unharmed.
    pub fn ran(&mut self, name: &Name, run: &RunRecord<'_>, now: Instant) -> Option<Instant> {
        let known = self.by_object.get(name).filter(|known| !known.is_forgotten(now));
        let says_the_same = run.said.is_some() && self.by_object.get(name).is_some_and(|it| it.said == run.said);
        let repeats = says_the_same || known.is_some_and(|known| run.writes.repeats(&known.writes));
        // To write a status is to be remembered, though the host's own words count for nothing the first time.
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
        // What crashed is tried again when something has changed, and not to see whether it is calm.
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
            // Of three that write a status, two may agree: a run that finds its own words there does not end the
            // hot loop of those that are taken back.
            limit.weight = 0;
        }
        None
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
