//! Owns what the guests of one plugin write to the log, and how much of it: a token bucket of bytes over all its calls,
//! whatever they are for. Lines above it are dropped and counted, and the count is logged from time to time.

use std::fmt::Write as _;
use std::time::Duration;

use parking_lot::Mutex;
use pilothouse_core::Name;
use pilothouse_core::contract::LogLevel;
use tokio::time::Instant;

/// How much a plugin may log at once, in bytes: as much as sixteen calls may at most.
const BURST: u64 = 1024 * 1024;

/// How much it may log in a second after that, in bytes.
const PER_SECOND: u64 = 32 * 1024;

/// What a line counts beside its words: the log adds the time, the plugin and the object.
const LINE: u64 = 128;

/// The least time between two lines that tell of dropped ones.
const TOLD_EVERY: Duration = Duration::from_secs(30);

/// The bucket of one plugin.
#[derive(Debug, Default)]
pub struct GuestLogLimiter(Mutex<ByteBucket>);

#[derive(Debug, Default)]
struct ByteBucket {
    /// Thousandths of bytes that have been taken and have not come back.
    taken: u64,
    /// When some came back last.
    filled: Option<Instant>,
    dropped: u64,
    told: Option<Instant>,
}

impl GuestLogLimiter {
    /// Logs one line of a guest, if there is room for it. The object is the one that the call is about, if there is one.
    pub fn log(
        &self,
        plugin: &str,
        object: Option<&Name>,
        level: LogLevel,
        message: &str,
        fields: &[(String, String)],
    ) {
        let is_asked_for = match level {
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
        self.tell(plugin);
        if !may_log {
            return;
        }
        let mut said = message.to_owned();
        for (name, value) in fields {
            write!(said, " {name}={value:?}").expect("writing to a String cannot fail");
        }
        let object = object.map(tracing::field::display);
        match level {
            LogLevel::Trace => tracing::trace!(target: "pilothouse::plugin", plugin, object, "{said}"),
            LogLevel::Debug => tracing::debug!(target: "pilothouse::plugin", plugin, object, "{said}"),
            LogLevel::Info => tracing::info!(target: "pilothouse::plugin", plugin, object, "{said}"),
            LogLevel::Warn => tracing::warn!(target: "pilothouse::plugin", plugin, object, "{said}"),
            LogLevel::Error => tracing::error!(target: "pilothouse::plugin", plugin, object, "{said}"),
        }
    }

    /// Whether a line of so many bytes may be logged.
    fn may_log(&self, bytes: usize) -> bool {
        let mut bucket = self.0.lock();
        let now = Instant::now();
        let since = bucket.filled.map_or(Duration::ZERO, |filled| now - filled);
        // Thousandths of bytes come back in milliseconds, so that nothing is lost to rounding.
        let milliseconds = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        if milliseconds > 0 || bucket.filled.is_none() {
            bucket.filled = Some(now);
            bucket.taken = bucket.taken.saturating_sub(milliseconds.saturating_mul(PER_SECOND));
        }
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).saturating_add(LINE);
        let taken = bucket.taken.saturating_add(bytes.saturating_mul(1000));
        // A line that is longer than the bucket is never logged, and neither is it the reason why others are not.
        if taken > BURST * 1000 {
            bucket.dropped = bucket.dropped.saturating_add(1);
            return false;
        }
        bucket.taken = taken;
        true
    }

    /// How many lines were dropped since this was told last, if it is time to tell it.
    fn to_tell(&self) -> Option<u64> {
        let mut bucket = self.0.lock();
        let is_due = bucket.told.is_none_or(|told| told.elapsed() >= TOLD_EVERY);
        if bucket.dropped == 0 || !is_due {
            return None;
        }
        bucket.told = Some(Instant::now());
        Some(std::mem::take(&mut bucket.dropped))
    }

    /// Says in the log that lines were dropped, if there were any and it is time to.
    pub fn tell(&self, plugin: &str) {
        if let Some(dropped) = self.to_tell() {
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

    /// How many of so many lines of a kilobyte are logged.
    fn logged(log_limiter: &GuestLogLimiter, lines: usize) -> u64 {
        (0..lines).map(|_| u64::from(log_limiter.may_log(1024 - 128))).sum()
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_log_lines_is_limited_and_counted() {
        let log_limiter = GuestLogLimiter::default();
        assert_eq!(logged(&log_limiter, 3000), BURST / 1024);
        assert_eq!(log_limiter.to_tell(), Some(3000 - BURST / 1024));
        assert_eq!(logged(&log_limiter, 10), 0);
        assert_eq!(log_limiter.to_tell(), None, "it was told just now");
        let mut trickle = 0;
        for _ in 0..10_000 {
            tokio::time::advance(Duration::from_millis(1)).await;
            trickle += logged(&log_limiter, 1);
        }
        let expected = 10 * PER_SECOND / 1024;
        assert!(trickle.abs_diff(expected) <= 2, "{trickle}, not {expected}");
        tokio::time::advance(TOLD_EVERY).await;
        assert_eq!(log_limiter.to_tell(), Some(10 + 10_000 - trickle));
        assert_eq!(log_limiter.to_tell(), None);
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
