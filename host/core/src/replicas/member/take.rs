//! Decides which shards a replica takes, renews, hands over and releases.

use std::time::Duration;

use super::{Action, Guard, HeldShard, Member, Passage, View};
use crate::replicas::peers::{StoredLease, shard_lease};
use crate::replicas::shards::{HashRanges, LiveShard, assign};

impl<L: StoredLease> Member<L> {
    /// Decides which shards are to be this replica's, and chooses one that is to be another's: first no job of it is
    /// started any more, then, when running jobs have ended, its Lease is released. Returns `true` if one is leaving.
    pub(super) fn hand_over(&mut self, view: &View<'_>, now: Duration) -> bool {
        self.assign(now);
        if let Some((shard, since)) = self.handed_over {
            let holder = self.peers.holder(&shard_lease(shard), now);
            let is_taken = holder.is_some_and(|holder| holder != self.peers.identity());
            if is_taken || now.saturating_sub(since) >= self.times.duration {
                self.handed_over = None;
            }
        }
        let is_leaving = self.held.values().any(|held| held.is_leaving);
        if self.round.is_settled && !is_leaving && self.handed_over.is_none() {
            // A shard that would have to be kept for longer is handed over last.
            let is_unsettled = |shard: &usize| !view.is_settled(Passage::Shard(*shard));
            let targets = &self.round.targets;
            let moving = self.held.keys().copied().filter(|shard| !targets.contains(shard));
            let next = moving.min_by_key(is_unsettled);
            if let Some(held) = next.and_then(|next| self.held.get_mut(&next)) {
                held.is_leaving = true;
            }
        }
        self.held.values().any(|held| held.is_leaving)
    }

    fn assign(&mut self, now: Duration) {
        let Some(plan) = self.plan.as_ref().filter(|plan| plan.shards.len() == self.shards) else {
            return;
        };
        let replicas = self.peers.taking_part(plan.shards.len(), plan.version, now);
        let live = plan.shards.iter().enumerate().map(|(shard, planned)| LiveShard {
            load: planned.load,
            holder: self.peers.holder(&shard_lease(shard), now),
        });
        let assigned = assign(&replicas, &live.collect::<Vec<_>>());
        let own = assigned.iter().enumerate();
        let own = own.filter(|(_, holder)| **holder == Some(self.peers.identity()));
        self.round.targets = own.map(|(shard, _)| shard).collect();
    }

    /// Closes the shards of which no job is started any more, and returns those that were open.
    pub(super) fn close_leaving(&mut self) -> Vec<usize> {
        let leaving = self
            .held
            .iter_mut()
            .filter(|(_, held)| held.is_leaving && !held.is_closed);
        let close = |(shard, held): (&usize, &mut HeldShard)| {
            held.is_closed = true;
            *shard
        };
        leaving.map(close).collect()
    }

    /// Releases the Leases of closed shards, so that nobody waits for them to expire. While a write in a shard may
    /// still take effect, its Lease is kept, and no further write passes.
    pub(super) fn release(&mut self, view: &View<'_>) -> Option<Action<L>> {
        let closed = self.held.iter().filter(|(_, held)| held.is_closed);
        let settled = closed.filter(|(shard, _)| self.is_released(Passage::Shard(**shard), view));
        let settled: Vec<usize> = settled.map(|(shard, _)| *shard).collect();
        let ended: Vec<(usize, HashRanges)> = settled
            .into_iter()
            .filter_map(|shard| Some((shard, self.held.remove(&shard)?.ranges)))
            .collect();
        let leases = self.owned(ended.iter().map(|(shard, _)| shard_lease(*shard)));
        let left = Vec::new();
        (!ended.is_empty()).then_some(Action::Release { leases, ended, left })
    }

    /// Reports whether the Lease of a passage that is closed may be released.
    pub(super) fn is_released(&self, passage: Passage, view: &View<'_>) -> bool {
        self.holds(Guard::Released, view.is_settled(passage))
    }

    /// Those of these Leases that this replica holds.
    pub(super) fn owned(&self, names: impl IntoIterator<Item = String>) -> Vec<(String, L)> {
        let owned = names.into_iter().filter_map(|name| {
            let live = self.peers.own(&name)?.clone();
            Some((name, live))
        });
        owned.collect()
    }

    /// Chooses free shards that are assigned to this replica, and returns what is to be dropped from its cache before
    /// it takes them: namespaces that another replica may have held. Their watches may have been interrupted, and
    /// recover one after another, so that a primary may be cached without the children that the other replica made for
    /// it. A list after the shard was taken shows all of them.
    pub(super) fn take(&mut self, now: Duration) -> Option<HashRanges> {
        let plan = self.plan.as_ref().filter(|_| self.round.is_settled)?;
        let is_free = |shard: &usize| {
            let holder = self.peers.holder(&shard_lease(*shard), now);
            holder.is_none_or(|holder| holder == self.peers.identity())
        };
        let missing = self.round.targets.iter().copied();
        let missing = missing.filter(|shard| !self.held.contains_key(shard));
        self.round.taken = missing.filter(is_free).collect();
        let taken = self.round.taken.iter();
        let foreign = taken.filter(|shard| self.peers.own(&shard_lease(**shard)).is_none());
        let ranges = foreign.flat_map(|shard| plan.shards[*shard].ranges.iter()).collect();
        self.round.is_in_time = false;
        (!self.round.taken.is_empty()).then_some(ranges)
    }

    /// Renews the Leases of held shards, and takes those that were chosen, if the cache has dropped them.
    pub(super) fn write(&mut self, view: &View<'_>, now: Duration) -> Option<Action<L>> {
        let mut shards = std::mem::take(&mut self.round.taken);
        if !self.round.is_in_time {
            shards.clear();
        }
        shards.extend(self.held.keys());
        let (mut writes, mut lost) = (Vec::new(), Vec::new());
        for shard in shards {
            if let Some(write) = self.next_write(shard_lease(shard), view, now) {
                writes.push((shard, write));
            } else if let Some(held) = self.held.remove(&shard) {
                // Another replica has taken it.
                lost.push((shard, held.ranges));
            }
        }
        self.round.unwritten = writes.len();
        let is_needed = !writes.is_empty() || !lost.is_empty();
        is_needed.then_some(Action::Write { writes, lost })
    }

    /// Records the Lease of a shard that was written. Returns `true` if the shard is new.
    pub fn hold(&mut self, shard: usize, sent: Duration, lease: L, now: Duration) -> bool {
        self.peers.written(&shard_lease(shard), lease, now);
        let planned = self.plan.as_ref().and_then(|plan| plan.shards.get(shard));
        let (Some(planned), Some(valid_until)) = (planned, self.valid_until) else {
            return false;
        };
        self.round.unwritten = self.round.unwritten.saturating_sub(1);
        let is_new = !self.held.contains_key(&shard);
        let until = (sent + self.times.renew_deadline).min(valid_until);
        let held = self.held.entry(shard).or_insert_with(|| HeldShard {
            ranges: planned.ranges.clone(),
            until,
            is_leaving: false,
            is_closed: false,
        });
        held.until = until;
        is_new
    }
}
