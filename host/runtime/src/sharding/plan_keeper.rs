//! Owns the plan of shards as it is stored: each replica reads it, and the leader keeps it true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::namespace_count::count_by_namespace;
use pilothouse_cluster::shard_plan::{LivePlan, ShardPlanApi};
use pilothouse_core::Kind;
use pilothouse_core::shards::{Division, NamespaceLoads, ShardPlan, better_plan, first_plan, is_uneven};
use tokio::time::Instant;

use super::ShardingError;
use crate::context::HostContext;

/// How long the leader waits before it counts objects again, where that did not lead to a better plan.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);
const LONGEST_COUNT_INTERVAL: Duration = Duration::from_mins(30);

/// The plan of one host's replicas.
pub struct PlanKeeper {
    api: ShardPlanApi,
    client: Client,
    /// The number of shards that this replica was started with.
    shards: usize,
    /// When the leader counted objects last, and how long it waits before it does so again.
    counted: Option<(Instant, Duration)>,
}

impl PlanKeeper {
    pub fn new(client: Client, namespace: String, name: String, timeout: Duration, shards: usize) -> Self {
        Self {
            api: ShardPlanApi::new(client.clone(), namespace, name, timeout),
            client,
            shards,
            counted: None,
        }
    }

    pub fn shards(&self) -> usize {
        self.shards
    }

    /// The plan as it is now; none if there is none.
    pub async fn read(&self) -> Result<Option<Arc<ShardPlan>>, ShardingError> {
        let live = self.read_live().await?;
        let plan = live.map(|live| self.parse(&live)).transpose()?;
        let Some(plan) = plan else { return Ok(None) };
        if plan.shards.len() != self.shards {
            return Err(self.other_number(&plan));
        }
        Ok(Some(Arc::new(plan)))
    }

    /// The same for the leader, who writes another plan where that is needed. `known` is the latest version that is known,
    /// `works_by` the plan by which this replica works, `counts` are the numbers of shards of the replicas that live, and
    /// `loads` is how many objects each shard has, if that is known.
    pub async fn read_and_keep(
        &mut self,
        host: &HostContext,
        works_by: Option<&ShardPlan>,
        known: u64,
        counts: &BTreeSet<usize>,
        loads: Option<&[u64]>,
    ) -> Result<Option<Arc<ShardPlan>>, ShardingError> {
        let live = self.read_live().await?;
        let parsed = live.as_ref().map(|live| self.parse(live)).transpose();
        let parsed = match parsed {
            Ok(parsed) => parsed.filter(|plan| plan.version >= known),
            Err(problem) => {
                tracing::warn!("{problem}; the leader writes another plan");
                None
            }
        };
        let has_users = |plan: &ShardPlan| counts.contains(&plan.shards.len());
        let next = match &parsed {
            Some(plan) if plan.shards.len() != self.shards && has_users(plan) => {
                return Err(self.other_number(plan));
            }
            Some(plan) if plan.shards.len() == self.shards => self.improved(plan, host, loads).await?,
            // It was deleted, spoilt, set back, or is for another number of shards.
            _ => {
                let known = known.max(parsed.as_ref().map_or(0, |plan| plan.version));
                Some(self.renewed(works_by, known, host).await?)
            }
        };
        let Some(next) = next else {
            return Ok(parsed.map(Arc::new));
        };
        if self.api.write(live.as_ref(), &next.print()).await? {
            tracing::info!(
                plan = self.api.title(),
                version = next.version,
                "wrote a plan of shards"
            );
            return Ok(Some(Arc::new(next)));
        }
        // Somebody else was faster.
        self.read().await
    }

    /// A plan in place of one that is there and can be used, if it is not as it should be.
    async fn improved(
        &mut self,
        plan: &ShardPlan,
        host: &HostContext,
        loads: Option<&[u64]>,
    ) -> Result<Option<ShardPlan>, ShardingError> {
        let is_due = self.counted.is_none_or(|(counted, wait)| counted.elapsed() >= wait);
        let better = if is_due && loads.is_some_and(is_uneven) {
            let better = better_plan(plan, &self.count(host).await?);
            let before = self.counted.map_or(COUNT_INTERVAL, |(_, wait)| wait);
            let wait = if better.is_some() { COUNT_INTERVAL } else { before * 2 };
            self.counted = Some((Instant::now(), wait.min(LONGEST_COUNT_INTERVAL)));
            better
        } else {
            None
        };
        let is_better = better.is_some();
        let mut next = better.unwrap_or_else(|| plan.clone());
        next.controllers.extend(host.divisions());
        let is_other = is_better || next.controllers != plan.controllers;
        next.version = plan.version + 1;
        Ok(is_other.then_some(next))
    }

    /// A plan where there is none that can be used. What replicas work by is kept, if it can be.
    async fn renewed(
        &self,
        works_by: Option<&ShardPlan>,
        known: u64,
        host: &HostContext,
    ) -> Result<ShardPlan, ShardingError> {
        let kept = works_by.filter(|plan| plan.shards.len() == self.shards).cloned();
        let mut next = match kept {
            Some(kept) => kept,
            None => first_plan(0, self.shards, &self.count(host).await?),
        };
        next.version = known + 1;
        next.controllers.extend(host.divisions());
        Ok(next)
    }

    /// How many objects each namespace has of those whose work is divided. The cache has a part of them only.
    async fn count(&self, host: &HostContext) -> Result<NamespaceLoads, ShardingError> {
        let lanes = host.state.lanes();
        let divided = lanes.iter().filter(|lane| lane.division() == Division::Namespaces);
        let kinds: BTreeMap<Kind, ServedKind> = divided
            .filter_map(|lane| Some((lane.grants.primary().clone(), lane.served(lane.grants.primary())?)))
            .collect();
        let mut loads = NamespaceLoads::default();
        for served in kinds.values() {
            for (namespace, objects) in count_by_namespace(&self.client, served).await? {
                loads.add(&namespace, objects);
            }
        }
        Ok(loads)
    }

    async fn read_live(&self) -> Result<Option<LivePlan>, ShardingError> {
        let live = self.api.read().await?;
        match live {
            Some(live) if !live.is_ours() => Err(ShardingError::Plan(format!(
                "the ConfigMap {} was made by other software: its label app.kubernetes.io/managed-by is not pilothouse; give \
                 another name with --lease",
                self.api.title()
            ))),
            live => Ok(live),
        }
    }

    fn other_number(&self, plan: &ShardPlan) -> ShardingError {
        ShardingError::OtherNumber {
            plan: self.api.title(),
            planned: plan.shards.len(),
            own: self.shards,
        }
    }

    fn parse(&self, live: &LivePlan) -> Result<ShardPlan, ShardingError> {
        let plan = ShardPlan::parse(live.text());
        plan.map_err(|error| ShardingError::Plan(format!("the ConfigMap {} cannot be used: {error}", self.api.title())))
    }
}
