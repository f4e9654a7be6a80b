//! Reads the stored plan of shards, and, as the leader, keeps it up to date.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::Client;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::resources::shard_plan::{LivePlan, ShardPlanApi};
use pilothouse_cluster::watch::namespace_count::count_by_namespace;
use pilothouse_core::Kind;
use pilothouse_core::replicas::member::KnownPlan;
use pilothouse_core::replicas::peers::Shares;
use pilothouse_core::replicas::shards::{
    Division, LiveShard, NamespaceLoads, ShardPlan, better_plan, first_plan, is_uneven, with_loads,
};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::ShardingError;
use crate::context::HostContext;

/// Bounds of the wait before the leader counts objects again, if the last count did not lead to a better plan.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);
const LONGEST_COUNT_INTERVAL: Duration = Duration::from_mins(30);

/// What the leader knows of all replicas.
pub struct GroupState {
    /// The plan that it starts from.
    pub known: KnownPlan,
    /// Numbers of shards of the living replicas.
    pub counts: BTreeSet<usize>,
    /// Number of objects in each shard, if known.
    pub loads: Option<Vec<u64>>,
    /// Holders of the shards.
    pub shares: Shares,
}

/// The plan of one host's replicas.
pub struct PlanKeeper {
    api: ShardPlanApi,
    client: Client,
    /// The number of shards that this replica was started with.
    shards: usize,
    /// Time that a round waits for a count if there is no plan.
    patience: Duration,
    /// Time of the leader's last count of objects, and the wait before the next.
    counted: Option<(Instant, Duration)>,
    /// Running count: it may take longer than the duration of a Lease, so no round waits for its end.
    counting: JoinSet<Result<NamespaceLoads, RequestError>>,
    /// Time since which another assignment would share the published loads better. While shards move, the published
    /// loads are not yet those of their work.
    unshared_since: Option<Instant>,
}

impl PlanKeeper {
    pub fn new(client: Client, namespace: String, name: String, timeout: Duration, shards: usize) -> Self {
        Self {
            api: ShardPlanApi::new(client.clone(), namespace, name, timeout),
            client,
            shards,
            patience: timeout / 2,
            counted: None,
            counting: JoinSet::new(),
            unshared_since: None,
        }
    }

    /// Reads the plan; `None` if there is none.
    pub async fn read(&mut self) -> Result<Option<Arc<ShardPlan>>, ShardingError> {
        // Earlier counts and loads belong to the time in which this replica led.
        self.counting = JoinSet::new();
        self.unshared_since = None;
        let live = self.read_live().await?;
        let plan = live.map(|live| self.parse(&live)).transpose()?;
        let Some(plan) = plan else { return Ok(None) };
        if plan.shards.len() != self.shards {
            return Err(self.other_number(&plan));
        }
        Ok(Some(Arc::new(plan)))
    }

    /// Reads the plan as the leader, and writes another one if needed.
    pub async fn read_and_keep(
        &mut self,
        host: &HostContext,
        state: &GroupState,
    ) -> Result<Option<Arc<ShardPlan>>, ShardingError> {
        let GroupState {
            known,
            counts,
            loads,
            shares,
        } = state;
        let live = self.read_live().await?;
        let parsed = live.as_ref().map(|live| self.parse(live)).transpose();
        let parsed = match parsed {
            Ok(parsed) => parsed.filter(|plan| known.keeps(plan)),
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
            Some(plan) if plan.shards.len() == self.shards => self.improved(plan, host, loads.as_deref(), shares)?,
            // The plan was deleted, corrupted, reset, or is for another number of shards.
            _ => {
                let version = parsed.as_ref().map_or(0, |plan| plan.version).max(known.version);
                self.renewed(known.works_by.as_deref(), version, host).await?
            }
        };
        let Some(next) = next else {
            return Ok(parsed.filter(|plan| plan.shards.len() == self.shards).map(Arc::new));
        };
        if self.api.write(live.as_ref(), &next.print()).await? {
            tracing::info!(
                plan = self.api.title(),
                version = next.version,
                "wrote a plan of shards"
            );
            return Ok(Some(Arc::new(next)));
        }
        // Another replica was faster.
        self.read().await
    }

    /// Returns a plan that improves a usable one, if it needs to.
    fn improved(
        &mut self,
        plan: &ShardPlan,
        host: &HostContext,
        loads: Option<&[u64]>,
        shares: &Shares,
    ) -> Result<Option<ShardPlan>, ShardingError> {
        let counted = self.counting.try_join_next();
        let is_due = self.counted.is_none_or(|(counted, wait)| counted.elapsed() >= wait);
        if counted.is_none() && self.counting.is_empty() && is_due && loads.is_some_and(is_uneven) {
            let wait = self.counted.map_or(COUNT_INTERVAL, |(_, wait)| wait * 2);
            self.begin_count(host, wait.min(LONGEST_COUNT_INTERVAL));
        }
        let counted = counted.and_then(Result::ok).transpose()?;
        let mut better = counted.and_then(|counted| better_plan(plan, &counted));
        let reloaded = loads.and_then(|loads| reloaded(plan, loads, shares));
        if better.is_some() {
            self.counted = Some((Instant::now(), COUNT_INTERVAL));
            self.unshared_since = None;
        } else if reloaded.is_some() {
            let since = *self.unshared_since.get_or_insert_with(Instant::now);
            if since.elapsed() >= COUNT_INTERVAL {
                better = reloaded;
                self.unshared_since = None;
            }
        } else {
            self.unshared_since = None;
        }
        let is_better = better.is_some();
        let mut next = better.unwrap_or_else(|| plan.clone());
        next.controllers.extend(host.divisions());
        let is_other = is_better || next.controllers != plan.controllers;
        next.version = plan.version + 1;
        Ok(is_other.then_some(next))
    }

    /// Returns a plan if there is no usable one; `None` until objects are counted. The plan that replicas work by is
    /// kept, if possible.
    async fn renewed(
        &mut self,
        works_by: Option<&ShardPlan>,
        known: u64,
        host: &HostContext,
    ) -> Result<Option<ShardPlan>, ShardingError> {
        let kept = works_by.filter(|plan| plan.shards.len() == self.shards).cloned();
        let mut next = if let Some(kept) = kept {
            kept
        } else {
            if self.counting.is_empty() {
                self.begin_count(host, COUNT_INTERVAL);
            }
            let counted = tokio::time::timeout(self.patience, self.counting.join_next()).await;
            let Ok(Some(Ok(counted))) = counted else {
                return Ok(None);
            };
            first_plan(0, self.shards, &counted?)
        };
        next.version = known + 1;
        next.controllers.extend(host.divisions());
        Ok(Some(next))
    }

    /// Starts to count the objects of divided controllers in each namespace. The cache only has a part of them.
    fn begin_count(&mut self, host: &HostContext, again_after: Duration) {
        self.counted = Some((Instant::now(), again_after));
        let lanes = host.state.lanes();
        let divided = lanes.iter().filter(|lane| lane.division() == Division::Namespaces);
        let kinds: BTreeMap<Kind, ServedKind> = divided
            .filter_map(|lane| Some((lane.grants.primary().clone(), lane.served(lane.grants.primary())?)))
            .collect();
        let client = self.client.clone();
        self.counting.spawn(async move {
            let mut loads = NamespaceLoads::default();
            for served in kinds.values() {
                for (namespace, objects) in count_by_namespace(&client, served).await? {
                    loads.add(&namespace, objects);
                }
            }
            Ok(loads)
        });
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

/// The same plan with the present loads, if they would make the replicas' shares noticeably more even.
fn reloaded(plan: &ShardPlan, loads: &[u64], shares: &Shares) -> Option<ShardPlan> {
    let replicas: Vec<&str> = shares.replicas.iter().map(String::as_str).collect();
    let live = loads.iter().zip(&shares.holders).map(|(load, holder)| LiveShard {
        load: *load,
        holder: holder.as_deref(),
    });
    with_loads(plan, &replicas, &live.collect::<Vec<_>>())
}
