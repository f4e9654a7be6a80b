//! Gives access to the registry of claims, together with the cache, the lanes and the queue, on which its decisions
//! depend.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Name;
use tokio::time::Instant;

use super::{SharedState, Tables};
use crate::lanes::lane::Lane;
use crate::lanes::pause::is_paused;
use crate::lanes::primary::PrimaryRef;
use crate::state::tables::claims::{
    CapturedTarget, ClaimRequest, Contribution, EndedLook, GivenUp, PendingClaims, TargetId, WaitingClaims,
    contributed_to,
};

impl SharedState {
    /// Returns `true` if a primary has claims.
    pub fn has_claims(&self, lane: &Lane, primary_ref: &PrimaryRef) -> bool {
        self.tables.read().contributions.has_claims(lane, primary_ref)
    }

    /// Registers the claims with which a primary's reconcile has answered.
    pub fn make_claims(&self, lane: &Lane, request: ClaimRequest<'_>) -> PendingClaims {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            queue,
            contributions,
            ..
        } = &mut *tables;
        let primary_ref = request.primary_ref;
        let pending = contributions.register(store, lane, request);
        if matches!(pending, PendingClaims::Known(..)) {
            contributions.answered(store, lanes, queue, &lane.plugin, primary_ref);
        }
        drop(tables);
        self.claims.notify_one();
        pending
    }

    /// Forgets all that was recorded for a primary that was deleted, or will be without another call of the plugin.
    pub fn forget_primary(&self, lane: &Lane, primary_ref: &PrimaryRef) {
        self.tables.write().forget_primary(lane, primary_ref);
        self.claims.notify_one();
    }

    /// Forgets what wakes a primary, unless it has been resumed meanwhile. `is_counted` is set if it is one of the lane's.
    pub fn pause(&self, lane: &Lane, primary_ref: &PrimaryRef, is_counted: bool) {
        let mut tables = self.tables.write();
        let primary = tables.store.get(lane.grants.primary(), &primary_ref.name);
        if primary.is_some_and(|primary| is_paused(primary)) {
            tables.pause(lane, primary_ref, is_counted);
        }
    }

    /// Drops the dependencies and claims of a primary that has left the filter of its lane.
    pub fn leave_filter(&self, lane: &Lane, primary_ref: &PrimaryRef) {
        let mut tables = self.tables.write();
        tables.forget_reader(primary_ref);
        tables.withdraw(lane, primary_ref);
        drop(tables);
        self.claims.notify_one();
    }

    /// Takes at most `room` targets that are due. A target waits up to `linger` for more claims and is considered again
    /// every `step` meanwhile. Also returns when to call again if nothing else happens.
    pub fn take_targets(&self, room: usize, linger: Duration, step: Duration) -> (Vec<TargetId>, Option<Instant>) {
        let mut tables = self.tables.write();
        let Tables {
            lanes,
            queue,
            own_writes,
            contributions,
            ..
        } = &mut *tables;
        let is_awaited = |key: &_| own_writes.is_awaited(key);
        let taken = contributions.take_due(lanes, queue, is_awaited, room, linger);
        let due = contributions.next_due((taken.len() < room).then_some(step));
        (taken, due)
    }

    /// Captures the state of a target and takes its waiters; `None` if the target has been forgotten.
    pub fn begin_settlement(&self, id: &TargetId) -> Option<(WaitingClaims, CapturedTarget)> {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            contributions,
            ..
        } = &mut *tables;
        contributions.begin_settlement(store, lanes, id)
    }

    /// Records the outcome of a target's settlement.
    pub fn end_settlement(&self, id: &TargetId, look: EndedLook) {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            queue,
            contributions,
            ..
        } = &mut *tables;
        contributions.apply_settlement(store, lanes, queue, id, look);
    }

    /// Marks a target as no longer busy, also if its settlement was cancelled.
    pub fn target_done(&self, id: &TargetId) {
        self.tables.write().contributions.done(id);
        self.claims.notify_one();
        self.work.notify_one();
    }

    /// Marks the leftover contributions of a lane for release. An object is marked again only after it has changed.
    pub fn give_up(&self, lane: &Lane, asked: &mut GivenUp) {
        let mut tables = self.tables.write();
        let Tables {
            store, contributions, ..
        } = &mut *tables;
        asked.retain(|key, _| store.get(&key.kind, &key.name).is_some());
        contributions.give_up(store, lane, asked);
        drop(tables);
        self.claims.notify_one();
    }

    /// Closes the claims of a plugin whose lanes are closed, so that nothing more is contributed. Returns `true` if no
    /// target of it is being written.
    pub fn close_claims(&self, plugin: &str) -> bool {
        self.tables.write().contributions.close(plugin)
    }

    /// All cached objects to which the plugin of these lanes contributes. An object is listed once for each lane that
    /// may contribute to it.
    pub fn contributed_by(&self, lanes: &[Arc<Lane>]) -> Vec<Contribution> {
        let tables = self.tables.read();
        let of_lane = |lane: &Arc<Lane>| {
            let objects = contributed_to(&tables.store, lane).map(|(served, object)| Contribution {
                lane: lane.clone(),
                served,
                object: object.clone(),
            });
            objects.collect::<Vec<_>>()
        };
        lanes.iter().flat_map(of_lane).collect()
    }

    /// Primaries of a plugin, by controller, that must be reconciled before unclaimed fields are released.
    pub fn waited_for(&self, plugin: &str) -> Vec<(String, Name)> {
        let tables = self.tables.read();
        let readers = tables.contributions.waited_for(plugin);
        readers
            .filter_map(|primary_ref| {
                let lane = tables.lanes.get(primary_ref.lane)?;
                Some((lane.controller.clone(), primary_ref.name.clone()))
            })
            .collect()
    }
}

impl Tables {
    /// Withdraws the claims of a primary.
    pub(super) fn withdraw(&mut self, lane: &Lane, primary_ref: &PrimaryRef) {
        let Self {
            store,
            lanes,
            queue,
            contributions,
            ..
        } = self;
        contributions.withdraw(store, lanes, queue, lane, primary_ref);
    }
}
