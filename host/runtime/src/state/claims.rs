//! Leads to the registry of claims, together with the cache, the lanes and the queue, on which its decisions depend.

use std::sync::Arc;
use std::time::Duration;

use pilothouse_core::Name;
use tokio::time::Instant;

use super::{SharedState, Tables};
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::state::tables::claims::{
    CapturedTarget, ClaimRequest, Contribution, EndedLook, GivenUp, PendingClaims, TargetId, WaitingClaims,
    contributed_to,
};

impl SharedState {
    /// Whether a primary has claims.
    pub fn has_claims(&self, lane: &Lane, primary_ref: &PrimaryRef) -> bool {
        self.tables.read().contributions.has_claims(lane, primary_ref)
    }

    /// Makes the claims of a primary, which has answered with them.
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
        contributions.answered(store, lanes, queue, &lane.plugin, primary_ref);
        drop(tables);
        self.claims.notify_one();
        pending
    }

    /// A primary is gone, or about to go without the plugin being asked: nothing is known on its behalf any more.
    pub fn forget_primary(&self, lane: &Lane, primary_ref: &PrimaryRef) {
        self.tables.write().forget_primary(lane, primary_ref);
        self.claims.notify_one();
    }

    /// A primary has left the filter of its lane: it depends on nothing and claims nothing any more.
    pub fn leave_filter(&self, lane: &Lane, primary_ref: &PrimaryRef) {
        let mut tables = self.tables.write();
        tables.forget_reader(primary_ref);
        tables.withdraw(lane, primary_ref);
        drop(tables);
        self.claims.notify_one();
    }

    /// Takes targets to look at, at most so many. A target waits for more claims for as long as `linger`; while one does,
    /// it is considered again after `step`. Also says when to ask again if nothing comes before.
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

    /// Captures what is known of a target, and takes those who wait for a look at it; none when it has been forgotten.
    pub fn begin_look(&self, id: &TargetId) -> Option<(WaitingClaims, CapturedTarget)> {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            contributions,
            ..
        } = &mut *tables;
        contributions.begin_look(store, lanes, id)
    }

    /// A look at a target has come to its end.
    pub fn end_look(&self, id: &TargetId, look: EndedLook) {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            queue,
            contributions,
            ..
        } = &mut *tables;
        contributions.look_ended(store, lanes, queue, id, look);
    }

    /// A target is not looked at any more, also where the look did not come to its end.
    pub fn target_done(&self, id: &TargetId) {
        self.tables.write().contributions.done(id);
        self.claims.notify_one();
        self.work.notify_one();
    }

    /// Has what is left of a lane's contributions looked at, each object again only when it has changed.
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

    /// Closes the claims of a plugin whose lanes are closed, so that nothing more is contributed. Says whether nothing of
    /// it is being written.
    pub fn close_claims(&self, plugin: &str) -> bool {
        self.tables.write().contributions.close(plugin)
    }

    /// All that the plugin of these lanes contributes, as the cache has it; what several lanes may contribute to is named by
    /// each of them.
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

    /// The primaries of a plugin that have to answer before fields that nobody claims are given up, by controller.
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
    /// The claims of a primary go.
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
