//! Owns what each plugin has used of the workers: start-time fair queueing over plugins, whose cost is known only when a
//! job is over.
//!
//! After Goyal, Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996: the plugin with the least time used is next, and
//! one that had nothing to do begins level with the one that was served last, so that idleness earns no credit. What is
//! running counts with what such a job of the plugin usually takes, or a plugin of long jobs would get all workers before
//! the first of them is over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Tenant;
use tokio::time::Instant;

/// Of this many objects of a plugin that may run at once one is kept for tenants of which none runs, so that one whose
/// runs take long leaves some to the others.
const KEPT_FREE: usize = 4;

/// How much of the usual time of a job is of the past: 7 parts in 8.
const SMOOTHING: u32 = 8;

/// Nothing of some tenants is begun before a time.
#[derive(Debug)]
struct TenantPause {
    until: Instant,
    tenants: HashSet<Tenant>,
}

/// What a plugin uses.
#[derive(Debug)]
pub struct PluginShare {
    /// Its identity.
    pub plugin: Arc<str>,
    /// How many of its objects run at once.
    pub at_most: usize,
    /// How many run.
    pub running: usize,
    /// For whom nothing is begun before this time.
    paused: Option<TenantPause>,
    /// How many run of each tenant.
    running_of: HashMap<Tenant, usize>,
    /// Whether one of its lanes has something to run.
    pub has_ready: bool,
    /// Whether it had something to run or to end when the queue was last looked at.
    busy: bool,
    /// The time that its jobs took, and what it was lifted by after it had nothing to do.
    used: Duration,
    usual: Duration,
}

impl PluginShare {
    /// Nothing used yet.
    pub fn new(plugin: Arc<str>) -> Self {
        Self {
            plugin,
            at_most: 1,
            running: 0,
            paused: None,
            running_of: HashMap::new(),
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
        self.running < self.at_most && (self.running == 0 || !kept_free)
    }

    /// Whether nothing more of a tenant may run for now.
    pub fn holds_back(&self, tenant: &Tenant) -> bool {
        let kept_free = self.running + self.at_most / KEPT_FREE >= self.at_most;
        let is_paused = self.paused.as_ref().is_some_and(|pause| pause.tenants.contains(tenant));
        is_paused || (kept_free && self.running_of.contains_key(tenant))
    }

    /// Begins nothing of these tenants before a time.
    pub fn pause(&mut self, tenants: HashSet<Tenant>, until: Instant) {
        self.paused = Some(TenantPause { until, tenants });
    }

    /// Goes on, if the time has come.
    pub fn end_pause(&mut self, now: Instant) {
        self.paused = self.paused.take().filter(|pause| pause.until > now);
    }

    /// Goes on.
    pub fn resume(&mut self) {
        self.paused = None;
    }

    /// Until when some tenants wait.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused.as_ref().map(|pause| pause.until)
    }

    /// One more runs.
    pub fn begin(&mut self, tenant: Tenant) {
        self.running += 1;
        *self.running_of.entry(tenant).or_default() += 1;
    }

    /// One fewer runs.
    pub fn leave(&mut self, tenant: &Tenant) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.running_of.get_mut(tenant) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(tenant);
            }
        }
    }

    /// Lifts a plugin that had nothing to do to where the others are.
    pub fn settle(&mut self, level: Duration) {
        if self.has_ready && !self.busy {
            self.used = self.used.max(level);
        }
        self.busy = self.has_ready || self.running > 0;
    }

    /// One of its jobs is over.
    pub fn end(&mut self, tenant: &Tenant, took: Duration) {
        self.leave(tenant);
        self.used = self.used.saturating_add(took);
        self.usual = (self.usual * (SMOOTHING - 1) + took) / SMOOTHING;
    }
}
