//! The wall clock, so that a test can control it, the detection of its jumps, and waiting for an optional time. Timers
//! are tokio's and do not depend on the wall clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Interval at which jumps of the wall clock are looked for, while an object waits for a time of day.
pub const JUMP_LOOK: Duration = Duration::from_secs(5);

/// Deviation of the wall clock in milliseconds that counts as a jump. A clock that is only slewed also gets there after
/// a while.
const JUMP: i64 = 1000;

/// Minimum time, in milliseconds, after which a call that compared with a future moment is repeated: otherwise a plugin
/// that always asks for the next millisecond would never rest.
const LEAST_WAIT: u64 = 1000;

/// Sleeps until a time; for ever if there is none.
pub async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Time at which an object runs again that compared with a future moment now; all in milliseconds since the epoch.
pub fn next_look(now: u64, moment: u64) -> u64 {
    moment.max(now.saturating_add(LEAST_WAIT))
}

/// Wall clock.
#[derive(Clone, Debug)]
pub enum WallClock {
    /// Clock of the machine.
    System,
    /// A moment that advances with tokio's clock, which a test may have paused.
    FromTokio {
        /// Milliseconds since the epoch at `since`.
        start: u64,
        /// Time of `start`.
        since: Instant,
        /// Milliseconds by which it has been set forward (or back) since.
        set: Arc<AtomicI64>,
    },
}

/// Detects jumps of the wall clock, by comparison with the monotonic clock.
#[derive(Debug)]
pub struct JumpWatch {
    clock: WallClock,
    base: Instant,
    /// Wall-clock time at `base`, computed backwards from the last observation.
    expected: i64,
}

impl JumpWatch {
    /// Makes a watch that takes the present time as correct.
    pub fn new(clock: WallClock) -> Self {
        let mut watch = Self {
            clock,
            base: Instant::now(),
            expected: 0,
        };
        watch.expected = watch.origin();
        watch
    }

    /// Returns `true` if the clock has jumped since the last call.
    pub fn take_jump(&mut self) -> bool {
        let origin = self.origin();
        if origin.saturating_sub(self.expected).abs() < JUMP {
            return false;
        }
        self.expected = origin;
        true
    }

    fn origin(&self) -> i64 {
        let elapsed = i64::try_from(self.base.elapsed().as_millis()).unwrap_or(i64::MAX);
        i64::try_from(self.clock.now())
            .unwrap_or(i64::MAX)
            .saturating_sub(elapsed)
    }
}

impl WallClock {
    /// A clock that shows `start` (milliseconds since the epoch) now and follows tokio's.
    pub fn starting_at(start: u64) -> Self {
        Self::FromTokio {
            start,
            since: Instant::now(),
            set: Arc::default(),
        }
    }

    /// Sets a clock that follows tokio's forward by this many milliseconds (or back), for all clones. The machine's
    /// clock cannot be set.
    pub fn set_forward(&self, milliseconds: i64) {
        if let Self::FromTokio { set, .. } = self {
            set.fetch_add(milliseconds, Ordering::Relaxed);
        }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn now(&self) -> u64 {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::System => milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Self::FromTokio { start, since, set } => start
                .saturating_add(milliseconds(since.elapsed()))
                .saturating_add_signed(set.load(Ordering::Relaxed)),
        }
    }

    /// Formats the time as metav1.Time: RFC 3339, UTC, whole seconds.
    pub fn seconds(&self) -> String {
        rfc3339(self.now())
    }

    /// Formats the time as metav1.MicroTime: RFC 3339, UTC, six digits of a second.
    pub fn microseconds(&self) -> String {
        timestamp(self.now()).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
}

/// Formats milliseconds since the epoch as RFC 3339, UTC, whole seconds.
pub fn rfc3339(milliseconds: u64) -> String {
    timestamp(milliseconds).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn timestamp(milliseconds: u64) -> jiff::Timestamp {
    i64::try_from(milliseconds)
        .ok()
        .and_then(|milliseconds| jiff::Timestamp::from_millisecond(milliseconds).ok())
        .unwrap_or(jiff::Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_held_clock_moves_with_tokio() {
        let clock = WallClock::starting_at(1_767_323_045_123);
        assert_eq!(clock.seconds(), "2026-01-02T03:04:05Z");
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(clock.microseconds(), "2026-01-02T03:04:05.125000Z");
    }

    #[test]
    fn who_asks_for_the_next_millisecond_is_asked_again_in_a_second() {
        assert_eq!(next_look(10_000, 10_001), 11_000);
        assert_eq!(next_look(10_000, 99_000), 99_000);
        assert_eq!(next_look(u64::MAX, u64::MAX), u64::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_jump_is_noticed_once_and_slewing_is_not() {
        let clock = WallClock::starting_at(1_767_323_045_000);
        let mut watch = JumpWatch::new(clock.clone());
        for _ in 0..1000 {
            tokio::time::advance(Duration::from_hours(1)).await;
            assert!(!watch.take_jump());
        }
        for jump in [3_600_000, -3_600_000, 1000, -1000] {
            clock.set_forward(jump);
            assert!(watch.take_jump(), "{jump}");
            assert!(!watch.take_jump(), "{jump}");
        }
        let noticed = (0..25).filter(|_| {
            clock.set_forward(100);
            watch.take_jump()
        });
        assert_eq!(noticed.count(), 2);
    }
}
