//! Time of the last response of the API server: it tells whether a replica's cache may be old. The endpoints decide
//! what that means for readiness.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// Time of the last response of the API server.
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
    /// Records a response to a list, watch or Lease request, or a watch event.
    pub fn heard(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// Time since the last response.
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
