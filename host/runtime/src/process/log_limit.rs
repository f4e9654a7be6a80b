//! Limits the log lines of one plugin's guests: a minimum level, and a token bucket of bytes over all its calls. Lines
//! above the limit are dropped and counted, and the count is logged from time to time.
//!
//! The level is that of the host's log filter, or one chosen for the plugin while the host runs. Lines that a chosen
//! level admits have the target `pilothouse::plugin::chosen`, which the host's filter always admits.

use std::fmt::Write as _;
use std::str::FromStr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_core::Name;
use pilothouse_core::plugin::contract::LogLevel;
use tokio::time::Instant;

/// Size of the bucket, in bytes: as much as sixteen calls may log at most.
const BURST: u64 = 1024 * 1024;

/// Refill of the bucket, in bytes per second.
const PER_SECOND: u64 = 32 * 1024;

/// Bytes that a line counts in addition to its text: the log adds the time, the plugin and the object.
const LINE: u64 = 128;

/// Minimum time between two log lines about dropped ones.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// Marker that the level of the log filter applies.
const BY_FILTER: u8 = u8::MAX;

/// A level chosen for one plugin: lines of this level and more severe ones are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChosenLevel(u8);

impl FromStr for ChosenLevel {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let chosen = levels.iter().position(|level| *level == text).ok_or(())?;
        u8::try_from(chosen).map(Self).map_err(|_| ())
    }
}

/// Severity of a level; the smallest number is the most severe.
fn rank(level: LogLevel) -> u8 {
    match level {
        LogLevel::Error => 1,
        LogLevel::Warn => 2,
        LogLevel::Info => 3,
        LogLevel::Debug => 4,
        LogLevel::Trace => 5,
    }
}

/// Logs a line at its level.
macro_rules! log_line {
    ($target:literal, $level:expr, $plugin:expr, $object:expr, $said:expr) => {{
        let (plugin, object) = ($plugin, $object);
        match $level {
            LogLevel::Trace => tracing::trace!(target: $target, plugin, object, "{}", $said),
            LogLevel::Debug => tracing::debug!(target: $target, plugin, object, "{}", $said),
            LogLevel::Info => tracing::info!(target: $target, plugin, object, "{}", $said),
            LogLevel::Warn => tracing::warn!(target: $target, plugin, object, "{}", $said),
            LogLevel::Error => tracing::error!(target: $target, plugin, object, "{}", $said),
        }
    }};
}

/// Level and bucket of one plugin.
#[derive(Debug)]
pub struct GuestLogLimiter {
    bucket: Mutex<ByteBucket>,
    /// Rank of the least severe lines that are logged, or [`BY_FILTER`].
    chosen: AtomicU8,
}

impl Default for GuestLogLimiter {
    fn default() -> Self {
        Self {
            bucket: Mutex::default(),
            chosen: AtomicU8::new(BY_FILTER),
        }
    }
}

#[derive(Debug, Default)]
struct ByteBucket {
    /// Thousandths of bytes that are taken from the bucket.
    taken: u64,
    /// Time of the last refill.
    filled: Option<Instant>,
    dropped: u64,
    told: Option<Instant>,
}

impl GuestLogLimiter {
    /// Logs one line of a guest, unless the limit is reached. `object` is the subject of the call, if there is one.
    pub fn log(
        &self,
        plugin: &str,
        object: Option<&Name>,
        level: LogLevel,
        message: &str,
        fields: &[(String, String)],
    ) {
        let chosen = self.chosen.load(Ordering::Relaxed);
        let is_asked_for = match level {
            _ if chosen != BY_FILTER => rank(level) <= chosen,
            LogLevel::Trace => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::TRACE),
            LogLevel::Debug => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::DEBUG),
            LogLevel::Info => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::INFO),
            LogLevel::Warn => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::WARN),
            LogLevel::Error => tracing::enabled!(target: "pilothouse::plugin", tracing::Level::ERROR),
        };
        if !is_asked_for {
            return;
        }
        let bytes = fields
            .iter()
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>()
            + message.len();
        let may_log = self.may_log(bytes);
        self.log_dropped(plugin);
        if !may_log {
            return;
        }
        let mut said = message.to_owned();
        for (name, value) in fields {
            write!(said, " {name}={value:?}").expect("writing to a String cannot fail");
        }
        let object = object.map(tracing::field::display);
        if chosen == BY_FILTER {
            log_line!("pilothouse::plugin", level, plugin, object, said);
        } else {
            log_line!("pilothouse::plugin::chosen", level, plugin, object, said);
        }
    }

    /// Logs lines from this level on, independent of the log filter; `None`: as the filter says.
    pub fn choose(&self, level: Option<ChosenLevel>) {
        let rank = level.map_or(BY_FILTER, |ChosenLevel(rank)| rank);
        self.chosen.store(rank, Ordering::Relaxed);
    }

    /// Takes the bytes of a line from the bucket. Returns `true` if the line may be logged.
    fn may_log(&self, bytes: usize) -> bool {
        let mut bucket = self.bucket.lock();
        let now = Instant::now();
        let since = bucket.filled.map_or(Duration::ZERO, |filled| now - filled);
        // Thousandths of bytes are refilled per millisecond, so that nothing is lost to rounding.
        let milliseconds = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        if milliseconds > 0 || bucket.filled.is_none() {
            bucket.filled = Some(now);
            bucket.taken = bucket.taken.saturating_sub(milliseconds.saturating_mul(PER_SECOND));
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(LINE);
        let taken = bucket.taken.saturating_add(bytes.saturating_mul(1000));
        // A line that is larger than the bucket is never logged, and does not block others.
        if taken > BURST * 1000 {
            bucket.dropped = bucket.dropped.saturating_add(1);
            return false;
        }
        bucket.taken = taken;
        true
    }

    /// Takes the number of dropped lines to report, if a report is due.
    fn take_dropped(&self) -> Option<u64> {
        let mut bucket = self.bucket.lock();
        let is_due = bucket.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        if bucket.dropped == 0 || !is_due {
            return None;
        }
        bucket.told = Some(Instant::now());
        Some(std::mem::take(&mut bucket.dropped))
    }

    /// Logs the number of dropped lines, if a report is due.
    pub fn log_dropped(&self, plugin: &str) {
        if let Some(dropped) = self.take_dropped() {
            tracing::warn!(
                target: "pilothouse::plugin",
                plugin,
                dropped,
                "the plugin logs more than {PER_SECOND} bytes a second; lines of it are dropped until it logs less"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Number of logged lines, out of this many of one kilobyte.
    fn logged(log_limiter: &GuestLogLimiter, lines: usize) -> u64 {
        (0..lines).map(|_| u64::from(log_limiter.may_log(1024 - 128))).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_log_lines_is_limited_and_counted() {
        let log_limiter = GuestLogLimiter::default();
        assert_eq!(logged(&log_limiter, 3000), BURST / 1024);
        assert_eq!(log_limiter.take_dropped(), Some(3000 - BURST / 1024));
        assert_eq!(logged(&log_limiter, 10), 0);
        assert_eq!(log_limiter.take_dropped(), None, "it was told just now");
        let mut trickle = 0;
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            trickle += logged(&log_limiter, 1);
        }
        let expected = 10 * PER_SECOND / 1024;
        assert!(trickle.abs_diff(expected) <= 2, "{trickle}, not {expected}");
        tokio::time::advance(TOLD_EVERY).await;
        assert_eq!(log_limiter.take_dropped(), Some(10 + 10_000 - trickle));
        assert_eq!(log_limiter.take_dropped(), None);
    }

    #[test]
    fn a_level_is_one_of_the_logs_own() {
        let ranks =
            ["off", "error", "warn", "info", "debug", "trace"].map(|text| text.parse::<ChosenLevel>().map(|it| it.0));
        assert_eq!(ranks, [Ok(0), Ok(1), Ok(2), Ok(3), Ok(4), Ok(5)]);
        for refused in ["", "DEBUG", "verbose", "5"] {
            assert_eq!(refused.parse::<ChosenLevel>(), Err(()), "{refused}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn empty_lines_cost_something_and_overlong_lines_block_none() {
        let log_limiter = GuestLogLimiter::default();
        assert!(!log_limiter.may_log(usize::MAX));
        assert!(log_limiter.may_log(10));
        let empty = (0..100_000).filter(|_| log_limiter.may_log(0)).count();
        assert!(empty < 10_000, "{empty}");
    }
}
