//! Changes from one plan of shards to another: work that the new plan gives to others ends first, and no replica takes
//! it over before all agree.

use std::sync::Arc;
use std::time::Duration;

use super::{Action, Guard, HURRY, Member, Passage, View};
use crate::replicas::peers::StoredLease;
use crate::replicas::shards::{Division, Divisions, PlannedShard, ShardPlan, hash_of};

/// A plan that a replica waits to adopt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Adopting {
    version: u64,
    /// The time since which it waits, possibly for an earlier version.
    since: Duration,
    /// Set if it has said that it no longer waits for running jobs.
    is_said: bool,
}

/// Work that another plan gives to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct PlanChanges {
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

impl<L: StoredLease> Member<L> {
    /// Another plan is to be adopted: gives up the work that it changes. While a job of that runs, the replica starts
    /// no more of it, keeps its Leases, and tries again in the next round; until it has adopted the plan, the others
    /// take over nothing new. Returns the time to wait for jobs; none if there is no other plan.
    ///
    /// That lasts no longer than if this replica had died: after the duration of a Lease, the fence closes for what
    /// still runs, and the replica adopts the plan as soon as all writes that have passed are settled. A namespace may
    /// then be in a shard that another replica takes at once, so leaving Leases to expire does not help here.
    pub(super) fn prepare(&mut self, view: &View<'_>, now: Duration) -> Option<Duration> {
        let plan = self.round.read.as_ref()?;
        let is_known = self.version().is_some_and(|version| version >= plan.version);
        if is_known || self.is_held_back(view) {
            return None;
        }
        let before = self.plan.as_deref();
        let changes = before.map(|before| PlanChanges::between(before, plan));
        self.round.changes = changes.unwrap_or_default();
        for shard in &self.round.changes.shards {
            if let Some(held) = self.held.get_mut(shard) {
                held.is_leaving = true;
            }
        }
        let mut divisions = Divisions::clone(&self.divisions);
        divisions.retain(|controller, division| plan.controllers.get(controller) == Some(division));
        self.divisions = Arc::new(divisions);
        let adopting = self.adopting.get_or_insert(Adopting {
            version: 0,
            since: now,
            is_said: false,
        });
        // The Leases are renewed after this, so only the first attempt waits for long.
        let is_first_try = std::mem::replace(&mut adopting.version, plan.version) != plan.version;
        Some(if is_first_try {
            self.times.renew_deadline / 3
        } else {
            self.times.retry_period / HURRY
        })
    }

    /// Closes the fence for what another plan changes; none if jobs are still waited for.
    pub(super) fn close_changed(&mut self, now: Duration) -> Option<Action<L>> {
        let adopting = self.adopting.as_mut()?;
        let mut overdue = None;
        if !self.round.is_in_time {
            if now.saturating_sub(adopting.since) < self.times.duration {
                return None;
            }
            overdue = (!std::mem::replace(&mut adopting.is_said, true)).then_some(adopting.version);
        }
        self.pass_divisions();
        let closed = self.close_leaving();
        Some(Action::Fence { closed, overdue })
    }

    /// Adopts the plan that was read, if no write of what it changes can take effect any more, and releases the Leases
    /// of shards that are left.
    pub(super) fn adopt(&mut self, view: &View<'_>) -> Option<Action<L>> {
        let is_settled = self.is_settled(view);
        if !self.holds(Guard::Settled, is_settled) {
            return None;
        }
        self.adopting = None;
        let released = self.release(view);
        self.plan.clone_from(&self.round.read);
        self.digest = self.plan.as_ref().map(|plan| hash_of(&plan.print()));
        released
    }

    /// Reports whether no write that passed the fence before it closed for the changed work can still take effect.
    fn is_settled(&self, view: &View<'_>) -> bool {
        let PlanChanges { shards, divisions } = &self.round.changes;
        let since = self.fenced_since.unwrap_or(Duration::MAX);
        // Lost shards count, too: this replica may have written in them shortly before.
        let planned = 0..self.plan.as_ref().map_or(0, |plan| plan.shards.len());
        let all = || std::iter::once(Passage::Leader).chain(planned.map(Passage::Shard));
        let of_divisions = || all().all(|passage| view.is_settled_as_of(passage, since));
        let mut shards = shards.iter().map(|shard| Passage::Shard(*shard));
        shards.all(|passage| view.is_settled(passage)) && (!divisions || of_divisions())
    }

    /// Decides whether all replicas agree on the plan, so that work can be taken over. Returns `false` if this replica
    /// takes no part yet.
    pub(super) fn agree(&mut self, view: &View<'_>, now: Duration) -> bool {
        let own = self.state();
        // A replica without a plan has no work, and takes none before it has announced a plan.
        let mut others = self.peers.others(&self.own_lease, now).filter(|peer| peer.plan > 0);
        let agree = others.all(|peer| own.agrees_with(peer));
        let is_left = self.peers.has_left_work(self.announced, now);
        // Others do not know an unannounced version, and may still work by the previous plan.
        let is_announced = self.version() == self.announced;
        let is_current = self.round.read.is_some() && self.plan == self.round.read;
        let was_announced = self.round.announced.is_some() && self.round.announced == self.announced;
        self.round.is_settled = is_current
            && self.holds(Guard::Agreed, agree)
            && self.holds(Guard::NoneLeft, !is_left)
            && self.holds(Guard::Announced, is_announced && was_announced)
            && self.peers.leader_takes_part(now);
        let (Some(plan), Some(_)) = (&self.plan, self.valid_until) else {
            return false;
        };
        if self.round.is_settled {
            self.divisions = Arc::new(agreed(&plan.controllers, view.divisions));
            // All replicas agree on the plan. Controllers that only this one leaves out may pass until it adopts
            // another plan: that plan waits for writes that have passed until then.
            self.fenced_divisions = Arc::new(plan.controllers.clone());
        }
        true
    }
}

/// The division of controllers' work that a replica applies. Its plugins may be of another version than the leader's:
/// it leaves out controllers that the plan divides and its own versions do not, because they would contribute for a
/// part of the primaries.
fn agreed(planned: &Divisions, own: &Divisions) -> Divisions {
    let mut agreed = planned.clone();
    agreed.retain(|controller, planned| *planned == Division::Leader || own.get(controller) != Some(&Division::Leader));
    agreed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_done_as_a_whole_is_not_done_in_parts() {
        use Division::{Leader, Namespaces};

        let of = |divisions: &[(&str, Division)]| -> Divisions {
            let divisions = divisions.iter().map(|(name, division)| ((*name).to_owned(), *division));
            divisions.collect()
        };
        let planned = of(&[
            ("a", Leader),
            ("b", Leader),
            ("c", Namespaces),
            ("d", Namespaces),
            ("e", Namespaces),
        ]);
        let own = of(&[
            ("a", Leader),
            ("b", Namespaces),
            ("c", Leader),
            ("d", Namespaces),
            ("f", Namespaces),
        ]);
        let expected = of(&[("a", Leader), ("b", Leader), ("d", Namespaces), ("e", Namespaces)]);
        assert_eq!(agreed(&planned, &own), expected);
    }
}
