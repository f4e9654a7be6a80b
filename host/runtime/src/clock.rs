//! Owns the wall clock, so that a test can hold it. Waiting is tokio's matter and never depends on it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The time of day.
#[derive(Clone)]
pub enum WallClock {
    /// The machine's.
    System,
    /// A moment that moves on with tokio's clock, which a test may have paused.
    FromTokio {
        /// Milliseconds since the epoch at `since`.
        start: u64,
        /// When `start` was.
        since: Instant,
    },
    /// What the function says, in milliseconds since the epoch, for tests that make the clock jump.
    Custom(Arc<dyn Fn() -> u64 + Send + Sync>),
}

impl fmt::Debug for WallClock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::System => "System",
            Self::FromTokio { .. } => "FromTokio",
            Self::Custom(_) => "Custom",
        })
    }
}

impl WallClock {
    /// A clock that shows `start` (milliseconds since the epoch) now and follows tokio's.
    pub fn starting_at(start: u64) -> Self {
        Self::FromTokio {
            start,
            since: Instant::now(),
        }
    }

    /// Milliseconds since 1970-01-01T00:00:00Z.
    pub fn now(&self) -> u64 {
        let milliseconds = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::System => milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Self::FromTokio { start, since } => start.saturating_add(milliseconds(since.elapsed())),
            Self::Custom(function) => function(),
        }
    }

    /// As metav1.Time has it: RFC 3339, UTC, whole seconds.
    pub fn seconds(&self) -> String {
        timestamp(self.now()).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// As metav1.MicroTime has it: RFC 3339, UTC, six digits of a second.
    pub fn microseconds(&self) -> String {
        timestamp(self.now()).strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
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
}
