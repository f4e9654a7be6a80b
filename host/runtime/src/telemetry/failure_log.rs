//! Logs failed reconciles: the cause of each object's failure once, and what repeats it as counts. Retries of a few
//! hundred objects would fill the log otherwise.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_core::Failure;

use crate::lanes::lane::Lane;
use crate::lanes::primary::{LaneId, PrimaryRef};

/// Interval of the counts.
const INTERVAL: Duration = Duration::from_mins(1);

/// The most causes that a lane logs in an interval. The others of its objects are counted, and logged later.
const MOST_LOGGED: u32 = 100;

/// The most objects whose causes are remembered, over all lanes: about two megabytes. When there are more, all are
/// forgotten.
const MOST_REMEMBERED: usize = 20_000;

/// Causes that were logged, and counts of failures that were not.
#[derive(Default)]
pub struct FailureLog(Mutex<LoggedFailures>);

#[derive(Default)]
struct LoggedFailures {
    /// Digest of the cause that was last logged for a failing object.
    causes: HashMap<PrimaryRef, u64>,
    /// Present interval of each lane that has failures.
    lanes: BTreeMap<LaneId, LaneFailures>,
}

/// Failures of a lane in one interval.
#[derive(Default)]
struct LaneFailures {
    title: String,
    logged: u32,
    repeated: u64,
}

impl FailureLog {
    /// Returns `true` if the log does not have this cause of the object's failure yet, and records it as logged. A failure
    /// that is not to be logged is counted.
    pub fn take_news(&self, lane: &Lane, primary_ref: &PrimaryRef, failure: &Failure) -> bool {
        self.0.lock().take_news(primary_ref, || lane.title().clone(), failure)
    }

    /// Forgets an object that does not fail, or was deleted.
    pub fn recovered(&self, primary_ref: &PrimaryRef) {
        self.0.lock().causes.remove(primary_ref);
    }

    /// Logs the counts; never ends.
    pub async fn run(&self) {
        let mut interval = tokio::time::interval(INTERVAL);
        loop {
            interval.tick().await;
            let repeated = self.0.lock().take_repeated();
            for (lane, objects, failures) in repeated {
                tracing::warn!(
                    lane,
                    objects,
                    failures,
                    "reconciles failed again, for causes that the log has; `pilothouse status` lists the objects"
                );
            }
        }
    }
}

impl LoggedFailures {
    fn take_news(&mut self, primary_ref: &PrimaryRef, title: impl Fn() -> String, failure: &Failure) -> bool {
        let Failure {
            blame,
            reason,
            message,
            retry: _,
            at_least: _,
        } = failure;
        let mut digest = DefaultHasher::new();
        (blame, reason, message).hash(&mut digest);
        let cause = digest.finish();
        let lane = self.lanes.entry(primary_ref.lane).or_insert_with(|| LaneFailures {
            title: title(),
            ..LaneFailures::default()
        });
        if self.causes.get(primary_ref) == Some(&cause) || lane.logged >= MOST_LOGGED {
            lane.repeated += 1;
            return false;
        }
        lane.logged += 1;
        if self.causes.len() >= MOST_REMEMBERED {
            self.causes.clear();
        }
        self.causes.insert(primary_ref.clone(), cause);
        true
    }

    /// Ends the interval: the lanes with failures that were not logged, the number of their objects whose failures were,
    /// and the number of these failures.
    fn take_repeated(&mut self) -> Vec<(String, usize, u64)> {
        let mut objects: BTreeMap<LaneId, usize> = BTreeMap::new();
        for primary_ref in self.causes.keys() {
            *objects.entry(primary_ref.lane).or_default() += 1;
        }
        let lanes = std::mem::take(&mut self.lanes).into_iter();
        let repeated = lanes.filter(|(_, failures)| failures.repeated > 0);
        let with_objects = repeated.map(|(lane, failures)| {
            let objects = objects.get(&lane).copied().unwrap_or_default();
            (failures.title, objects, failures.repeated)
        });
        with_objects.collect()
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

    fn is_news(log: &mut LoggedFailures, primary_ref: &PrimaryRef, message: &str) -> bool {
        let title = || primary_ref.lane.0.to_string();
        log.take_news(primary_ref, title, &Failure::cluster(Reason::Forbidden, message))
    }

    #[test]
    fn a_cause_is_logged_once_and_its_retries_are_counted() {
        let mut log = LoggedFailures::default();
        for name in 0..3 {
            assert!(is_news(&mut log, &primary(1, name), "denied"));
            for _ in 0..10 {
                assert!(!is_news(&mut log, &primary(1, name), "denied"));
            }
        }
        assert!(is_news(&mut log, &primary(1, 0), "another cause"));
        assert!(is_news(&mut log, &primary(2, 0), "denied"));
        assert_eq!(log.take_repeated(), [("1".to_owned(), 3, 30)]);
        assert_eq!(log.take_repeated(), [], "it was quiet");
        assert!(!is_news(&mut log, &primary(1, 1), "denied"), "a minute changes nothing");
        log.causes.remove(&primary(1, 1));
        assert!(is_news(&mut log, &primary(1, 1), "denied"), "it had recovered");
    }

    #[test]
    fn a_flood_of_causes_is_spread_over_minutes() {
        let mut log = LoggedFailures::default();
        let mut minute = |number: usize| {
            let all = (0..250).filter(|name| is_news(&mut log, &primary(1, *name), "denied"));
            (number, all.count(), log.take_repeated()[0].2)
        };
        assert_eq!(
            [minute(0), minute(1), minute(2)],
            [(0, 100, 150), (1, 100, 150), (2, 50, 200)]
        );
        // One whose message always differs.
        let logged = (0..1000).filter(|number| is_news(&mut log, &primary(2, 0), &number.to_string()));
        assert_eq!(logged.count(), 100);
    }
}
