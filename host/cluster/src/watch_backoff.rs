//! Owns how long a watch waits between two tries, kube's watcher like every other watch here: exponentially, and with a
//! jitter that is the same in each run, so that a run under faults can be repeated.

use std::time::Duration;

use kube::runtime::utils::{Backoff, ResetTimerBackoff};
use pilothouse_core::backoff;

/// The longest wait of a watch between two tries.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);

/// After so long without a failure, what went wrong before does not count any more.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(2);

/// The waits after failures in a row.
#[derive(Debug, Default)]
pub(crate) struct WatchBackoff {
    failures: u32,
    seed: u64,
}

/// The waits of the watch of something; watches of different things that failed together come back apart.
pub(crate) fn watch_backoff(of: &str) -> ResetTimerBackoff<WatchBackoff> {
    let waits = WatchBackoff {
        failures: 0,
        seed: seed(of),
    };
    ResetTimerBackoff::new(waits, FORGOTTEN_AFTER)
}

/// A seed for the jitter, by what is watched: the same in each run.
pub(crate) fn seed(of: &str) -> u64 {
    of.bytes()
        .fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        Some(backoff::delay(self.failures, self.seed).min(LONGEST))
    }
}

impl Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_bound_and_begin_anew() {
        let mut waits = WatchBackoff::default();
        let first = waits.next().unwrap();
        let more: Vec<_> = waits.by_ref().take(20).collect();
        assert!(more.iter().all(|wait| *wait > first && *wait <= LONGEST), "{more:?}");
        waits.reset();
        assert_eq!(waits.next(), Some(first));
    }
}
