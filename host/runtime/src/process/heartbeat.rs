//! Heartbeat of the main loop: the time of its last turn, for other threads that check whether it still runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Maximum time between two turns of the main loop, also if there is nothing to do.
pub const BEAT: Duration = Duration::from_secs(1);

/// Time without a turn after which the main loop is stuck. Nothing that it or its thread does takes a tenth of that.
pub const LONGEST_TURN: Duration = Duration::from_secs(30);

/// Maximum time of a start before the main loop begins: plugins of the command line are fetched and compiled then.
const LONGEST_START: Duration = Duration::from_mins(15);

const STARTING: u8 = 0;
const TURNING: u8 = 1;
const STOPPING: u8 = 2;

/// Heartbeat of one host. Clones share it.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<HeartbeatState>);

#[derive(Debug)]
struct HeartbeatState {
    began: Instant,
    stage: AtomicU8,
    /// Milliseconds after `began`.
    last_turn: AtomicU64,
    longest_turn: Duration,
}

/// Reason why a host is not live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLive {
    /// The main loop does not turn.
    #[error(
        "the main loop has not turned for {} s, and turns each second while it works; report this as a bug, with the host's log",
        .0.as_secs()
    )]
    Stuck(Duration),
    /// The main loop has not begun.
    #[error(
        "the host has been starting for {} s; its log says what it waits for",
        .0.as_secs()
    )]
    Starting(Duration),
}

impl Default for Heartbeat {
    fn default() -> Self {
        Self::with_longest_turn(LONGEST_TURN)
    }
}

impl Heartbeat {
    /// Makes the heartbeat of a host that starts; its main loop is stuck after this time without a turn.
    pub fn with_longest_turn(longest_turn: Duration) -> Self {
        Self(Arc::new(HeartbeatState {
            began: Instant::now(),
            stage: AtomicU8::new(STARTING),
            last_turn: AtomicU64::new(0),
            longest_turn,
        }))
    }

    /// Records a turn of the main loop.
    pub fn turn(&self) {
        let now = u64::try_from(self.0.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.0.last_turn.store(now, Ordering::Release);
        self.0.stage.store(TURNING, Ordering::Release);
    }

    /// Records that the main loop has ended, and running work is finishing.
    pub fn stop(&self) {
        self.0.stage.store(STOPPING, Ordering::Release);
    }

    /// Returns `true` if the host is stopping.
    pub fn is_stopping(&self) -> bool {
        self.0.stage.load(Ordering::Acquire) == STOPPING
    }

    /// Time since the last turn of the main loop; `None` before its first and after its last.
    pub fn age(&self) -> Option<Duration> {
        let is_turning = self.0.stage.load(Ordering::Acquire) == TURNING;
        let last = Duration::from_millis(self.0.last_turn.load(Ordering::Acquire));
        is_turning.then(|| self.0.began.elapsed().saturating_sub(last))
    }

    /// Checks that the main loop turns, or has yet to begin. A host that is stopping is live: it ends by itself in
    /// time.
    pub fn check(&self) -> Result<(), NotLive> {
        if self.is_stopping() {
            return Ok(());
        }
        match self.age() {
            Some(age) if age > self.0.longest_turn => Err(NotLive::Stuck(age)),
            Some(_) => Ok(()),
            None => {
                let age = self.0.began.elapsed();
                if age > LONGEST_START {
                    return Err(NotLive::Starting(age));
                }
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loop_without_turns_is_stuck_unless_the_host_stops() {
        let heartbeat = Heartbeat::with_longest_turn(Duration::ZERO);
        assert_eq!(heartbeat.check(), Ok(()), "it has not begun");
        assert_eq!(heartbeat.age(), None);
        heartbeat.turn();
        while heartbeat.age() == Some(Duration::ZERO) {
            std::thread::yield_now();
        }
        assert!(matches!(heartbeat.check(), Err(NotLive::Stuck(_))));
        heartbeat.stop();
        assert_eq!(heartbeat.check(), Ok(()));
        assert!(heartbeat.is_stopping());
    }

    #[test]
    fn a_loop_that_turns_is_live() {
        let heartbeat = Heartbeat::default();
        heartbeat.turn();
        assert_eq!(heartbeat.check(), Ok(()));
        assert!(heartbeat.age().is_some_and(|age| age < LONGEST_TURN));
    }
}
