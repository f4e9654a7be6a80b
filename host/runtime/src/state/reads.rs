//! Answers reads of plugins, and records which primary has read what. Recording a read and comparing it with its answer
//! happen in one step, so that no change falls in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pilothouse_cluster::cache::store::QueryCandidates;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Key, Kind, Name};

use super::{SharedState, Tables};
use crate::lanes::cache_need::CacheNeed;
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Priority, Trigger, TriggerReason};
use crate::state::tables::reads::{ReadFingerprint, Recheck};

impl SharedState {
    /// Returns `true` if all that is needed of a kind has been listed and is watched since.
    pub fn has_listed(&self, kind: &Kind, projection: &Projection, reach: &Reach) -> bool {
        self.tables.read().store.has(kind, projection, reach)
    }

    /// Returns `true` if all that a lane needs of a kind has been listed and is watched since.
    pub fn has_listed_need(&self, kind: &Kind, need: &CacheNeed) -> bool {
        self.has_listed(kind, &need.projection, &need.reach)
    }

    /// An object as cached, and the count of its kind's changes at that moment.
    pub fn get_with_changes(&self, kind: &Kind, name: &Name) -> (Option<Arc<CachedObject>>, u64) {
        let store = &self.tables.read().store;
        (store.get(kind, name).cloned(), store.changes(kind))
    }

    /// Objects among which a query finds its matches. An index that is missing is built without the lock, and swapped
    /// in.
    pub fn candidates(&self, kind: &Kind, query: &CheckedQuery) -> QueryCandidates {
        let draft = {
            let store = &self.tables.read().store;
            match store.draft_index(kind, query) {
                Some(draft) => draft,
                None => return store.candidates(kind, query),
            }
        };
        let index = draft.build();
        let mut tables = self.tables.write();
        tables.store.add_index(kind, index);
        tables.store.candidates(kind, query)
    }

    /// Replaces the recorded reads of a primary. Returns the reads whose answer may have changed: no change between the
    /// read and this moment has requeued the primary.
    pub fn depend(&self, primary_ref: &PrimaryRef, reads: BTreeMap<Read, ReadFingerprint>) -> Vec<Recheck> {
        let mut tables = self.tables.write();
        let rechecks = reads
            .iter()
            .filter_map(|(read, answered)| answered.recheck(&tables.store, read));
        let rechecks = rechecks.collect();
        tables.depend(primary_ref, reads.into_keys().collect());
        rechecks
    }

    /// Records a dependency on a blocking object. If it has changed since it was seen, the primary is requeued at once,
    /// because no change in between has requeued it. A cache that holds only a part of the kind proves nothing by
    /// lacking the object.
    pub fn depend_on_obstacle(
        &self,
        primary_ref: &PrimaryRef,
        served: &ServedKind,
        object: &Name,
        seen: Option<&CachedObject>,
    ) {
        let read = Read::Obstacle(served.kind.clone(), object.clone());
        let version = |object: &CachedObject| (object.uid.clone(), object.resource_version.clone());
        let mut tables = self.tables.write();
        let now = tables.store.get(&served.kind, object).map(|object| version(object));
        tables.dependencies.add(primary_ref, read);
        let is_comparable = now.is_some() || tables.store.would_know(&served.kind, object);
        if is_comparable && now != seen.map(version) {
            let key = Arc::new(Key::new(served.kind.clone(), object.clone()));
            let trigger = Trigger::of(TriggerReason::DependencyChanged, key);
            tables
                .queue
                .push(primary_ref.lane, &primary_ref.name, Priority::Change, trigger);
        }
    }

    /// Depends on an object of a kind that the cluster does not serve: the primary runs again when the kind has been listed.
    pub fn depend_on_unserved(&self, primary_ref: &PrimaryRef, kind: &Arc<Kind>, object: &Name) {
        let read = Read::Obstacle(kind.clone(), object.clone());
        self.tables.write().dependencies.add(primary_ref, read);
    }
}

impl Tables {
    pub(super) fn depend(&mut self, primary_ref: &PrimaryRef, reads: BTreeSet<Read>) {
        for (kind, path) in self.dependencies.replace(primary_ref, reads) {
            self.store.drop_index(&kind, &path);
        }
    }

    /// Drops the dependencies of a primary.
    pub(super) fn forget_reader(&mut self, primary_ref: &PrimaryRef) {
        self.depend(primary_ref, BTreeSet::new());
        self.orphans.forget(primary_ref);
    }
}
