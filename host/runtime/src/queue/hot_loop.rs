//! Owns the hot-loop limiter: an object that writes or crashes again and again, each time soon after the last, is
//! slowed. Its answer depends on its own write, or somebody takes back what is written, or its calls cost more than
//! they bring; without this that would go on for ever. Other objects are not slowed with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::{Failure, Name, backoff};
use tokio::time::Instant;

use super::Cause;

/// Runs in a row that may write before an object is slowed.
pub const FREE_RUNS: u32 = 10;

/// What a run counts that writes on the host's own account, or crashes.
const WHOLE_RUN: u32 = 6;

/// What a run counts that writes nothing but the status, after somebody else has changed something: a status that
/// follows a rollout is written once for each step of it, and comes to an end with it.
const FOLLOWING_RUN: u32 = 1;

/// After so long without a run that wrote, what comes next belongs to no hot loop.
pub const CALM: Duration = Duration::from_secs(10);

/// The longest that an object is slowed by.
pub const LONGEST: Duration = Duration::from_secs(30);

/// Hot loops that are remembered before the old ones are looked for and forgotten.
const REMEMBERED: usize = 1000;

/// What a run did, as far as hot loops are concerned.
#[derive(Clone, Copy, Debug)]
pub struct RunRecord<'a> {
    /// What it was asked for.
    pub cause: Cause,
    /// Whether it wrote an object other than its own status.
    pub wrote: bool,
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
    /// How much it counts; none if it ends a hot loop rather than going on with it. `repeats` is whether it wrote the
    /// status that the run before had written: somebody has taken that back, perhaps another host that runs the same
    /// plugin and sees something else.
    fn counts(&self, repeats: bool) -> Option<u32> {
        match self.cause {
            _ if self.crashed => Some(WHOLE_RUN),
            _ if !self.wrote && !self.reported && !repeats => None,
            // Whoever edits the object pays for each write with one of their own.
            Cause::Edit => Some(0),
            Cause::Others if repeats => Some(WHOLE_RUN),
            Cause::Others if !self.wrote => Some(FOLLOWING_RUN),
            Cause::Others | Cause::Ours => Some(WHOLE_RUN),
        }
    }
}

/// What a job is told of the hot loop that its object is in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HotLoop {
    /// Who fights over what, as far as an earlier run has found out.
    pub contention: Option<Arc<Failure>>,
    /// It has been calm for so long that the hot loop is over unless this run writes too.
    pub over: bool,
    /// Nothing but the status is written again and again, and nobody else has changed anything.
    pub of_status: bool,
    /// The same status is written again and again, because somebody takes it back.
    pub repeats: bool,
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
struct HotLoopState {
    /// What the runs counted.
    weight: u32,
    /// The last of them.
    last: Instant,
    /// How long the next one is held back; nothing while runs are free.
    wait: Duration,
    contention: Option<Arc<Failure>>,
    of_status: bool,
    /// The digest of the status that was written last.
    said: Option<u64>,
    /// Whether one was written twice in a row.
    repeats: bool,
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

    /// Whether a run that writes now begins another hot loop. In a hot loop that takes longer: the run that looks
    /// whether it is over comes only when it is calm.
    fn is_forgotten(&self, now: Instant) -> bool {
        now >= self.last + (CALM + self.wait) * if self.is_on() { 2 } else { 1 }
    }
}

impl HotLoopLimiter {
    /// Until when an object is held back, if it is.
    pub fn until(&self, name: &Name) -> Option<Instant> {
        self.by_object.get(name).map(|limit| limit.last + limit.wait)
    }

    /// The hot loop that an object is in.
    pub fn hot_loop(&self, name: &Name, now: Instant) -> Option<HotLoop> {
        let limit = self.by_object.get(name)?;
        (limit.is_on() && !limit.is_forgotten(now)).then(|| HotLoop {
            contention: limit.contention.clone(),
            over: limit.is_over(now),
            of_status: limit.of_status,
            repeats: limit.repeats,
        })
    }

    /// An object has run. Says when it has to run again for the hot loop to be over, if it is in one.
    ///
    /// While runs are free, one that has nothing to write ends the hot loop, unless it was the host's own doing that it
    /// ran: objects that wake each other need not all write each time. After that only calm does: who takes back what
    /// is written may be slower than the run that finds it unharmed.
    pub fn ran(&mut self, name: &Name, run: &RunRecord<'_>, now: Instant) -> Option<Instant> {
        let repeats = run.said.is_some() && self.by_object.get(name).is_some_and(|it| it.said == run.said);
        // To write a status is to be remembered, though the host's own words count for nothing the first time.
        let counts = run.counts(repeats);
        let Some(counts) = counts.or_else(|| (run.said.is_some() && !self.by_object.contains_key(name)).then_some(0))
        else {
            let limit = self.by_object.get_mut(name)?;
            limit.said = run.said.or(limit.said);
            if limit.is_on() && !limit.is_over(now) {
                return Some(limit.calm());
            }
            if !limit.is_on() && run.cause == Cause::Ours {
                return None;
            }
            if limit.is_on() || limit.said.is_none() || limit.is_forgotten(now) {
                self.by_object.remove(name);
            } else if !limit.repeats {
                // Of three that write a status, two may agree: a run that finds its own words there does not end the
                // hot loop of those that are taken back.
                limit.weight = 0;
            }
            return None;
        };
        let before = self.by_object.get(name).filter(|limit| !limit.is_forgotten(now));
        if counts == 0 && before.is_none() && run.said.is_none() {
            self.by_object.remove(name);
            return None;
        }
        let weight = before.map_or(0, |limit| limit.weight).saturating_add(counts);
        let wait = match weight.checked_sub(FREE_RUNS * WHOLE_RUN) {
            None => Duration::ZERO,
            Some(over) => backoff::delay((over / WHOLE_RUN).saturating_add(1), seed(name)).min(LONGEST),
        };
        let limit = HotLoopState {
            weight,
            last: now,
            wait,
            contention: run.contention.cloned().or_else(|| before?.contention.clone()),
            of_status: run.reported && !run.wrote && run.cause == Cause::Ours,
            said: run.said.or_else(|| before?.said),
            repeats: repeats || before.is_some_and(|it| it.repeats),
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
