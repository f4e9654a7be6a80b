//! Records the last runs of primaries in one ring, in which each run points to the previous one of its primary. A run
//! that equals the previous one and wrote nothing is counted there and takes no place of its own, so that resyncs and
//! retries do not push out other runs.
//!
//! Memory: [`MOST_RUNS`] runs in all, about 2 MB with the primaries' names and triggers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Blame, Key};

use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::queue::Trigger;

/// The most runs that are remembered, over all primaries.
const MOST_RUNS: usize = 12_000;

/// The most primaries with an entry, existing or not: the number at which the table would double.
const MOST_ENTRIES: usize = 14_000;

/// The most runs of one primary that are shown.
const MOST_SHOWN: usize = 10;

/// Result of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunResult {
    /// The run succeeded.
    Success,
    /// The object was gone.
    Gone,
    /// The object was paused, before the run or meanwhile.
    Paused,
    /// The run failed.
    Failure(Blame, Reason),
}

/// A run, or several equal ones in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// Trigger of the run.
    pub trigger: Trigger,
    /// End of the run, in milliseconds since the epoch; of several, the last.
    pub ended: u64,
    /// Duration in milliseconds.
    took: u32,
    /// Time in the queue, in milliseconds.
    waited: u32,
    /// Number of equal runs directly before.
    pub repeats: u32,
    /// Result of the run.
    pub result: RunResult,
    /// Set if it wrote anything.
    pub wrote: bool,
}

impl Run {
    /// Makes a run that ended at `ended` (milliseconds since the epoch).
    pub fn new(
        trigger: Trigger,
        ended: u64,
        (waited, took): (Duration, Duration),
        result: RunResult,
        wrote: bool,
    ) -> Self {
        Self {
            trigger,
            ended,
            took: milliseconds(took),
            waited: milliseconds(waited),
            repeats: 0,
            result,
            wrote,
        }
    }

    /// Duration without the time that it was parked.
    pub fn took(&self) -> Duration {
        Duration::from_millis(self.took.into())
    }

    /// Time that the object was queued before.
    pub fn waited(&self) -> Duration {
        Duration::from_millis(self.waited.into())
    }

    fn is_like(&self, other: &Self) -> bool {
        self.trigger == other.trigger && self.result == other.result && !self.wrote && !other.wrote
    }
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

/// A run with the number of its primary's previous run; its own number if there is none.
#[derive(Debug)]
struct LinkedRun {
    run: Run,
    before: u64,
}

/// The runs of all primaries.
#[derive(Debug, Default)]
pub struct RunHistory {
    ring: VecDeque<LinkedRun>,
    /// The number of the first run in the ring.
    first: u64,
    /// Number of each primary's last run. A number below `first` is that of a forgotten run.
    last: HashMap<PrimaryRef, u64>,
    /// Number of runs that name an object.
    with_object: usize,
}

impl RunHistory {
    /// Records a run.
    pub fn record(&mut self, primary_ref: PrimaryRef, run: Run) {
        let last = self.last.get(&primary_ref).copied();
        if let Some(known) = last.and_then(|last| self.get_mut(last))
            && known.run.is_like(&run)
        {
            known.run = Run {
                repeats: known.run.repeats.saturating_add(1),
                ..run
            };
            return;
        }
        if self.ring.len() >= MOST_RUNS
            && let Some(LinkedRun { run, before: _ }) = self.ring.pop_front()
        {
            self.first += 1;
            self.with_object -= usize::from(run.trigger.object.is_some());
        }
        let number = self.first + self.ring.len() as u64;
        self.with_object += usize::from(run.trigger.object.is_some());
        let before = last.unwrap_or(number);
        self.ring.push_back(LinkedRun { run, before });
        if last.is_none() && self.last.len() == self.last.capacity() && self.last.len() > MOST_ENTRIES / 2 {
            self.make_room();
        }
        self.last.insert(primary_ref, number);
    }

    /// Drops entries whose runs are all forgotten. The table is rebuilt: with removals and insertions in place it would
    /// double.
    fn make_room(&mut self) {
        let mut alive = HashMap::with_capacity(MOST_ENTRIES);
        let first = self.first;
        alive.extend(self.last.drain().filter(|(_, last)| *last >= first));
        self.last = alive;
    }

    /// Last runs of a primary, newest first.
    pub fn of(&self, primary_ref: &PrimaryRef) -> impl Iterator<Item = &Run> {
        let mut next = self.last.get(primary_ref).copied();
        let runs = std::iter::from_fn(move || {
            let number = next?;
            let linked = self.get(number)?;
            next = (linked.before != number).then_some(linked.before);
            Some(&linked.run)
        });
        runs.take(MOST_SHOWN)
    }

    /// Number of remembered runs, and their size in bytes without the names shared with the cache.
    pub fn size(&self) -> (usize, usize) {
        let runs = self.ring.capacity() * size_of::<LinkedRun>();
        let entries = self.last.capacity() * (size_of::<(PrimaryRef, u64)>() + 1);
        // Target of an `Arc`, with its two counts.
        let objects = self.with_object * (size_of::<Arc<()>>() * 2 + size_of::<Key>());
        (self.ring.len(), runs + entries + objects)
    }

    /// Forgets a deleted primary.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        self.last.remove(primary_ref);
    }

    /// Forgets a removed lane.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.last.retain(|primary_ref, _| primary_ref.lane != lane);
    }

    fn get(&self, number: u64) -> Option<&LinkedRun> {
        self.ring.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut LinkedRun> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.ring.get_mut(index)
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::{Kind, Name};

    use super::*;
    use crate::queue::TriggerReason;

    fn primary(name: &str) -> PrimaryRef {
        PrimaryRef::new(LaneId(1), Name::new(Some("a"), name))
    }

    fn run(reason: TriggerReason, ended: u64, wrote: bool) -> Run {
        let times = (Duration::from_millis(1), Duration::from_millis(2));
        Run::new(reason.into(), ended, times, RunResult::Success, wrote)
    }

    fn times(history: &RunHistory, name: &str) -> Vec<(u64, u32)> {
        let primary_ref = primary(name);
        let runs = history.of(&primary_ref);
        runs.map(|run| (run.ended, run.repeats)).collect()
    }

    #[test]
    fn runs_that_are_alike_and_write_nothing_take_one_place() {
        let mut history = RunHistory::default();
        for ended in 1..=3 {
            history.record(primary("x"), run(TriggerReason::Resync, ended, false));
        }
        history.record(primary("y"), run(TriggerReason::Resync, 4, false));
        history.record(primary("x"), run(TriggerReason::ObjectChanged, 5, true));
        history.record(primary("x"), run(TriggerReason::ObjectChanged, 6, true));
        history.record(primary("x"), run(TriggerReason::Resync, 7, false));
        assert_eq!(times(&history, "x"), [(7, 0), (6, 0), (5, 0), (3, 2)]);
        assert_eq!(times(&history, "y"), [(4, 0)]);
        assert_eq!(history.size().0, 5);
        history.forget(&primary("x"));
        assert_eq!(times(&history, "x"), []);
        history.record(primary("x"), run(TriggerReason::Started, 8, false));
        assert_eq!(times(&history, "x"), [(8, 0)], "those before were another object's");
        history.remove_lane(LaneId(1));
        assert_eq!(times(&history, "y"), []);
    }

    #[test]
    fn the_oldest_runs_go_first_and_a_chain_ends_where_they_went() {
        let mut history = RunHistory::default();
        history.record(primary("old"), run(TriggerReason::Started, 0, true));
        history.record(primary("x"), run(TriggerReason::Started, 1, true));
        for ended in 2..=MOST_RUNS as u64 {
            history.record(primary("busy"), run(TriggerReason::ObjectChanged, ended, true));
        }
        assert_eq!(times(&history, "old"), [], "its run was the first");
        assert_eq!(times(&history, "x"), [(1, 0)]);
        history.record(primary("x"), run(TriggerReason::ObjectChanged, 20_000, true));
        assert_eq!(times(&history, "x"), [(20_000, 0)]);
        assert_eq!(times(&history, "busy").len(), MOST_SHOWN);
    }

    #[test]
    fn ten_thousand_objects_and_more_take_two_megabytes_at_most() {
        let mut history = RunHistory::default();
        let kind = Arc::new(Kind::new("", "v1", "ConfigMap"));
        for round in 0..3 {
            for index in 0..20_000 {
                let primary_ref = primary(&index.to_string());
                let object = Arc::new(Key::new(kind.clone(), primary_ref.name.clone()));
                let mut run = run(TriggerReason::ChildChanged, round, true);
                run.trigger.object = Some(object);
                history.record(primary_ref, run);
            }
        }
        let (runs, bytes) = history.size();
        assert_eq!(runs, MOST_RUNS);
        assert!(bytes < 2_400_000, "{bytes}");
        let mut history = RunHistory::default();
        for index in 0..10_000 {
            history.record(primary(&index.to_string()), run(TriggerReason::Started, 0, true));
        }
        let (runs, bytes) = history.size();
        assert_eq!(runs, 10_000);
        assert!(bytes < 2_000_000, "{bytes}");
        assert!((0..10_000).all(|index| times(&history, &index.to_string()).len() == 1));
    }
}
