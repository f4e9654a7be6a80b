//! Carries out decisions about Leases: writes, releases and drops them, and opens and closes the fence with them.

use std::collections::BTreeMap;

use pilothouse_cluster::error::chain;
use pilothouse_cluster::fence::{LeaseTerm, Passage};
use pilothouse_cluster::resources::lease::{GroupWrite, LiveLease};
use pilothouse_core::replicas::member::{HURRY, LeaseWrite};
use pilothouse_core::replicas::peers::{ReplicaState, shard_lease};
use pilothouse_core::replicas::shards::HashRanges;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{Replica, ShardingError};

impl Replica {
    /// Lists all Leases.
    pub(super) async fn list(&mut self) -> Result<(), ShardingError> {
        let listed = self.leases.list().await?;
        self.host.contact.heard();
        self.member.list(listed, self.now());
        Ok(())
    }

    /// Writes this replica's own Lease.
    pub(super) async fn announce(
        &mut self,
        write: LeaseWrite<LiveLease>,
        state: &ReplicaState,
    ) -> Result<(), ShardingError> {
        let lease = self.leases.lease(&write.name);
        let annotations = state.annotations();
        let written = lease.write_in_group(write.live.as_ref(), &write.record, &annotations);
        match written.await? {
            GroupWrite::Written(written) => self.member.announce(write.sent, written, self.now()),
            GroupWrite::Changed => {}
            GroupWrite::Unlabelled(holder) => {
                return Err(ShardingError::Unlabelled(BTreeMap::from([(lease.title(), holder)])));
            }
        }
        Ok(())
    }

    /// Writes the Leases of shards, all at once.
    pub(super) async fn write(&mut self, writes: Vec<(usize, LeaseWrite<LiveLease>)>) -> Result<(), ShardingError> {
        let mut requests = JoinSet::new();
        for (shard, write) in writes {
            let lease = self.leases.lease(&write.name);
            requests.spawn(async move {
                let written = lease.write_in_group(write.live.as_ref(), &write.record, &[]).await;
                (shard, write, written)
            });
        }
        let (mut failed, mut unlabelled) = (BTreeMap::new(), BTreeMap::new());
        while let Some(ended) = requests.join_next().await {
            let Ok((shard, write, written)) = ended else { continue };
            match written {
                Ok(GroupWrite::Written(lease)) => self.hold(shard, &write, lease),
                Ok(GroupWrite::Changed) => {}
                Ok(GroupWrite::Unlabelled(holder)) => {
                    unlabelled.insert(self.title(shard), holder);
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
        if unlabelled.is_empty() {
            return Ok(());
        }
        Err(ShardingError::Unlabelled(unlabelled))
    }

    fn hold(&mut self, shard: usize, write: &LeaseWrite<LiveLease>, lease: LiveLease) {
        let is_new = self.member.hold(shard, write.sent, lease, self.now());
        let Some(held) = self.member.held().get(&shard) else {
            return;
        };
        if is_new {
            tracing::info!(lease = self.title(shard), hashes = %held.ranges, "took a shard");
            self.settled_since = None;
            self.work.1 = None;
        }
        if !held.is_closed {
            let term = LeaseTerm {
                begin: self.at(held.until),
                ..LeaseTerm::new(self.at(write.sent), self.times)
            };
            self.fence.open_shard_until(shard, held.ranges.clone(), term);
        }
    }

    /// Closes the fence for shards that others have taken.
    pub(super) fn lose(&mut self, lost: Vec<(usize, HashRanges)>) {
        for (shard, ranges) in lost {
            self.fence.close_shard(shard);
            tracing::warn!(
                lease = self.title(shard),
                hashes = %ranges,
                holder = self.member.peers().holder(&shard_lease(shard), self.now()).unwrap_or_default(),
                "lost a shard: its Lease names another holder"
            );
        }
    }

    /// Sets what passes the fence.
    pub(super) fn set_fence(&mut self, closed: &[usize], overdue: Option<u64>) {
        if let Some(version) = overdue {
            tracing::warn!(
                leases = self.leases.title(),
                version,
                "waits no longer for reconciles that a plan of shards gives to others: what they write now is refused"
            );
        }
        let (divisions, known_until) = self.member.fenced();
        let known_until = known_until.map(|until| self.at(until));
        self.fence.set_divisions(divisions.clone(), known_until);
        self.member.fence_is_set(self.now());
        for shard in closed {
            self.fence.close_shard(*shard);
            if self.member.held().contains_key(shard) && !self.fence.is_settled(Passage::Shard(*shard)) {
                tracing::info!(
                    lease = self.title(*shard),
                    "keeps the Lease of a shard that is to be another replica's: a write got no answer, and may still take effect"
                );
            }
        }
    }

    /// Drops the cached objects of shards that are about to be taken. Returns `true` if the cache has done so.
    pub(super) async fn forget(&mut self, ranges: &HashRanges) -> bool {
        if !self.cached.intersection(ranges).is_empty() {
            self.cached = self.cached.without(ranges);
            self.hold_in_cache();
        }
        let forgotten = self.host.cached.wait_until_taken_in();
        timeout(self.times.retry_period / HURRY, forgotten).await.is_ok()
    }

    /// Releases Leases, all at once, so that nobody waits for them to expire.
    pub(super) async fn release(
        &mut self,
        leases: Vec<(String, LiveLease)>,
        ended: Vec<(usize, HashRanges)>,
        left: &[usize],
    ) {
        // Logged before the requests, which are abandoned if another Lease expires meanwhile.
        for (shard, ranges) in ended {
            tracing::info!(lease = self.title(shard), hashes = %ranges, "works no longer at a shard");
            self.settled_since = None;
            self.work.1 = None;
        }
        if !left.is_empty() {
            tracing::warn!(
                leases = ?self.titles(left),
                "left Leases to end by themselves: writes got no answer, and may still take effect"
            );
        }
        let time = self.host.clock.microseconds();
        let mut requests = JoinSet::new();
        for (name, live) in leases {
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
                    self.member.give(&name, written, self.now());
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

    /// Drops Leases that could not be renewed in time.
    pub(super) fn expire(&mut self) {
        let lost = self.member.expire(self.now());
        self.set_fence(&lost, None);
        if !lost.is_empty() {
            self.settled_since = None;
            tracing::warn!(
                leases = ?self.titles(&lost),
                "lost shards: their Leases could not be renewed in time"
            );
        }
        self.own();
    }

    /// Says which plan this replica works by now.
    pub(super) fn log_plan(&mut self) {
        self.work.1 = None;
        if let Some(plan) = self.member.plan() {
            tracing::info!(
                leases = self.leases.title(),
                version = plan.version,
                shards = plan.shards.len(),
                "works by a plan of shards"
            );
        }
    }

    fn title(&self, shard: usize) -> String {
        self.leases.lease(&shard_lease(shard)).title()
    }

    fn titles(&self, shards: &[usize]) -> Vec<String> {
        shards.iter().map(|shard| self.title(*shard)).collect()
    }
}
