//! Hands out reconciles and records their results.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Tenant;
use pilothouse_core::plugin::crash::Census;
use tokio::time::Instant;

use super::SharedState;
use crate::lanes::health::{FinishedCall, PluginPause};
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::process::clock::WallClock;
use crate::queue::{Cause, Job, JobResult, Priority, TriggerReason};

impl SharedState {
    /// Takes the next reconcile, with its lane. Both are taken in one step: a lane that replaces this one gets the
    /// object only after the job is done.
    pub fn take_job(&self) -> Option<(Job, Arc<Lane>)> {
        let mut tables = self.tables.write();
        let job = tables.queue.pop(Instant::now())?;
        let lane = tables.lanes.get(job.lane);
        let lane = lane.expect("a lane has a queue as long as it is there").clone();
        Some((job, lane))
    }

    /// Ends a job, for the queue, the history and the plugin's health.
    pub fn finish(&self, lane: &Lane, job: &Job, ended: &JobResult, clock: &WallClock) {
        let now = Instant::now();
        let time = clock.now();
        let is_there = {
            let mut tables = self.tables.write();
            let run = tables.queue.done(job, ended, now);
            let primary_ref = PrimaryRef::new(job.lane, job.name.clone());
            tables.own_writes.abandon(&primary_ref);
            let is_there = tables.store.get(lane.grants.primary(), &job.name).is_some();
            if let Some(run) = run.filter(|_| is_there) {
                let is_paused = tables.paused.has(&primary_ref);
                tables.history.record(primary_ref, run, ended, is_paused, time);
            }
            is_there
        };
        let call = FinishedCall {
            lane: job.lane,
            object: &job.name,
            is_there,
            was_called: !ended.used.is_zero(),
            failure: ended.failure.as_ref(),
        };
        let pause = lane.health.ended(&call, clock, || self.census(&lane.plugin));
        if let Some(PluginPause { wait, tenants }) = pause {
            self.tables.write().queue.pause(&lane.plugin, tenants, now + wait);
        }
        self.ended.notify_waiters();
    }

    /// Counts the objects of a plugin by tenant.
    fn census(&self, plugin: &str) -> Census {
        let lanes: Vec<(Arc<Lane>, Vec<Arc<CachedObject>>)> = {
            let tables = self.tables.read();
            let of_plugin = tables.lanes.iter().filter(|lane| *lane.plugin == *plugin);
            let primaries = |lane: &Arc<Lane>| tables.store.iter(lane.grants.primary(), None).cloned().collect();
            of_plugin.map(|lane| (lane.clone(), primaries(lane))).collect()
        };
        let mut census = Census::new();
        for (lane, primaries) in lanes {
            let is_filtered = lane.is_filtered();
            for object in primaries
                .iter()
                .filter(|object| !is_filtered || lane.reconciles(object))
            {
                *census.entry(Tenant::of(&object.name)).or_default() += 1;
            }
        }
        census
    }

    /// Requeues a primary.
    pub fn requeue(&self, primary_ref: &PrimaryRef, cause: Cause, trigger: TriggerReason) {
        let mut tables = self.tables.write();
        tables
            .queue
            .push_for(primary_ref.lane, &primary_ref.name, Priority::Change, cause, trigger);
    }

    /// Parks a job that waits for others: another may run in its place.
    pub fn park(&self, primary_ref: &PrimaryRef) {
        self.tables.write().queue.park(primary_ref.lane, &primary_ref.name);
        self.work.notify_one();
    }

    /// Resumes a parked job.
    pub fn unpark(&self, primary_ref: &PrimaryRef, waited: Duration) {
        let mut tables = self.tables.write();
        tables.queue.unpark(primary_ref.lane, &primary_ref.name, waited);
    }

    /// Ends the pause of a plugin's tenants.
    pub fn resume(&self, plugin: &str) {
        self.tables.write().queue.resume(plugin);
        self.work.notify_one();
    }

    /// Returns the earliest time at which an object is due, and whether one waits for a time of day.
    pub fn next_due(&self) -> (Option<Instant>, bool) {
        let tables = self.tables.read();
        (tables.queue.next_due(), tables.queue.waits_for_clock())
    }

    /// Requeues the objects that wait for a time of day, after the wall clock has jumped.
    pub fn clock_jumped(&self) {
        self.tables.write().queue.clock_jumped(Instant::now());
    }

    /// Number of objects that are queued or held.
    pub fn queued(&self) -> usize {
        self.tables.read().queue.waiting()
    }
}
