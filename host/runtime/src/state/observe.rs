//! Takes in what the watches see of the cluster: the cache changes, and whoever is concerned is queued in the same step.

use std::sync::Arc;

use pilothouse_cluster::codec::ObjectCodec;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::store::{ObjectChange, Store, WatchSource};
use pilothouse_core::reach::Reach;
use pilothouse_core::{Key, Kind, Name};

use super::{SharedState, Tables};
use crate::lane::Lane;

/// An object that nests too deep for plugins, and the lanes that it may have to be kept from.
pub type TooDeepObject = (Arc<CachedObject>, Vec<Arc<Lane>>);

impl SharedState {
    /// The watches of a kind begin, for the first time or in another form.
    pub fn watches_begin(&self, codec: &Arc<ObjectCodec>, reach: &Reach, namespaced: bool) -> Vec<WatchSource> {
        let mut tables = self.tables.write();
        let sources = tables.store.open(codec.clone(), reach.clone(), namespaced);
        tables.watch_ends(codec.kind());
        drop(tables);
        self.work.notify_one();
        sources
    }

    /// A list begins.
    pub fn list_begins(&self, source: &WatchSource) {
        self.tables.write().store.begin_list(source);
    }

    /// An object was listed, added or modified. If it nests too deep, and was not known to, the answer is that object.
    pub fn observed(&self, source: &WatchSource, object: CachedObject) -> Option<TooDeepObject> {
        let mut tables = self.tables.write();
        let is_known = |old: &Arc<CachedObject>| old.uid == object.uid && old.is_too_deep();
        let known = |store: &Store| store.get(&source.kind, &object.name).is_some_and(is_known);
        let hidden = (object.is_too_deep() && !known(&tables.store)).then(|| object.name.clone());
        let changes = tables.store.upsert(source, object);
        self.route_all(&mut tables, changes);
        let object = tables.store.get(&source.kind, &hidden?)?.clone();
        // The others are told when they open.
        let lanes = tables.lanes.of_kind(&source.kind);
        let open = lanes.filter(|lane| tables.queue.is_open(lane.id)).cloned().collect();
        Some((object, open))
    }

    /// An object was deleted, or left what the source is about.
    pub fn deleted(&self, source: &WatchSource, name: &Name) {
        let mut tables = self.tables.write();
        let change = tables.store.remove(source, name);
        self.route_all(&mut tables, change);
    }

    /// The list is complete; it shows the cluster at this resourceVersion.
    pub fn list_ends(&self, source: &WatchSource, version: &str) {
        let mut tables = self.tables.write();
        let changes = tables.store.end_list(source);
        self.route_all(&mut tables, changes);
        let Tables {
            store,
            queue,
            own_writes,
            ..
        } = &mut *tables;
        own_writes.list_ends(store, queue, source, version);
    }

    /// An object cannot be read. What the cache has of it stays, and nobody waits for it to show a write.
    pub fn unreadable(&self, source: &WatchSource, name: &Name) {
        let mut tables = self.tables.write();
        tables.store.keep(source, name);
        let Tables { queue, own_writes, .. } = &mut *tables;
        own_writes.forget_awaited(queue, &Key::new(source.kind.clone(), name.clone()));
        drop(tables);
        self.work.notify_one();
    }

    /// A kind is not served: nothing of it is there.
    pub fn kind_is_missing(&self, kind: &Arc<Kind>) {
        let mut tables = self.tables.write();
        let changes = tables.store.empty(kind);
        tables.watch_ends(kind);
        self.route_all(&mut tables, changes);
    }

    /// Nobody needs a kind any more.
    pub fn forget_kind(&self, kind: &Kind) {
        let mut tables = self.tables.write();
        tables.store.close(kind);
        tables.watch_ends(kind);
        drop(tables);
        self.work.notify_one();
    }

    /// Trims what is cached of a kind, after its codec was told to show less. The objects are read without the lock, and
    /// swapped in.
    pub fn trim(&self, kind: &Kind) {
        let draft = self.tables.read().store.draft_trim(kind);
        if let Some(draft) = draft {
            let trimmed = draft.build();
            self.tables.write().store.add_trimmed(kind, trimmed);
        }
    }

    /// Takes in what a look past the cache has shown; none: the object is gone. Says nothing where the cache is as new.
    pub fn correct(&self, key: &Key, before: Option<&CachedObject>, live: Option<&CachedObject>) {
        let mut tables = self.tables.write();
        let changes = tables.store.correct(key, before, live);
        self.route_all(&mut tables, changes);
    }

    fn route_all(&self, tables: &mut Tables, changes: impl IntoIterator<Item = ObjectChange>) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        let lanes = tables.lanes.clone();
        for change in changes {
            tables.route(&lanes, &change);
        }
        // Most changes are echoes of our own writes and give nobody anything to do: whoever slept is left asleep.
        if tables.queue.take_ready_signal() {
            self.work.notify_one();
        }
        if !tables.contributions.is_idle() {
            self.claims.notify_one();
        }
    }
}

impl Tables {
    /// The watches of a kind have ended, or are about less than before.
    fn watch_ends(&mut self, kind: &Kind) {
        let Self {
            store,
            queue,
            own_writes,
            contributions,
            ..
        } = self;
        own_writes.watch_ends(store, queue, kind);
        contributions.watch_ends(store, queue, kind);
    }
}
