//! Answers what plugins read, and records who has read what. A record and the comparison with what was answered begin
//! in one step, so that no change falls between them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pilothouse_cluster::cache::store::QueryCandidates;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::reads::dependencies::Read;
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Key, Kind, Name};

use super::{SharedState, Tables};
use crate::lanes::cache_need::CacheNeed;
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Priority, Trigger, TriggerReason};
use crate::state::tables::reads::{ReadFingerprint, Recheck};

impl SharedState {
    /// Whether all that is needed of a kind has been listed once, and is followed since.
    pub fn has_listed(&self, kind: &Kind, projection: &Projection, reach: &Reach) -> bool {
        self.tables.read().store.has(kind, projection, reach)
    }

    /// The same for what a lane needs.
    pub fn has_listed_need(&self, kind: &Kind, need: &CacheNeed) -> bool {
        self.has_listed(kind, &need.projection, &need.reach)
    }

    /// One object, and how often its kind had changed by then.
    pub fn get_with_changes(&self, kind: &Kind, name: &Name) -> (Option<Arc<CachedObject>>, u64) {
        let store = &self.tables.read().store;
        (store.get(kind, name).cloned(), store.changes(kind))
    }

    /// The objects among which a query finds its own. An index that it needs is built without the lock, and swapped in.
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

    /// Replaces what a primary depends on. Answers with the reads whose answer may be another by now: between the read and
    /// this moment nobody watched on its behalf.
    pub fn depend(&self, primary_ref: &PrimaryRef, reads: BTreeMap<Read, ReadFingerprint>) -> Vec<Recheck> {
        let mut tables = self.tables.write();
        let rechecks = reads
            .iter()
            .filter_map(|(read, answered)| answered.recheck(&tables.store, read));
        let rechecks = rechecks.collect();
        tables.depend(primary_ref, reads.into_keys().collect());
        rechecks
    }

    /// Depends on an object that stands in the way. If it has changed since it was seen so, the reader runs again at once:
    /// meanwhile nobody watched on its behalf. That a cache does not have it which shows only some of the kind says nothing.
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
    fn depend(&mut self, primary_ref: &PrimaryRef, reads: BTreeSet<Read>) {
        for (kind, path) in self.dependencies.replace(primary_ref, reads) {
            self.store.drop_index(&kind, &path);
        }
    }

    /// A primary depends on nothing any more.
    pub(super) fn forget_reader(&mut self, primary_ref: &PrimaryRef) {
        self.depend(primary_ref, BTreeSet::new());
        self.orphans.forget(primary_ref);
    }
}
