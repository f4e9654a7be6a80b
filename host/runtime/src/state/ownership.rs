//! Takes over and gives up shards: the primaries that this replica reconciles. A primary that is taken over is
//! reconciled as soon as the cache holds its namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::replicas::peers::WorkCount;
use pilothouse_core::replicas::shards::{Divisions, HashRanges, OwnedOf, OwnedWork};

use super::SharedState;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::queue::TriggerReason;
use crate::state::tables::claims::contributes;

impl SharedState {
    /// Sets the work of this replica. Primaries that are new to it are reconciled, because their recent past is
    /// unknown; those that it lost are not started again.
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
            tables.enqueue(&lane, TriggerReason::Started, is_gained);
        }
        drop(tables);
        self.notify_all();
    }

    /// Adapts the lanes to other cached namespaces. Those that the cache already holds stay covered; the rest follows
    /// when it has been listed.
    pub fn cached_namespaces_change(&self) {
        let mut tables = self.tables.write();
        let lanes: Vec<Arc<Lane>> = tables.lanes.iter().cloned().collect();
        for lane in lanes {
            let Some(cached) = lane.cached_namespaces() else {
                continue;
            };
            let covered = match tables.queue.covered(lane.id) {
                Some(covered) => covered.intersection(&cached),
                None => cached,
            };
            tables.queue.cover(lane.id, Some(covered));
        }
    }

    /// Returns `true` if an object of a lane is this replica's work.
    pub fn owns(&self, lane: &Lane, name: &Name) -> bool {
        let tables = self.tables.read();
        tables.queue.owned().of(&lane.title()).has(name.namespace.as_deref())
    }

    /// Number of primaries of a lane that are this replica's work. The cache may hold others, too.
    pub fn count_owned(&self, lane: &Lane) -> usize {
        let tables = self.tables.read();
        let owned = tables.queue.owned().of(&lane.title());
        let primaries = tables.store.iter(lane.grants.primary(), None);
        let is_owned = |name: &Name| owned.has(name.namespace.as_deref());
        primaries
            .filter(|object| lane.reconciles(object) && is_owned(&object.name))
            .count()
    }

    /// Returns `true` if all objects of a lane are this replica's work.
    pub fn leads(&self, lane: &Lane) -> bool {
        let tables = self.tables.read();
        tables.queue.owned().of(&lane.title()) == OwnedOf::All
    }

    /// Waits until no job runs that is no longer this replica's work.
    pub async fn drain_unowned(&self) {
        loop {
            let ended = self.ended.notified();
            if !self.tables.read().queue.runs_what_is_not_owned() {
                return;
            }
            ended.await;
        }
    }

    /// Division of the work of each existing lane.
    pub fn divisions(&self) -> Divisions {
        let lanes = self.lanes();
        lanes.iter().map(|lane| (lane.title(), lane.division())).collect()
    }
}

impl SharedState {
    /// Counts the primaries of this replica, for controllers whose work is divided.
    pub fn count_work(&self, shards: &BTreeMap<usize, HashRanges>) -> WorkCount {
        let mut by_lane: Vec<(String, Vec<Arc<str>>)> = Vec::new();
        let tables = self.tables.read();
        for lane in tables.lanes.iter().filter(|lane| lane.cached_namespaces().is_some()) {
            let primaries = tables.store.iter(lane.grants.primary(), None);
            let primaries = primaries.filter(|object| lane.reconciles(object));
            let namespaces = primaries.filter_map(|object| object.name.namespace.clone());
            by_lane.push((lane.title(), namespaces.collect()));
        }
        drop(tables);
        let mut count = WorkCount {
            by_controller: BTreeMap::new(),
            by_shard: shards.keys().map(|shard| (*shard, 0)).collect(),
        };
        for (title, namespaces) in by_lane {
            let objects = count.by_controller.entry(title).or_default();
            for namespace in namespaces {
                if let Some((shard, _)) = shards.iter().find(|(_, ranges)| ranges.has(&namespace)) {
                    *count.by_shard.entry(*shard).or_default() += 1;
                    *objects += 1;
                }
            }
        }
        count
    }
}

impl super::Tables {
    /// Records that the cache holds all cached namespaces of an open lane, and queues the primaries that are new to it.
    pub(super) fn cover(&mut self, lane: &Lane) {
        let before = self.queue.covered(lane.id).cloned();
        self.queue.cover(lane.id, lane.cached_namespaces());
        let was_covered = |name: &Name| {
            let namespace = name.namespace.as_deref();
            before.as_ref().is_none_or(|covered| covered.has_object_in(namespace))
        };
        self.enqueue(lane, TriggerReason::Started, |name| !was_covered(name));
    }

    /// Forgets the recorded reads of primaries that another replica now reconciles.
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
            self.paused.remove(lane.id, &name);
            for (kind, path) in self.dependencies.remove(&PrimaryRef::new(lane.id, name)) {
                self.store.drop_index(&kind, &path);
            }
        }
    }

    /// Starts the claims of a lane anew: the recorded ones belong to another replica, or are older than what it did.
    fn reopen_claims(&mut self, lane: &Lane) {
        let Self {
            store,
            queue,
            lanes,
            contributions,
            ..
        } = self;
        contributions.remove_lane(lanes, queue, lane);
        contributions.open_lane(store, lanes, queue, lane);
    }
}
