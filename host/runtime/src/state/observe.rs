//! Applies watch events: the cache is updated, and the affected primaries are queued in the same step.

use std::sync::Arc;

use pilothouse_cluster::apart::apart;
use pilothouse_cluster::cache::codec::ObjectCodec;
use pilothouse_cluster::cache::store::{IndexValues, ObjectChange, Store, WatchSource};
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Key, Kind, Name};

use super::{SharedState, Tables};
use crate::lanes::lane::Lane;
use crate::state::tables::visibility::ChangeVisibility;

/// An object that nests too deep for plugins, and the lanes from which it may have to be hidden.
pub type TooDeepObject = (Arc<CachedObject>, Vec<Arc<Lane>>);

/// Facts about a change that are computed before the lock is taken for writing.
struct PreparedChange {
    /// The change as lanes see it; `None` if the cache already holds this version.
    seen: Option<ChangeVisibility>,
    /// Keys of the object in the indexes.
    values: IndexValues,
}

impl SharedState {
    /// Starts the watches of a kind, for the first time or with another reach.
    pub fn watches_begin(&self, codec: &Arc<ObjectCodec>, reach: &Reach, namespaced: bool) -> Vec<WatchSource> {
        let mut tables = self.tables.write();
        let sources = tables.store.open(codec.clone(), reach.clone(), namespaced);
        tables.watch_ends(codec.kind());
        drop(tables);
        self.work.notify_one();
        sources
    }

    /// Restricts the watches of a kind that will be started.
    pub fn watches_narrow(&self, kind: &Kind, reach: &Reach) {
        self.tables.write().store.narrow(kind, reach);
    }

    /// Begins a list.
    pub fn list_begins(&self, source: &WatchSource) {
        self.tables.write().store.begin_list(source);
    }

    /// Records an object that was listed, added or modified. Returns it if it nests too deep and was not known to.
    pub fn observed(&self, source: &WatchSource, object: CachedObject) -> Option<TooDeepObject> {
        let object = Arc::new(object);
        let PreparedChange { seen, values } = self.prepare(&source.kind, &object.name, Some(&object));
        let mut tables = self.tables.write();
        let is_known = |old: &Arc<CachedObject>| old.uid == object.uid && old.is_too_deep();
        let known = |store: &Store| store.get(&source.kind, &object.name).is_some_and(is_known);
        let hidden = (object.is_too_deep() && !known(&tables.store)).then(|| object.name.clone());
        let changes = tables.store.upsert(source, object, &values);
        self.route_all(&mut tables, changes, seen);
        let object = tables.store.get(&source.kind, &hidden?)?.clone();
        // The other lanes get it when they open.
        let lanes = tables.lanes.of_kind(&source.kind);
        let open = lanes.filter(|lane| tables.queue.is_open(lane.id)).cloned().collect();
        Some((object, open))
    }

    /// Records that an object was deleted, or left the source's selection.
    pub fn deleted(&self, source: &WatchSource, name: &Name) {
        let PreparedChange { seen, values: _ } = self.prepare(&source.kind, name, None);
        let mut tables = self.tables.write();
        let change = tables.store.remove(source, name);
        self.route_all(&mut tables, change, seen);
    }

    /// Ends a list, which shows the cluster at this resourceVersion.
    pub fn list_ends(&self, source: &WatchSource, version: &str) {
        let mut tables = self.tables.write();
        let changes = tables.store.end_list(source);
        self.route_all(&mut tables, changes, None);
        tables.wake_waiting(&source.kind);
        let Tables {
            store,
            queue,
            own_writes,
            ..
        } = &mut *tables;
        own_writes.list_ends(store, queue, source, version);
    }

    /// Records that an object cannot be decoded. Its cached version stays, and no primary waits for it to show a write.
    pub fn unreadable(&self, source: &WatchSource, name: &Name) {
        let mut tables = self.tables.write();
        tables.store.keep(source, name);
        let Tables { queue, own_writes, .. } = &mut *tables;
        own_writes.forget_awaited(queue, &Key::new(source.kind.clone(), name.clone()));
        drop(tables);
        self.work.notify_one();
    }

    /// Records that a kind is not served: it has no objects.
    pub fn kind_is_missing(&self, kind: &Arc<Kind>) {
        let mut tables = self.tables.write();
        let changes = tables.store.empty(kind);
        tables.watch_ends(kind);
        self.route_all(&mut tables, changes, None);
    }

    /// Forgets a kind that no lane needs any more.
    pub fn forget_kind(&self, kind: &Kind) {
        let mut tables = self.tables.write();
        tables.store.close(kind);
        tables.watch_ends(kind);
        drop(tables);
        self.work.notify_one();
    }

    /// Trims the cached objects of a kind after its codec was told to show less. The objects are decoded without the
    /// lock, and swapped in unless they have changed meanwhile.
    pub fn trim(&self, codec: &ObjectCodec) {
        let objects = self.tables.write().store.untrimmed(codec.kind());
        self.replace(codec.kind(), objects, |object| codec.again(object));
    }

    /// Adds the facts of a lane to the cached objects of a kind. The codec is set first, so that objects that arrive
    /// meanwhile have these facts; the others are decoded again without the lock. Nothing is done if the codec already
    /// had them.
    pub fn learn_facts(&self, lane: &Lane, codec: &ObjectCodec) {
        let kind = codec.kind();
        if !codec.ask(&lane.fact_keys(kind)) {
            return;
        }
        let objects = self.tables.read().store.without_facts(kind);
        self.replace(kind, objects, |object| codec.with_facts(object));
    }

    fn replace(&self, kind: &Kind, objects: Vec<Arc<CachedObject>>, read: impl Fn(&CachedObject) -> CachedObject) {
        if objects.is_empty() {
            return;
        }
        let bytes = objects.iter().map(|object| object.bytes()).sum();
        let objects = objects.into_iter().map(|old| {
            let new = read(&old);
            (old, new)
        });
        let objects = apart(bytes, || objects.collect());
        self.tables.write().store.replace(kind, objects);
    }

    /// Corrects the cache after a live read; `None`: the object does not exist. Does nothing if the cache is as new.
    pub fn correct(&self, key: &Key, before: Option<&CachedObject>, live: Option<&CachedObject>) {
        let Some(codec) = self.tables.read().store.codec(&key.kind) else {
            return;
        };
        let live = live.map(|live| Arc::new(codec.with_facts(&codec.again(live))));
        let PreparedChange { seen, values } = self.prepare(&key.kind, &key.name, live.as_ref());
        let mut tables = self.tables.write();
        let changes = tables.store.correct(key, before, live, &values);
        self.route_all(&mut tables, changes, seen);
    }

    /// Decodes what the change of an object needs, before the lock is taken for writing.
    fn prepare(&self, kind: &Arc<Kind>, name: &Name, new: Option<&Arc<CachedObject>>) -> PreparedChange {
        let tables = self.tables.read();
        let old = tables.store.get(kind, name).cloned();
        let lanes = tables.lanes.clone();
        let interest = tables.dependencies.interest(kind, name);
        let paths = new
            .map(|new| tables.store.paths_to_index(kind, new))
            .unwrap_or_default();
        drop(tables);
        let is_unchanged = match (&old, new) {
            (Some(old), Some(new)) => old.is_version_of(new),
            (old, new) => old.is_none() && new.is_none(),
        };
        let seen = (!is_unchanged).then(|| {
            let (kind, new) = (kind.clone(), new.cloned());
            ChangeVisibility::new(&lanes, &ObjectChange { kind, old, new })
        });
        if let Some(seen) = &seen {
            seen.decode(interest);
        }
        let values = match new {
            Some(new) if !paths.is_empty() => match seen.as_ref().and_then(ChangeVisibility::after) {
                Some(value) => IndexValues::of(value, paths),
                None => IndexValues::of(&new.value(), paths),
            },
            _ => IndexValues::default(),
        };
        PreparedChange { seen, values }
    }

    /// Routes each change; `seen` belongs to the first one, if that is still the same change.
    fn route_all(
        &self,
        tables: &mut Tables,
        changes: impl IntoIterator<Item = ObjectChange>,
        mut seen: Option<ChangeVisibility>,
    ) {
        let mut changes = changes.into_iter().peekable();
        if changes.peek().is_none() {
            return;
        }
        let lanes = tables.lanes.clone();
        for change in changes {
            let seen = seen.take().filter(|seen| seen.is_of(&lanes, &change));
            let seen = seen.unwrap_or_else(|| ChangeVisibility::new(&lanes, &change));
            tables.route(&lanes, &change, &seen);
        }
        // Most changes are echoes of our own writes and make nothing ready: the workers are left asleep.
        if tables.queue.take_ready_signal() {
            self.work.notify_one();
        }
        if !tables.contributions.is_idle() {
            self.claims.notify_one();
        }
    }
}

impl Tables {
    /// Ends the waits of a kind whose watches have ended or were restricted.
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
