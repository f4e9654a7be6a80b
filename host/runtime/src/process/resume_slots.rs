//! Owns how many primaries wait for what becomes of their claims without keeping a worker, and how many of them go on at
//! once after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Primaries that wait without a worker at most; more than these keep theirs.
const MOST_WAITING: usize = 2048;

/// Primaries that go on at once after waiting.
const RESUMED_AT_ONCE: usize = 16;

/// How many wait, and whose turn it is to go on.
pub struct ResumeSlots {
    count: AtomicUsize,
    turns: Arc<Semaphore>,
}

impl Default for ResumeSlots {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(RESUMED_AT_ONCE)),
        }
    }
}

impl ResumeSlots {
    /// One more waits, unless too many do.
    pub fn begin(&self) -> bool {
        let has_room = self.count.fetch_add(1, Ordering::Relaxed) < MOST_WAITING;
        if !has_room {
            self.end();
        }
        has_room
    }

    /// One of those who wait has come to its end.
    pub fn end(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for a turn to go on.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().acquire_owned().await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_more_wait_without_a_worker_than_there_is_room_for() {
        let slots = ResumeSlots::default();
        assert!((0..MOST_WAITING).all(|_| slots.begin()));
        assert!(!slots.begin());
        slots.end();
        assert!(slots.begin());
    }
}
