//! Limits how many primaries wait for their claims without a worker, and how many of them continue at once after that.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most primaries that wait without a worker; further ones keep theirs.
const MOST_WAITING: usize = 2048;

/// Primaries that continue at once after waiting.
const RESUMED_AT_ONCE: usize = 16;

/// Count of waiting primaries, and slots to continue.
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
    /// Counts one more waiting primary. Returns `false` if there are too many.
    pub fn begin(&self) -> bool {
        let has_room = self.count.fetch_add(1, Ordering::Relaxed) < MOST_WAITING;
        if !has_room {
            self.end();
        }
        has_room
    }

    /// Counts one fewer.
    pub fn end(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Waits for a slot to continue.
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
