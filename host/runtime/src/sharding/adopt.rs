//! Changes from one plan of shards to another: work that the new plan gives to others ends first, and no replica takes
//! it over before.

use std::sync::Arc;

use pilothouse_cluster::fence::Passage;
use pilothouse_core::replicas::shards::{Divisions, PlannedShard, ShardPlan};
use tokio::time::Instant;

use super::{Adopting, HURRY, Replica};

/// Work that another plan gives to others.
#[derive(Default)]
struct PlanChanges {
    /// Shards with other namespaces.
    shards: Vec<usize>,
    /// Set if the work of a controller is divided differently.
    divisions: bool,
}

impl PlanChanges {
    fn between(before: &ShardPlan, after: &ShardPlan) -> Self {
        let is_other = |(shard, planned): &(usize, &PlannedShard)| {
            let after = after.shards.get(*shard);
            after.is_none_or(|after| after.ranges != planned.ranges)
        };
        let shards = before.shards.iter().enumerate().filter(is_other);
        let mut controllers = before.controllers.iter();
        Self {
            shards: shards.map(|(shard, _)| shard).collect(),
            divisions: controllers.any(|(controller, division)| after.controllers.get(controller) != Some(division)),
        }
    }
}

impl Replica {
    /// Adopts another plan: work that it changes is given up first. While a job of that runs, the replica starts no
    /// more of it, keeps its Leases, and tries again in the next round; until it has adopted the plan, the others take
    /// over nothing new.
    ///
    /// That lasts no longer than if this replica had died: after the duration of a Lease, the fence closes for what
    /// still runs, and the replica adopts the plan as soon as all writes that have passed are settled. A namespace may
    /// then be in a shard that another replica takes at once, so leaving Leases to expire does not help here.
    pub(super) async fn adopt(&mut self, plan: Arc<ShardPlan>) {
        let changes = self.plan.as_ref().map(|before| PlanChanges::between(before, &plan));
        let changes = changes.unwrap_or_default();
        for shard in &changes.shards {
            if let Some(held) = self.held.get_mut(shard) {
                held.is_leaving = true;
            }
        }
        let mut divisions = Divisions::clone(&self.divisions);
        divisions.retain(|controller, division| plan.controllers.get(controller) == Some(division));
        self.divisions = Arc::new(divisions);
        self.own();
        let drained = self.host.state.drain_unowned();
        let adopting = self.adopting.get_or_insert_with(|| Adopting {
            version: 0,
            since: Instant::now(),
            is_said: false,
        });
        // The Leases are renewed after this, so only the first attempt waits for long.
        let is_first_try = std::mem::replace(&mut adopting.version, plan.version) != plan.version;
        let patience = if is_first_try {
            self.times.renew_deadline / 3
        } else {
            self.times.retry_period / HURRY
        };
        if tokio::time::timeout(patience, drained).await.is_err() {
            if adopting.since.elapsed() < self.times.duration {
                return;
            }
            if !std::mem::replace(&mut adopting.is_said, true) {
                tracing::warn!(
                    leases = self.leases.title(),
                    version = plan.version,
                    "waits no longer for reconciles that a plan of shards gives to others: what they write now is refused"
                );
            }
        }
        self.pass_divisions();
        let leaving = self.leaving();
        for shard in &leaving {
            self.close(*shard);
        }
        if !self.is_settled(&changes) {
            return;
        }
        self.adopting = None;
        self.work.1 = None;
        for shard in leaving {
            self.give_back(shard).await;
        }
        tracing::info!(
            leases = self.leases.title(),
            version = plan.version,
            shards = plan.shards.len(),
            "works by a plan of shards"
        );
        self.plan = Some(plan);
    }

    /// Returns `true` if no write that passed the fence before it closed for the changed work can still take effect.
    fn is_settled(&self, PlanChanges { shards, divisions }: &PlanChanges) -> bool {
        let as_of = |passage| self.fence.is_settled_as_of(passage, self.fenced_since);
        // Lost shards count, too: this replica may have written in them shortly before.
        let planned = 0..self.plan.as_ref().map_or(0, |plan| plan.shards.len());
        let of_divisions = || as_of(Passage::Leader) && planned.clone().all(|shard| as_of(Passage::Shard(shard)));
        let mut shards = shards.iter().map(|shard| Passage::Shard(*shard));
        shards.all(|passage| self.fence.is_settled(passage)) && (!divisions || of_divisions())
    }

    /// Lets only agreed divisions pass the fence from here on.
    pub(super) fn pass_divisions(&mut self) {
        self.fence.set_divisions(self.divisions.clone(), self.valid_until);
        // Set only now: earlier writes have to be settled before another plan.
        if self.fenced_divisions != self.divisions {
            self.fenced_divisions = self.divisions.clone();
            self.fenced_since = Instant::now();
        }
    }
}
