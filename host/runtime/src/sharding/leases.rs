//! Handles the Leases of a replica that takes part in dividing the work: its own, and those of the shards that it
//! holds. They are taken, renewed, handed over and released, and the fence is opened and closed with them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::fence::{LeaseTerm, Passage};
use pilothouse_cluster::resources::lease::{GroupWrite, LiveLease};
use pilothouse_core::replicas::shards::{HashRanges, LiveShard, ShardPlan, assign, hash_of};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::peers::{ReplicaState, shard_lease};
use super::{HURRY, HeldShard, Replica, ShardingError};

impl Replica {
    /// State that this replica publishes.
    pub(super) fn published_state(&self) -> ReplicaState {
        ReplicaState {
            plan: self.version().unwrap_or_default(),
            digest: self.plan.as_ref().map(|plan| hash_of(&plan.print())),
            shards: self.plans.shards(),
            work: self.work.0.clone(),
            address: self.address,
        }
    }

    /// Renews this replica's own Lease, with the plan that it works by.
    pub(super) async fn announce(&mut self, state: &ReplicaState) -> Result<(), ShardingError> {
        let sent = Instant::now();
        let time = self.host.clock.microseconds();
        let Some((live, record)) = self.peers.next(&self.own_lease, sent - self.begun, &time) else {
            return Err(ShardingError::Plan(
                "somebody else has written into the Lease of this replica".to_owned(),
            ));
        };
        let lease = self.leases.lease(&self.own_lease);
        match lease
            .write_in_group(live.as_ref(), &record, &state.annotations())
            .await?
        {
            GroupWrite::Written(written) => {
                self.peers.written(&self.own_lease, written, self.now());
                self.valid_until = Some(sent + self.times.renew_deadline);
                self.announced = self.version();
            }
            GroupWrite::Changed => {}
            GroupWrite::Unlabelled(holder) => {
                let lease = lease.title();
                return Err(ShardingError::Unlabelled(BTreeMap::from([(lease, holder)])));
            }
        }
        Ok(())
    }

    /// Renews held shards, takes free ones that are assigned to this replica, and hands over one that is assigned to
    /// another. Returns `true` if the assignment is complete.
    pub(super) async fn take_and_renew(&mut self, is_settled: bool) -> Result<bool, ShardingError> {
        let (Some(plan), Some(valid_until)) = (self.plan.clone(), self.valid_until) else {
            return Ok(false);
        };
        let now = self.now();
        let takes_part = plan.shards.len() == self.plans.shards();
        let targets: Vec<bool> = {
            let replicas = self.peers.taking_part(plan.shards.len(), plan.version, now);
            let shards: Vec<LiveShard<'_>> = (0..plan.shards.len())
                .map(|shard| LiveShard {
                    load: plan.shards[shard].load,
                    holder: self.peers.holder(&shard_lease(shard), now),
                })
                .collect();
            let own = self.peers.identity();
            assign(&replicas, &shards)
                .into_iter()
                .map(|holder| holder == Some(own))
                .collect()
        };
        let is_target = |shard: usize| takes_part && targets.get(shard).copied().unwrap_or(false);
        self.hand_over(is_settled, &is_target).await;
        let is_free = |shard: usize| {
            let holder = self.peers.holder(&shard_lease(shard), now);
            holder.is_none_or(|holder| holder == self.peers.identity())
        };
        let all = 0..plan.shards.len();
        let mut taken: BTreeSet<usize> = all
            .filter(|shard| !self.held.contains_key(shard) && is_settled && is_free(*shard) && is_target(*shard))
            .collect();
        if !self.forget(&taken, &plan).await {
            taken.clear();
        }
        let mut requests = JoinSet::new();
        let time = self.host.clock.microseconds();
        for shard in 0..plan.shards.len() {
            if !(self.held.contains_key(&shard) || taken.contains(&shard)) {
                continue;
            }
            let name = shard_lease(shard);
            let sent = Instant::now();
            let Some((live, record)) = self.peers.next(&name, sent - self.begun, &time) else {
                // Another replica has taken it.
                if let Some(held) = self.held.remove(&shard) {
                    self.fence.close_shard(shard);
                    tracing::warn!(
                        lease = self.leases.lease(&name).title(),
                        hashes = %held.ranges,
                        holder = self.peers.holder(&name, now).unwrap_or_default(),
                        "lost a shard: its Lease names another holder"
                    );
                }
                continue;
            };
            let lease = self.leases.lease(&name);
            requests.spawn(async move { (shard, sent, lease.write_in_group(live.as_ref(), &record, &[]).await) });
        }
        let (mut is_done, mut failed, mut unlabelled) = (true, BTreeMap::new(), BTreeMap::new());
        while let Some(ended) = requests.join_next().await {
            let Ok((shard, sent, written)) = ended else { continue };
            match written {
                Ok(GroupWrite::Written(lease)) => self.hold(shard, &plan, sent, valid_until, lease),
                Ok(GroupWrite::Changed) => is_done = false,
                Ok(GroupWrite::Unlabelled(holder)) => {
                    let lease = self.leases.lease(&shard_lease(shard)).title();
                    unlabelled.insert(lease, holder);
                }
                Err(error) => {
                    failed.insert(shard, error);
                }
            }
        }
        // Responses arrive in any order, and the log should be stable while nothing changes.
        if let Some((_, error)) = failed.pop_first() {
            return Err(error.into());
        }
        if !unlabelled.is_empty() {
            return Err(ShardingError::Unlabelled(unlabelled));
        }
        let has_all = (0..plan.shards.len()).all(|shard| is_target(shard) == self.held.contains_key(&shard));
        Ok(is_done && has_all)
    }

    /// Drops the cached objects of shards that are about to be taken and that another replica may have held. Their
    /// watches may have been interrupted, and recover one after another, so that a primary may be cached without the
    /// children that the other replica made for it. A list after the shard was taken shows all of them. Returns `true`
    /// if the cache has done so.
    async fn forget(&mut self, taken: &BTreeSet<usize>, plan: &ShardPlan) -> bool {
        let foreign = taken
            .iter()
            .filter(|shard| self.peers.own(&shard_lease(**shard)).is_none());
        let ranges: HashRanges = foreign.flat_map(|shard| plan.shards[*shard].ranges.iter()).collect();
        if !self.cached.intersection(&ranges).is_empty() {
            self.cached = self.cached.without(&ranges);
            self.hold_in_cache();
        }
        let forgotten = self.host.cached.wait_until_taken_in();
        tokio::time::timeout(self.times.retry_period / HURRY, forgotten)
            .await
            .is_ok()
    }

    fn hold(&mut self, shard: usize, plan: &ShardPlan, sent: Instant, valid_until: Instant, lease: LiveLease) {
        let term = LeaseTerm::new(sent, self.times);
        let until = term.begin.min(valid_until);
        self.peers.written(&shard_lease(shard), lease, self.now());
        if !self.held.contains_key(&shard) {
            self.settled_since = None;
            self.work.1 = None;
        }
        let held = self.held.entry(shard).or_insert_with(|| {
            tracing::info!(lease = self.leases.lease(&shard_lease(shard)).title(), hashes = %plan.shards[shard].ranges, "took a shard");
            HeldShard {
                ranges: plan.shards[shard].ranges.clone(),
                until,
                is_leaving: false,
                is_closed: false,
            }
        });
        held.until = until;
        if !held.is_closed {
            let term = LeaseTerm { begin: until, ..term };
            self.fence.open_shard_until(shard, held.ranges.clone(), term);
        }
    }

    /// Hands one shard over to the replica to which it is assigned: first no job of it is started any more, then, when
    /// running jobs have ended, its Lease is released.
    async fn hand_over(&mut self, is_settled: bool, is_target: &impl Fn(usize) -> bool) {
        if let Some((shard, since)) = self.handed_over {
            let holder = self.peers.holder(&shard_lease(shard), self.now());
            let is_taken = holder.is_some_and(|holder| holder != self.peers.identity());
            if is_taken || since.elapsed() >= self.times.duration {
                self.handed_over = None;
            }
        }
        let is_leaving = self.held.values().any(|held| held.is_leaving);
        if is_settled && !is_leaving && self.handed_over.is_none() {
            // A shard that would have to be kept for longer is handed over last.
            let is_unsettled = |shard: &usize| !self.fence.is_settled(Passage::Shard(*shard));
            let moving = self.held.keys().copied().filter(|shard| !is_target(*shard));
            if let Some(held) = moving
                .min_by_key(is_unsettled)
                .and_then(|next| self.held.get_mut(&next))
            {
                held.is_leaving = true;
            }
        }
        let leaving = self.leaving();
        if leaving.is_empty() {
            return;
        }
        self.own();
        // Jobs that do not end soon are checked again in the next round: until then the shard is renewed.
        let drained = self.host.state.drain_unowned();
        if tokio::time::timeout(self.times.retry_period / HURRY, drained)
            .await
            .is_err()
        {
            return;
        }
        for shard in leaving {
            if self.give_back(shard).await {
                self.handed_over = Some((shard, Instant::now()));
            }
        }
    }

    /// Shards of which no job is started any more.
    pub(super) fn leaving(&self) -> Vec<usize> {
        let held = self.held.iter().filter(|(_, held)| held.is_leaving);
        held.map(|(shard, _)| *shard).collect()
    }

    /// Closes the fence for a shard, until it is held anew.
    pub(super) fn close(&mut self, shard: usize) {
        self.fence.close_shard(shard);
        let Some(held) = self.held.get_mut(&shard) else {
            return;
        };
        let was_closed = std::mem::replace(&mut held.is_closed, true);
        if !was_closed && !self.fence.is_settled(Passage::Shard(shard)) {
            tracing::info!(
                lease = self.leases.lease(&shard_lease(shard)).title(),
                "keeps the Lease of a shard that is to be another replica's: a write got no answer, and may still take effect"
            );
        }
    }

    /// Releases the Lease of a shard, so that nobody waits for it to expire. Returns `true` if it was released: while a
    /// write in the shard may still take effect, the Lease is kept, and no further write passes.
    pub(super) async fn give_back(&mut self, shard: usize) -> bool {
        self.close(shard);
        if !self.fence.is_settled(Passage::Shard(shard)) {
            return false;
        }
        let Some(held) = self.held.remove(&shard) else {
            return false;
        };
        // Logged before the request, which is abandoned if another Lease expires meanwhile.
        tracing::info!(
            lease = self.leases.lease(&shard_lease(shard)).title(),
            hashes = %held.ranges,
            "works no longer at a shard"
        );
        self.settled_since = None;
        self.work.1 = None;
        self.give_back_leases(vec![shard_lease(shard)]).await;
        true
    }

    /// Releases held Leases, all at once.
    async fn give_back_leases(&mut self, names: Vec<String>) {
        let time = self.host.clock.microseconds();
        let mut requests = JoinSet::new();
        for name in names {
            let Some(live) = self.peers.own(&name).cloned() else {
                continue;
            };
            let (lease, time) = (self.leases.lease(&name), time.clone());
            requests.spawn(async move {
                let written = lease.give_back(&live, &time).await;
                (name, lease.title(), written)
            });
        }
        while let Some(ended) = requests.join_next().await {
            let Ok((name, lease, written)) = ended else { continue };
            match written {
                Ok(Some(written)) => {
                    tracing::info!(lease, "gave a Lease back");
                    self.peers.written(&name, written, self.now());
                }
                // Another replica has it.
                Ok(None) => {}
                Err(error) => tracing::warn!(
                    lease,
                    error = chain(&error),
                    "cannot give a Lease back; others wait until it ends"
                ),
            }
        }
    }

    /// Drops Leases that could not be renewed in time. The fence has closed by itself.
    pub(super) fn expire(&mut self) {
        let now = Instant::now();
        if self.valid_until.is_some_and(|until| until <= now) {
            self.valid_until = None;
            self.announced = None;
            self.divisions = Arc::default();
            self.pass_divisions();
            for held in self.held.values_mut() {
                held.until = now;
            }
        }
        let lost: Vec<usize> = self
            .held
            .extract_if(.., |_, held| held.until <= now)
            .map(|(shard, _)| shard)
            .collect();
        for shard in &lost {
            self.fence.close_shard(*shard);
        }
        if !lost.is_empty() {
            self.settled_since = None;
            let title = |shard: &usize| self.leases.lease(&shard_lease(*shard)).title();
            let leases: Vec<String> = lost.iter().map(title).collect();
            tracing::warn!(?leases, "lost shards: their Leases could not be renewed in time");
        }
        self.own();
    }

    pub(super) async fn leave(mut self) {
        self.divisions = Arc::default();
        self.valid_until = None;
        self.pass_divisions();
        let shards: Vec<usize> = std::mem::take(&mut self.held).into_keys().collect();
        for shard in &shards {
            self.fence.close_shard(*shard);
        }
        let is_settled = |shard: &usize| self.fence.is_settled(Passage::Shard(*shard));
        let (held, left): (Vec<usize>, Vec<usize>) = shards.into_iter().partition(is_settled);
        if !left.is_empty() {
            let title = |shard: &usize| self.leases.lease(&shard_lease(*shard)).title();
            let leases: Vec<String> = left.iter().map(title).collect();
            tracing::warn!(
                ?leases,
                "left Leases to end by themselves: writes got no answer, and may still take effect"
            );
        }
        // Others leave no shard to a replica that has released its own Lease, and do not wait for it to adopt their
        // plan.
        let own_lease = self.own_lease.clone();
        self.give_back_leases(vec![own_lease.clone()]).await;
        self.give_back_leases(held.into_iter().map(shard_lease).collect()).await;
        self.own();
        // If there are others, they have to see it, and the leader deletes it later.
        let is_last = self.peers.others(&own_lease, self.now()).next().is_none();
        // As long as the leader's Lease names this replica, this Lease shows that it divided the work, and, as long as
        // that of a shard does, by which plan.
        let gives_all = left.is_empty() && self.fence.is_settled(Passage::Leader);
        if is_last
            && gives_all
            && let Some(live) = self.peers.live(&own_lease)
        {
            let _ = self.leases.lease(&own_lease).delete(live).await;
        }
    }
}
