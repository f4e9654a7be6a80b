//! Owns what is remembered of reconciles for people who ask: the last runs of each primary (`runs`), the changes of others
//! that were reverted (`reverts`), and the failures that last (`failures`). Nothing is decided by it, and each part is
//! bounded, however many objects there are and whatever they do.

mod failures;
mod reverts;
mod runs;

pub use self::failures::{FailureHistory, LastingFailure};
pub use self::reverts::{Revert, RevertHistory};
pub use self::runs::{Run, RunHistory, RunResult};

use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::queue::{EndedRun, JobResult, ReconcileResult};

/// What is remembered of all primaries.
#[derive(Debug, Default)]
pub struct History {
    /// Their last runs.
    pub runs: RunHistory,
    /// What was reverted for them.
    pub reverts: RevertHistory,
    /// Why they fail.
    pub failures: FailureHistory,
}

impl History {
    /// A run is over, at a time in milliseconds since the epoch.
    pub fn note(&mut self, primary_ref: PrimaryRef, run: EndedRun, ended: &JobResult, now: u64) {
        let EndedRun {
            trigger,
            waited,
            took,
            failures,
        } = run;
        // What went meanwhile has a run of its own that says so.
        let Some(trigger) = trigger else { return };
        let result = match (&ended.failure, &ended.verdict) {
            (Some(failure), _) => RunResult::Failure(failure.blame, failure.reason),
            (None, ReconcileResult::Gone) => RunResult::Gone,
            (None, _) => RunResult::Success,
        };
        let wrote = !ended.writes.is_empty() || ended.said.is_some();
        self.failures.note(&primary_ref, ended.failure.as_ref(), failures, now);
        self.runs
            .note(primary_ref, Run::new(trigger, now, (waited, took), result, wrote));
    }

    /// A primary is gone.
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

    /// A lane is gone.
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
