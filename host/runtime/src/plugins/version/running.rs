//! Supervises the loaded version of a plugin: takes over, watches it while it runs, and unloads it.

use std::sync::Arc;
use std::time::Duration;

use super::prepare::in_place_of;
use super::staging::StagedVersion;
use crate::lanes::lane::Lane;
use crate::plugins::life_cycle::LifeEvent;
use crate::plugins::plugin::{PluginTask, RunningVersion};

/// Interval of the checks whether the plugin is idle.
const SLEEP_LOOK: Duration = Duration::from_secs(10);

impl PluginTask {
    /// Supervises the loaded version: its inventory, rights, kinds and crashes, and whether it may sleep.
    pub async fn watch_over(&self, running: Option<&RunningVersion>) -> LifeEvent {
        let Some(running) = running else {
            return std::future::pending().await;
        };
        tokio::select! {
            (wait, why) = self.identity.health.stop() => LifeEvent::Crashed { wait, why },
            () = self.context.claims.lost(&self.identity.name) => LifeEvent::KindsLost,
            () = self.maintain_inventory(running) => LifeEvent::InventoryChanged,
            () = self.watch_permissions(running) => unreachable!("rights are minded for ever"),
            () = self.watch_access(running) => unreachable!("rights are reviewed for ever"),
            () = self.follow_kinds(running) => unreachable!("kinds are followed for ever"),
            () = self.let_sleep(running) => unreachable!("it may sleep for ever"),
        }
    }

    /// Lets a new version take over: it gets each object after a running reconcile of it has ended.
    pub async fn take_over(&self, before: Option<RunningVersion>, arrival: StagedVersion) -> RunningVersion {
        let StagedVersion {
            request,
            loaded,
            described,
            lanes,
            is_earlier,
        } = arrival;
        let (host, informers) = (&self.context.host, &self.context.informers);
        let (candidates, watched) = lanes.take();
        let mut left = before.as_ref().map(|before| before.lanes.clone()).unwrap_or_default();
        let mut lanes = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            let same = |lane: &Arc<Lane>| lane.grants.primary().same_kind(candidate.grants.primary());
            if let Some(index) = left.iter().position(same) {
                let old = left.swap_remove(index);
                let lane = in_place_of(&candidate, old.id);
                host.register_lane(&lane);
                // The candidate's needs are watched already, so this starts no list.
                informers.remove(&old);
                informers.add(&lane);
                informers.remove(&candidate);
                lanes.push(lane);
            } else {
                if !watched {
                    informers.add(&candidate);
                }
                host.register_lane(&candidate);
                lanes.push(candidate);
            }
        }
        if let Some(before) = &before {
            tracing::info!(
                plugin = &*self.identity.name,
                from = before.loaded.component.digest(),
                to = loaded.component.digest(),
                version = described.version,
                "a new version has taken over"
            );
            self.identity.health.reset_crashes();
        }
        self.resume_calls();
        self.report_artifact(&loaded).await;
        self.report_findings(&described);
        self.remove(&left).await;
        let generation = if is_earlier {
            self.earlier_generation(&request)
        } else {
            request.generation()
        };
        let is_unasked = self.artifact.is_unasked();
        self.plugin_state.set(|known| {
            if !is_earlier {
                known.settle();
                known.is_unasked = is_unasked;
            }
            known.lanes.clone_from(&lanes);
            known.running_generation = generation;
            known.digest = Some(loaded.component.digest().to_owned());
            known.version = Some(described.version.clone());
            known.file = request.file();
            known.crds = Some(described.crds.iter().map(|crd| crd.name.clone()).collect());
            known.not_granted = None;
        });
        self.keep_series(&lanes);
        RunningVersion {
            request,
            loaded,
            crds: described.exclusive(),
            name: described.name,
            lanes,
        }
    }

    /// Removes the metric series of controllers that the plugin no longer has.
    pub fn keep_series(&self, lanes: &[Arc<Lane>]) {
        let controllers = lanes.iter().map(|lane| &*lane.controller).collect();
        let plugins = self.context.host.metrics.plugins();
        plugins.keep_controllers(&self.identity.name, &controllers);
    }

    /// Resumes calls after crashes.
    pub fn resume_calls(&self) {
        self.identity.health.resume();
        self.context.host.state.resume(&self.identity.name);
    }

    /// Unloads the running version; its objects stay.
    pub async fn leave(&self, running: Option<RunningVersion>) {
        let Some(running) = running else { return };
        self.remove(&running.lanes).await;
        self.plugin_state.set(|known| {
            known.lanes.clear();
            known.running_generation = None;
            known.granted = None;
            known.cannot_act = None;
        });
        tracing::info!(
            plugin = &*self.identity.name,
            "the plugin is unloaded; its objects stay as they are"
        );
    }

    /// Removes lanes after their running jobs have ended.
    pub async fn remove(&self, lanes: &[Arc<Lane>]) {
        self.stop(lanes).await;
        for lane in lanes {
            self.context.host.remove_lane(lane.id);
            self.context.informers.remove(lane);
        }
    }

    /// Closes lanes, and waits for their running jobs.
    pub async fn stop(&self, lanes: &[Arc<Lane>]) {
        let host = &self.context.host;
        for lane in lanes {
            host.state.close_lane(lane.id);
        }
        for lane in lanes {
            host.state.drain_lane(lane.id).await;
        }
    }

    /// Reports whether all kinds are served and listed, whenever that may change.
    async fn follow_kinds(&self, running: &RunningVersion) {
        loop {
            let settled = self.context.host.kinds.settled();
            self.report_ready(Some(running));
            settled.await;
        }
    }

    async fn let_sleep(&self, running: &RunningVersion) {
        let component = &running.loaded.component;
        let after = self.context.options.sleep_after;
        loop {
            tokio::time::sleep(SLEEP_LOOK.min(after)).await;
            self.identity.health.log_limiter.log_dropped(&self.identity.name);
            if component.is_awake() && component.idle() >= after {
                component.sleep();
                tracing::debug!(plugin = &*self.identity.name, "unloaded the code of the idle plugin");
            }
        }
    }
}
