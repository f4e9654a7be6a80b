//! Owns what each plugin has used of the workers: start-time fair queueing over plugins, whose cost is known only when a
//! job is over.
//!
//! After Goyal, Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996: the plugin with the least time used is next, and
//! one that had nothing to do begins level with the one that was served last, so that idleness earns no credit. What is
//! running counts with what such a job of the plugin usually takes, or a plugin of long jobs would get all workers before
//! the first of them is over.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// How much of the usual time of a job is of the past: 7 parts in 8.
const SMOOTHING: u32 = 8;

/// What a plugin uses.
#[derive(Debug)]
pub struct Share {
    /// Its identity.
    pub plugin: Arc<str>,
    /// How many of its objects run at once.
    pub at_most: usize,
    /// How many run.
    pub running: usize,
    /// Nothing of it is begun before this time.
    pub paused: Option<Instant>,
    /// Whether one of its lanes has something to run.
    pub has_ready: bool,
    /// Whether it had something to run or to end when the queue was last looked at.
    busy: bool,
    /// The time that its jobs took, and what it was lifted by after it had nothing to do.
    used: Duration,
    usual: Duration,
}

impl Share {
    /// Nothing used yet.
    pub fn new(plugin: Arc<str>) -> Self {
        Self {
            plugin,
            at_most: 1,
            running: 0,
            paused: None,
            has_ready: false,
            busy: false,
            used: Duration::ZERO,
            usual: Duration::ZERO,
        }
    }

    /// What it has used, what runs included.
    pub fn claim(&self) -> Duration {
        let running = u32::try_from(self.running).unwrap_or(u32::MAX);
        self.used.saturating_add(self.usual.saturating_mul(running))
    }

    /// Whether one more may run; where only workers are free that are kept for plugins that have none at work, the first.
    pub fn may_run(&self, kept_free: bool) -> bool {
        self.paused.is_none() && self.running < self.at_most && (self.running == 0 || !kept_free)
    }

    /// Lifts a plugin that had nothing to do to where the others are.
    pub fn settle(&mut self, level: Duration) {
        if self.has_ready && !self.busy {
            self.used = self.used.max(level);
        }
        self.busy = self.has_ready || self.running > 0;
    }

    /// One of its jobs is over.
    pub fn end(&mut self, took: Duration) {
        self.running = self.running.saturating_sub(1);
        self.used = self.used.saturating_add(took);
        self.usual = (self.usual * (SMOOTHING - 1) + took) / SMOOTHING;
    }
}
