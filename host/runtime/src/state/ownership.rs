//! Takes up and gives up shards: which of the primaries this replica works at. The cache has all of them, so what is taken up
//! is reconciled at once.

use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::shards::{Division, Divisions, NamespaceLoads, OwnedWork};

use super::SharedState;
use crate::claims::contributes;
use crate::lane::Lane;
use crate::primary::PrimaryRef;

impl SharedState {
    /// From here on this replica works at this. What is new to it is reconciled, as nobody knows what has happened to it
    /// since; what it has no more, it does not begin again.
    pub fn own(&self, owned: &OwnedWork) {
        let mut tables = self.tables.write();
        let before = tables.queue.owned().clone();
        if before == *owned {
            return;
        }
        tables.queue.own(owned.clone());
        let lanes: Vec<Arc<Lane>> = tables.lanes.iter().cloned().collect();
        for lane in lanes {
            let title = lane.title();
            let (had, has) = (before.of(&title), owned.of(&title));
            if had == has || !tables.queue.is_open(lane.id) {
                continue;
            }
            let is_gained = |name: &Name| {
                let namespace = name.namespace.as_deref();
                has.has(namespace) && !had.has(namespace)
            };
            let is_lost = |name: &Name| {
                let namespace = name.namespace.as_deref();
                !has.has(namespace) && had.has(namespace)
            };
            tables.forget_lost(&lane, is_lost);
            if contributes(&lane) {
                tables.reopen_claims(&lane);
            }
            tables.enqueue(&lane, is_gained);
        }
        drop(tables);
        self.tell_all();
    }

    /// Whether an object of a lane is this replica's work.
    pub fn owns(&self, lane: &Lane, name: &Name) -> bool {
        let tables = self.tables.read();
        tables.queue.owned().of(&lane.title()).has(name.namespace.as_deref())
    }

    /// Waits until nothing runs that is not this replica's work any more.
    pub async fn nothing_runs_that_is_not_owned(&self) {
        loop {
            let ended = self.ended.notified();
            if !self.tables.read().queue.runs_what_is_not_owned() {
                return;
            }
            ended.await;
        }
    }

    /// How the work of each lane that is there can be divided.
    pub fn divisions(&self) -> Divisions {
        let lanes = self.lanes();
        lanes.iter().map(|lane| (lane.title(), lane.division())).collect()
    }

    /// How many objects each namespace has of those whose work can be divided.
    pub fn namespace_loads(&self) -> NamespaceLoads {
        let mut namespaces: Vec<Arc<str>> = Vec::new();
        let tables = self.tables.read();
        for lane in tables
            .lanes
            .iter()
            .filter(|lane| lane.division() == Division::Namespaces)
        {
            let primaries = tables.store.iter(lane.grants.primary(), None);
            let primaries = primaries.filter(|object| lane.reconciles(object));
            namespaces.extend(primaries.filter_map(|object| object.name.namespace.clone()));
        }
        drop(tables);
        let mut loads = NamespaceLoads::default();
        for namespace in namespaces {
            loads.add(&namespace, 1);
        }
        loads
    }
}

impl super::Tables {
    /// What was recorded of primaries that another replica works at from here on.
    fn forget_lost(&mut self, lane: &Lane, is_lost: impl Fn(&Name) -> bool) {
        let lost: Vec<Name> = {
            let primaries = self.store.iter(lane.grants.primary(), None);
            primaries
                .map(|object| &object.name)
                .filter(|name| is_lost(name))
                .cloned()
                .collect()
        };
        for name in lost {
            for (kind, path) in self.dependencies.remove(&PrimaryRef::new(lane.id, name)) {
                self.store.drop_index(&kind, &path);
            }
        }
    }

    /// What is known of claims is another replica's, or older than what it did: everybody is asked again.
    fn reopen_claims(&mut self, lane: &Lane) {
        let Self {
            store,
            queue,
            lanes,
            contributions,
            ..
        } = self;
        contributions.lane_goes(lanes, queue, lane);
        contributions.lane_opens(store, lanes, queue, lane);
    }
}
