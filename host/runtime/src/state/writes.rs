//! Follows our own writes: each is known before its request is made and until the cache has seen it, and what the server
//! refuses or does not keep of one is remembered as long as the object is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::{Failure, Key, Kind, Name};
use tokio::time::Instant;

use super::{SharedState, Tables};
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Priority, Trigger, TriggerReason};
use crate::state::tables::echo::AwaitedEcho;
use crate::state::tables::orphans::Witness;
use crate::state::tables::refusals::RefusedPart;
use crate::state::tables::unpersisted::UnpersistedApply;

impl SharedState {
    /// A write of an object begins.
    pub fn begin_write(&self, key: Key, primary_ref: &PrimaryRef) {
        self.tables.write().own_writes.begin(key, primary_ref);
    }

    /// A write of an object is over. When it had success, its primary waits for the cache to see it.
    pub fn end_write(&self, key: Key, awaited: Option<AwaitedEcho>, primary_ref: &PrimaryRef) {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            queue,
            own_writes,
            orphans,
            ..
        } = &mut *tables;
        if own_writes.end(store, lanes, queue, key, awaited, primary_ref) {
            orphans.lose_child(primary_ref.clone());
        }
    }

    /// An object was looked at past the cache: the primary runs again only once the cache has seen that version, where it
    /// would.
    pub fn await_version(&self, key: Key, awaited: AwaitedEcho, primary_ref: &PrimaryRef) {
        let mut tables = self.tables.write();
        let Tables {
            store,
            lanes,
            queue,
            own_writes,
            ..
        } = &mut *tables;
        if store.would_know(&key.kind, &key.name) {
            own_writes.await_echo(store, lanes, queue, key, awaited, primary_ref);
        }
    }

    /// Why the server would refuse a body of this digest again, as far as that is known.
    pub fn refusal(&self, key: &Key, part: RefusedPart, digest: &str, live: Option<&CachedObject>) -> Option<Failure> {
        let tables = self.tables.read();
        tables.refusals.recall(key, part, digest, live, Instant::now())
    }

    /// The server has refused a body of this digest for good.
    pub fn note_refusal(
        &self,
        refused: (Key, RefusedPart),
        digest: &str,
        live: Option<&CachedObject>,
        failure: Failure,
    ) {
        let mut tables = self.tables.write();
        tables.refusals.note(refused, digest, live, failure, Instant::now());
    }

    /// A part of an object was taken.
    pub fn forget_refusal(&self, key: Key, part: RefusedPart) {
        self.tables.write().refusals.forget(key, part);
    }

    /// What the server does not hold of an object as it was applied.
    pub fn unpersisted(&self, key: &Key) -> Option<UnpersistedApply> {
        self.tables.read().unpersisted.get(key).cloned()
    }

    /// An object was applied: the server refuses it no more, and does not hold this of it.
    pub fn applied(&self, key: Key, unpersisted: Option<UnpersistedApply>) {
        let mut tables = self.tables.write();
        tables.refusals.forget(key.clone(), RefusedPart::Main);
        tables.unpersisted.set(key, unpersisted);
    }

    /// A status was applied: the server does not hold this of it.
    pub fn status_applied(&self, key: Key, unpersisted: Option<UnpersistedApply>) {
        self.tables.write().unpersisted.set(key, unpersisted);
    }

    /// The definition of a kind is another than it was: what was refused or dropped by it may be taken now, so whoever may
    /// have been refused is reconciled again. Says whether anything was refused.
    pub fn definition_changed(&self, kind: &Kind) -> bool {
        let mut tables = self.tables.write();
        tables.unpersisted.forget_kind(kind);
        let refused = tables.refusals.forget_kind(kind);
        let contributed = tables.contributions.forget_refusals(kind);
        if !refused && !contributed {
            return false;
        }
        let lanes = tables.lanes.clone();
        for lane in lanes.of_kind(kind) {
            tables.enqueue_all(lane, TriggerReason::DefinitionChanged);
        }
        true
    }

    /// A primary waits until the plugin with this field manager is gone, or selects other primaries.
    pub fn wait_for_plugin(&self, manager: &str, primary_ref: &PrimaryRef) {
        self.tables.write().competing_waits.wait_for(manager, primary_ref);
    }

    /// A primary waits until there is a namespace of this name, or another one than there is.
    pub fn wait_for_namespace(&self, namespace: &Arc<str>, primary_ref: &PrimaryRef) {
        self.tables.write().namespace_waits.wait_for(namespace, primary_ref);
        self.namespaces.notify_one();
    }

    /// Waits until a primary waits for a namespace.
    pub async fn namespace_is_awaited(&self) {
        self.namespaces.notified().await;
    }

    /// There is a namespace that was not there before: whoever waits for it is reconciled again.
    pub fn namespace_added(&self, namespace: &str) {
        let mut tables = self.tables.write();
        let waiting = tables.namespace_waits.take(namespace);
        if waiting.is_empty() {
            return;
        }
        let key = Key::new(Arc::new(Kind::new("", "v1", "Namespace")), Name::new(None, namespace));
        let trigger = Trigger::of(TriggerReason::DependencyChanged, Arc::new(key));
        for primary_ref in waiting
            .iter()
            .filter(|it| tables.lanes.get(it.lane).is_some())
            .cloned()
            .collect::<Vec<_>>()
        {
            tables
                .queue
                .push(primary_ref.lane, &primary_ref.name, Priority::Wake, trigger.clone());
        }
        drop(tables);
        self.work.notify_one();
    }

    /// Whether an earlier answer for a primary asked for an object.
    pub fn was_desired(&self, primary_ref: &PrimaryRef, key: &Key) -> bool {
        self.tables.read().earlier_desires.has(primary_ref, key)
    }

    /// An answer for a primary was carried out that asked for these.
    pub fn note_desired<'a>(&self, primary_ref: &PrimaryRef, keys: impl Iterator<Item = &'a Key>) {
        self.tables.write().earlier_desires.set(primary_ref, keys);
    }

    /// Whether a primary has lost a child since this was asked last.
    pub fn take_lost_child(&self, primary_ref: &PrimaryRef) -> bool {
        self.tables.write().orphans.take_lost_child(primary_ref)
    }

    /// The uids of the primaries of this name that are gone and have left children.
    pub fn orphans_of(&self, primary_ref: &PrimaryRef) -> BTreeMap<Arc<str>, Witness> {
        self.tables.read().orphans.of(primary_ref)
    }

    /// The children of one of them are collected.
    pub fn collected(&self, primary_ref: &PrimaryRef, uid: &str) {
        self.tables.write().orphans.collected(primary_ref, uid);
    }
}
