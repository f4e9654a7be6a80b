//! Owns when the API server was last heard of: whether what a replica has cached may be old. What that means for readiness is
//! left to the endpoints.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// When the API server was last heard of.
#[derive(Debug)]
pub struct ServerContact {
    begun: Instant,
    /// Milliseconds after `begun`.
    last: AtomicU64,
}

impl Default for ServerContact {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            last: AtomicU64::new(0),
        }
    }
}

impl ServerContact {
    /// A list, a watch or a request for a Lease has been answered, or a watch has shown something.
    pub fn heard(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// How long ago that was.
    pub fn silence(&self) -> Duration {
        let last = Duration::from_millis(self.last.load(Ordering::Relaxed));
        self.begun.elapsed().saturating_sub(last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn silence_ends_when_the_server_is_heard_of() {
        let contact = ServerContact::default();
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!(contact.silence(), Duration::from_secs(5));
        contact.heard();
        assert_eq!(contact.silence(), Duration::ZERO);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(contact.silence(), Duration::from_secs(2));
    }
}
