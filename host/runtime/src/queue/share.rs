//! Counts each plugin's use of the workers: start-time fair queueing over plugins, where the cost of a job is known
//! only when it ends.
//!
//! After Goyal, Vin and Cheng, "Start-time fair queueing", SIGCOMM 1996: the plugin with the least time used is next,
//! and one that becomes active again starts at the level of the one served last, so that idleness earns no credit.
//! Running jobs count with the usual time of the plugin's jobs; otherwise a plugin of long jobs would get all workers
//! before its first job ends.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Tenant;
use tokio::time::Instant;

/// One of this many objects that a plugin may run at once is kept for tenants that have nothing running, so that a
/// tenant with long runs leaves room for the others.
const KEPT_FREE: usize = 4;

/// Weight of the past in the usual time of a job: 7 parts in 8.
const SMOOTHING: u32 = 8;

/// A pause: no job of these tenants starts before `until`.
#[derive(Debug)]
struct TenantPause {
    until: Instant,
    tenants: HashSet<Tenant>,
}

/// Use of the workers by one plugin.
#[derive(Debug)]
pub struct PluginShare {
    /// Identity of the plugin.
    pub plugin: Arc<str>,
    /// Limit of objects that run at once.
    pub at_most: usize,
    /// Number of running objects.
    pub running: usize,
    /// Pause of some tenants.
    paused: Option<TenantPause>,
    /// Number of running objects by tenant.
    running_of: HashMap<Tenant, usize>,
    /// Set if one of its lanes has a ready object.
    pub has_ready: bool,
    /// Set if it had ready or running objects when [`PluginShare::settle`] was last called.
    busy: bool,
    /// Time that its jobs took, raised to the level of the others after an idle time.
    used: Duration,
    usual: Duration,
}

impl PluginShare {
    /// Makes a share with no time used.
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

    /// Used time, including an estimate for running jobs.
    pub fn claim(&self) -> Duration {
        let running = u32::try_from(self.running).unwrap_or(u32::MAX);
        self.used.saturating_add(self.usual.saturating_mul(running))
    }

    /// Returns `true` if one more object may run. With `kept_free` (only reserved workers are free) that is only the
    /// first.
    pub fn may_run(&self, kept_free: bool) -> bool {
        self.running < self.at_most && (self.running == 0 || !kept_free)
    }

    /// Returns `true` if no more objects of a tenant may run for now.
    pub fn holds_back(&self, tenant: &Tenant) -> bool {
        let kept_free = self.running + self.at_most / KEPT_FREE >= self.at_most;
        let is_paused = self.paused.as_ref().is_some_and(|pause| pause.tenants.contains(tenant));
        is_paused || (kept_free && self.running_of.contains_key(tenant))
    }

    /// Starts no job of these tenants before `until`.
    pub fn pause(&mut self, tenants: HashSet<Tenant>, until: Instant) {
        self.paused = Some(TenantPause { until, tenants });
    }

    /// Ends the pause if it is over.
    pub fn end_pause(&mut self, now: Instant) {
        self.paused = self.paused.take().filter(|pause| pause.until > now);
    }

    /// Ends the pause.
    pub fn resume(&mut self) {
        self.paused = None;
    }

    /// End of the pause.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused.as_ref().map(|pause| pause.until)
    }

    /// Counts one more running object.
    pub fn begin(&mut self, tenant: Tenant) {
        self.running += 1;
        *self.running_of.entry(tenant).or_default() += 1;
    }

    /// Counts one fewer.
    pub fn leave(&mut self, tenant: &Tenant) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.running_of.get_mut(tenant) {
            *running -= 1;
            if *running == 0 {
                self.running_of.remove(tenant);
            }
        }
    }

    /// Raises a plugin that had nothing to do to the level of the others.
    pub fn settle(&mut self, level: Duration) {
        if self.has_ready && !self.busy {
            self.used = self.used.max(level);
        }
        self.busy = self.has_ready || self.running > 0;
    }

    /// Ends one of its jobs.
    pub fn end(&mut self, tenant: &Tenant, took: Duration) {
        self.leave(tenant);
        self.used = self.used.saturating_add(took);
        self.usual = (self.usual * (SMOOTHING - 1) + took) / SMOOTHING;
    }
}
