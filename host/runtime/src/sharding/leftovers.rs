//! Deletes the Leases and the plan that replicas with --shards have left, for a leader that was started without it.

use std::time::Duration;

use pilothouse_cluster::error::{RequestError, chain};
use pilothouse_cluster::resources::lease::{LeaseGroup, LiveLease};
use pilothouse_cluster::resources::shard_plan::ShardPlanApi;
use pilothouse_core::replicas::lease::LeaseTimes;
use pilothouse_core::replicas::peers::Peers;
use tokio::time::Instant;

use crate::election::lease_task::LoggedProblems;

/// Objects that replicas with --shards have left.
pub struct Leftovers {
    leases: LeaseGroup,
    plan: ShardPlanApi,
    peers: Peers<LiveLease>,
    times: LeaseTimes,
    /// Origin of the clock by which Leases expire.
    begun: Instant,
}

impl Leftovers {
    pub fn new(leases: LeaseGroup, plan: ShardPlanApi, identity: String, times: LeaseTimes) -> Self {
        Self {
            leases,
            plan,
            peers: Peers::new(identity, times),
            times,
            begun: Instant::now(),
        }
    }

    /// Deletes them, and returns when there are none. A replica that lives keeps its Leases and the plan.
    pub async fn delete(mut self) {
        let mut logged = LoggedProblems::default();
        loop {
            match self.delete_ended().await {
                Ok(true) => return,
                Ok(false) => {}
                Err(error) => {
                    let problem = match &error {
                        error if error.is_missing_right() => format!(
                            "{error}; grant the host get and delete on leases.coordination.k8s.io and on configmaps in this namespace"
                        ),
                        error => chain(error),
                    };
                    if logged.take_due(&problem) {
                        tracing::warn!(
                            leases = self.leases.title(),
                            plan = self.plan.title(),
                            "cannot delete what replicas with --shards have left: {problem}; retrying"
                        );
                    }
                }
            }
            tokio::time::sleep(self.times.duration).await;
        }
    }

    /// Returns `true` if nothing is left. The plan is last: without it, a Lease that is named like that of a shard
    /// belongs to another release.
    async fn delete_ended(&mut self) -> Result<bool, RequestError> {
        let plan = self.plan.read().await?.filter(|plan| plan.is_ours());
        let shards = if plan.is_some() { 0 } else { usize::MAX };
        loop {
            let listed = self.leases.list().await?;
            let now = self.now();
            self.peers.observe(listed, now);
            if !self.peers.has_any_of(shards) {
                break;
            }
            // An ended replica's plan need not be remembered: nobody divides the work.
            let abandoned = self.peers.abandoned(shards, self.times.duration * 2, now);
            if abandoned.is_empty() {
                return Ok(false);
            }
            for (name, lease) in abandoned {
                self.leases.lease(&name).delete(&lease).await?;
            }
        }
        if let Some(plan) = plan {
            self.plan.delete(&plan).await?;
            tracing::info!(
                plan = self.plan.title(),
                "deleted the Leases and the plan of shards: no replica divides the work"
            );
        }
        Ok(true)
    }

    fn now(&self) -> Duration {
        self.begun.elapsed()
    }
}
