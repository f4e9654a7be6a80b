//! Clock of the simulated cluster: the machine's, or tokio's, which stands still in tests that pause it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Source of timestamps.
#[derive(Clone, Default)]
pub enum Clock {
    /// The machine's wall clock.
    #[default]
    System,
    /// Starts at the given moment and moves with tokio's clock, so that paused time pauses it too.
    Tokio {
        /// The wall clock's time at `origin`.
        start: SystemTime,
        /// The moment of tokio's clock that corresponds to `start`.
        origin: tokio::time::Instant,
    },
    /// Whatever the function says, for tests that make the clock jump.
    Custom(Arc<dyn Fn() -> SystemTime + Send + Sync>),
}

impl Clock {
    /// A clock that follows tokio's from now on, and begins at 2026-01-01T00:00:00Z so that runs can be compared.
    pub fn virtual_time() -> Self {
        Self::Tokio {
            start: UNIX_EPOCH + Duration::from_hours(490_896),
            origin: tokio::time::Instant::now(),
        }
    }

    /// The time now.
    pub fn now(&self) -> SystemTime {
        match self {
            Self::System => SystemTime::now(),
            Self::Tokio { start, origin } => *start + origin.elapsed(),
            Self::Custom(function) => function(),
        }
    }

    /// RFC 3339 in whole seconds, as in `metadata.creationTimestamp`.
    pub(crate) fn timestamp(&self) -> String {
        rfc3339(self.now())
    }
}

/// RFC 3339 in whole seconds.
pub fn rfc3339(time: SystemTime) -> String {
    let elapsed = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let whole = i64::try_from(elapsed.as_secs()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_second(whole).map_or_else(|_| "9999-12-31T23:59:59Z".to_owned(), |stamp| stamp.to_string())
}

impl fmt::Debug for Clock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::System => "System",
            Self::Tokio { .. } => "Tokio",
            Self::Custom(_) => "Custom",
        };
        formatter.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn virtual_time_moves_only_with_tokios_clock() {
        let clock = Clock::virtual_time();
        assert_eq!(clock.timestamp(), "2026-01-01T00:00:00Z");
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(clock.timestamp(), "2026-01-01T00:01:30Z");
    }
}
