//! Records of reconciles for people: the last runs of each primary (`runs`), reverted changes of others (`reverts`),
//! and present failures (`failures`). No decision depends on them, and each part is bounded, independent of the number
//! of objects and their behaviour.

mod failures;
mod reverts;
mod runs;

pub use self::failures::{FailureHistory, LastingFailure};
pub use self::reverts::{Revert, RevertHistory};
pub use self::runs::{Run, RunHistory, RunResult};

use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::queue::{EndedRun, JobResult, ReconcileResult};

/// Records of all primaries.
#[derive(Debug, Default)]
pub struct History {
    /// Last runs.
    pub runs: RunHistory,
    /// Reverted changes.
    pub reverts: RevertHistory,
    /// Present failures.
    pub failures: FailureHistory,
}

impl History {
    /// Records a run that ended at `now` (milliseconds since the epoch). `is_paused` is set if its primary is paused.
    pub fn record(&mut self, primary_ref: PrimaryRef, run: EndedRun, ended: &JobResult, is_paused: bool, now: u64) {
        let EndedRun {
            trigger,
            waited,
            took,
            failures,
        } = run;
        // The run of an object that was deleted meanwhile is recorded by the run that follows.
        let Some(trigger) = trigger else { return };
        let result = match (&ended.failure, &ended.verdict) {
            (Some(failure), _) => RunResult::Failure(failure.blame, failure.reason),
            (None, ReconcileResult::Gone) => RunResult::Gone,
            (None, _) if is_paused => RunResult::Paused,
            (None, _) => RunResult::Success,
        };
        let wrote = !ended.writes.is_empty() || ended.said.is_some();
        self.failures
            .record(&primary_ref, ended.failure.as_ref(), failures, now);
        self.runs
            .record(primary_ref, Run::new(trigger, now, (waited, took), result, wrote));
    }

    /// Forgets a deleted primary.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        let Self {
            runs,
            reverts,
            failures,
        } = self;
        runs.forget(primary_ref);
        reverts.forget(primary_ref);
        failures.forget(primary_ref);
    }

    /// Forgets a removed lane.
    pub fn remove_lane(&mut self, lane: LaneId) {
        let Self {
            runs,
            reverts,
            failures,
        } = self;
        runs.remove_lane(lane);
        reverts.remove_lane(lane);
        failures.remove_lane(lane);
    }
}
