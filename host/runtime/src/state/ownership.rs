//! Takes up and gives up shards: which of the primaries this replica works at. What is taken up is reconciled as soon as the
//! cache has its namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::replicas::shards::{Divisions, HashRanges, OwnedOf, OwnedWork};

use super::SharedState;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::queue::TriggerReason;
use crate::state::tables::claims::contributes;

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
            tables.enqueue(&lane, TriggerReason::Started, is_gained);
        }
        drop(tables);
        self.tell_all();
    }

    /// The cache is to hold other namespaces for lanes from here on. What it has all of by now is covered already; the rest
    /// follows when it is listed.
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

    /// Whether an object of a lane is this replica's work.
    pub fn owns(&self, lane: &Lane, name: &Name) -> bool {
        let tables = self.tables.read();
        tables.queue.owned().of(&lane.title()).has(name.namespace.as_deref())
    }

    /// How many primaries of a lane are this replica's work. The cache may have others, too.
    pub fn count_owned(&self, lane: &Lane) -> usize {
        let tables = self.tables.read();
        let owned = tables.queue.owned().of(&lane.title());
        let primaries = tables.store.iter(lane.grants.primary(), None);
        let is_owned = |name: &Name| owned.has(name.namespace.as_deref());
        primaries
            .filter(|object| lane.reconciles(object) && is_owned(&object.name))
            .count()
    }

    /// Whether all objects of a lane are this replica's work.
    pub fn leads(&self, lane: &Lane) -> bool {
        let tables = self.tables.read();
        tables.queue.owned().of(&lane.title()) == OwnedOf::All
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
}

/// What a replica works at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkCount {
    /// How many primaries each controller has here.
    pub by_controller: BTreeMap<String, u64>,
    /// How many each of the shards has.
    pub by_shard: BTreeMap<usize, u64>,
}

impl SharedState {
    /// Counts the primaries that this replica works at, of controllers whose work is divided.
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
    /// The cache has all that an open lane needs of the namespaces that it holds for it: the primaries that are new to the
    /// lane are reconciled.
    pub(super) fn cover(&mut self, lane: &Lane) {
        let before = self.queue.covered(lane.id).cloned();
        self.queue.cover(lane.id, lane.cached_namespaces());
        let was_covered = |name: &Name| {
            let namespace = name.namespace.as_deref();
            before.as_ref().is_none_or(|covered| covered.has_object_in(namespace))
        };
        self.enqueue(lane, TriggerReason::Started, |name| !was_covered(name));
    }

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
