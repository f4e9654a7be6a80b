//! Remembers the failures of primaries that fail at present. The queue counts them; here are the messages of some.

use std::collections::HashMap;

use pilothouse_core::Failure;
use pilothouse_core::text::printable::shorten;

use crate::lanes::primary::{LaneId, PrimaryRef};

/// The most failures that are remembered over all lanes, and for one lane: about a megabyte. The others are in the
/// conditions of their objects.
const MOST_FAILURES: usize = 1000;
const MOST_OF_LANE: usize = 100;

/// The longest message that is remembered, in bytes.
const LONGEST_MESSAGE: usize = 1024;

/// A primary that fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastingFailure {
    /// Time of the first failure, in milliseconds since the epoch.
    pub since: u64,
    /// Number of failures in a row.
    pub times: u32,
    /// Failure of the last run.
    pub failure: Failure,
}

/// Failures of primaries that fail at present.
#[derive(Debug, Default)]
pub struct FailureHistory {
    known: HashMap<PrimaryRef, LastingFailure>,
    of_lane: HashMap<LaneId, usize>,
}

impl FailureHistory {
    /// Records a run that ended at `now` (milliseconds since the epoch) after `times` failures in a row.
    pub fn record(&mut self, primary_ref: &PrimaryRef, failure: Option<&Failure>, times: u32, now: u64) {
        let Some(failure) = failure else {
            return self.forget(primary_ref);
        };
        let failure = Failure {
            message: shorten(failure.message.clone(), LONGEST_MESSAGE),
            ..failure.clone()
        };
        if let Some(known) = self.known.get_mut(primary_ref) {
            *known = LastingFailure {
                since: known.since,
                times,
                failure,
            };
            return;
        }
        let of_lane = self.of_lane.entry(primary_ref.lane).or_default();
        if self.known.len() >= MOST_FAILURES || *of_lane >= MOST_OF_LANE {
            return;
        }
        *of_lane += 1;
        let failure = LastingFailure {
            since: now,
            times,
            failure,
        };
        self.known.insert(primary_ref.clone(), failure);
    }

    /// Failure of a primary, if it is remembered.
    pub fn get(&self, primary_ref: &PrimaryRef) -> Option<&LastingFailure> {
        self.known.get(primary_ref)
    }

    /// All remembered failures.
    pub fn iter(&self) -> impl Iterator<Item = (&PrimaryRef, &LastingFailure)> {
        self.known.iter()
    }

    /// Forgets a primary that no longer fails, or was deleted.
    pub fn forget(&mut self, primary_ref: &PrimaryRef) {
        if self.known.remove(primary_ref).is_some()
            && let Some(of_lane) = self.of_lane.get_mut(&primary_ref.lane)
        {
            *of_lane -= 1;
        }
    }

    /// Forgets a removed lane.
    pub fn remove_lane(&mut self, lane: LaneId) {
        self.known.retain(|primary_ref, _| primary_ref.lane != lane);
        self.of_lane.remove(&lane);
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::Name;
    use pilothouse_core::status::reason::Reason;

    use super::*;

    fn primary(lane: u32, name: usize) -> PrimaryRef {
        PrimaryRef::new(LaneId(lane), Name::new(Some("a"), &name.to_string()))
    }

    #[test]
    fn failures_of_one_lane_leave_room_for_other_lanes() {
        let failure = Failure::user(Reason::Invalid, "x".repeat(5000));
        let mut history = FailureHistory::default();
        for name in 0..1000 {
            history.record(&primary(1, name), Some(&failure), 1, 7);
        }
        history.record(&primary(2, 0), Some(&failure), 1, 8);
        assert_eq!(history.iter().count(), MOST_OF_LANE + 1);
        history.record(&primary(2, 0), Some(&failure), 2, 9);
        let known = history.get(&primary(2, 0)).unwrap();
        assert_eq!((known.since, known.times), (8, 2));
        assert!(known.failure.message.len() <= LONGEST_MESSAGE);
        history.record(&primary(1, 0), None, 0, 10);
        history.record(&primary(1, 999), Some(&failure), 3, 11);
        assert!(history.get(&primary(1, 0)).is_none() && history.get(&primary(1, 999)).is_some());
        history.remove_lane(LaneId(1));
        assert_eq!(history.iter().count(), 1);
    }
}
