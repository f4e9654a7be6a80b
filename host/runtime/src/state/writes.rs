//! Follows own writes: each is recorded from its request until the cache shows it. What the server rejects or stores
//! differently is remembered as long as the object exists.

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
    /// Records that a write of an object starts.
    pub fn begin_write(&self, key: Key, primary_ref: &PrimaryRef) {
        self.tables.write().own_writes.begin(key, primary_ref);
    }

    /// Ends a write of an object. If it succeeded, its primary waits for the cache to show it.
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

    /// Lets the primary of an object that was read live wait until the cache shows that version, if it ever will.
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

    /// The failure with which the server would reject a body of this digest again, as far as known.
    pub fn refusal(&self, key: &Key, part: RefusedPart, digest: &str, live: Option<&CachedObject>) -> Option<Failure> {
        let tables = self.tables.read();
        tables.refusals.recall(key, part, digest, live, Instant::now())
    }

    /// Records that the server has rejected a body of this digest permanently.
    pub fn record_refusal(
        &self,
        refused: (Key, RefusedPart),
        digest: &str,
        live: Option<&CachedObject>,
        failure: Failure,
    ) {
        let mut tables = self.tables.write();
        tables.refusals.record(refused, digest, live, failure, Instant::now());
    }

    /// Forgets the rejection of a part that was accepted.
    pub fn forget_refusal(&self, key: Key, part: RefusedPart) {
        self.tables.write().refusals.forget(key, part);
    }

    /// Difference between what was applied of an object and what the server stores.
    pub fn unpersisted(&self, key: &Key) -> Option<UnpersistedApply> {
        self.tables.read().unpersisted.get(key).cloned()
    }

    /// Records that an object was applied, and what the server stores differently.
    pub fn applied(&self, key: Key, unpersisted: Option<UnpersistedApply>) {
        let mut tables = self.tables.write();
        tables.refusals.forget(key.clone(), RefusedPart::Main);
        tables.unpersisted.set(key, unpersisted);
    }

    /// Records that a status was applied, and what the server stores differently.
    pub fn status_applied(&self, key: Key, unpersisted: Option<UnpersistedApply>) {
        self.tables.write().unpersisted.set(key, unpersisted);
    }

    /// Forgets rejections and differences of a kind whose definition has changed, and queues the primaries that may be
    /// affected. Returns `true` if anything had been rejected.
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

    /// Lets a primary wait until the plugin with this field manager is removed, or selects other primaries.
    pub fn wait_for_plugin(&self, manager: &str, primary_ref: &PrimaryRef) {
        self.tables.write().competing_waits.wait_for(manager, primary_ref);
    }

    /// Lets a primary wait until a namespace of this name is created.
    pub fn wait_for_namespace(&self, namespace: &Arc<str>, primary_ref: &PrimaryRef) {
        self.tables.write().namespace_waits.wait_for(namespace, primary_ref);
        self.namespaces.notify_one();
    }

    /// Waits until a primary waits for a namespace.
    pub async fn wait_for_namespace_waits(&self) {
        self.namespaces.notified().await;
    }

    /// Queues the primaries that wait for a namespace that was created.
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

    /// Returns `true` if an earlier answer for a primary desired an object.
    pub fn was_desired(&self, primary_ref: &PrimaryRef, key: &Key) -> bool {
        self.tables.read().earlier_desires.has(primary_ref, key)
    }

    /// Records the desired objects of an answer that was carried out.
    pub fn record_desired<'a>(&self, primary_ref: &PrimaryRef, keys: impl Iterator<Item = &'a Key>) {
        self.tables.write().earlier_desires.set(primary_ref, keys);
    }

    /// Returns `true` once after a primary has lost a child.
    pub fn take_lost_child(&self, primary_ref: &PrimaryRef) -> bool {
        self.tables.write().orphans.take_lost_child(primary_ref)
    }

    /// UIDs of the deleted primaries of this name that have left children.
    pub fn orphans_of(&self, primary_ref: &PrimaryRef) -> BTreeMap<Arc<str>, Witness> {
        self.tables.read().orphans.of(primary_ref)
    }

    /// Forgets a deleted primary whose children are collected.
    pub fn collected(&self, primary_ref: &PrimaryRef, uid: &str) {
        self.tables.write().orphans.collected(primary_ref, uid);
    }
}
