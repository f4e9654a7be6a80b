//! Decides when a target is settled less often, because another writer keeps reverting what is contributed to it.

use std::time::Duration;

use tokio::time::Instant;

/// Unrequested writes in a row before a target is settled less often.
const FREE_REVERTS: u32 = 10;

/// Time without one after which the next begins a new series.
const CALM: Duration = Duration::from_secs(10);

/// Counts writes in a row that no primary had requested: another writer reverts our fields.
#[derive(Default)]
pub struct RevertLimiter {
    count: u32,
    last: Option<Instant>,
    calm_at: Option<Instant>,
}

impl RevertLimiter {
    /// Records an unrequested write; after many of them, `limit` delays the next settlement.
    pub fn record(&mut self, now: Instant, limit: impl Fn(u32) -> Duration) {
        let Self { count, last, calm_at } = self;
        let quiet_since = calm_at.or(*last);
        if quiet_since.is_some_and(|since| since + CALM < now) {
            *count = 0;
        }
        *count += 1;
        *last = Some(now);
        *calm_at = count.checked_sub(FREE_REVERTS).map(|over| now + limit(over));
    }

    /// Time until which the target is left alone, if it is.
    pub fn calm_at(&self) -> Option<Instant> {
        self.calm_at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_target_that_is_reverted_again_and_again_is_slowed() {
        let mut limiter = RevertLimiter::default();
        let limit = |over| Duration::from_secs(1) * (over + 1);
        for _ in 1..FREE_REVERTS {
            limiter.record(Instant::now(), limit);
        }
        assert_eq!(limiter.calm_at(), None);
        limiter.record(Instant::now(), limit);
        assert_eq!(limiter.calm_at(), Some(Instant::now() + Duration::from_secs(1)));
        tokio::time::advance(CALM + Duration::from_secs(2)).await;
        limiter.record(Instant::now(), limit);
        assert_eq!(
            limiter.calm_at(),
            None,
            "what comes after a calm time belongs to no hot loop"
        );
    }
}
