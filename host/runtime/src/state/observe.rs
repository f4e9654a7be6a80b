//! Takes in what the watches see of the cluster: the cache changes, and whoever is concerned is queued in the same step.

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

/// An object that nests too deep for plugins, and the lanes that it may have to be kept from.
pub type TooDeepObject = (Arc<CachedObject>, Vec<Arc<Lane>>);

/// What is read of a change before it is taken in.
struct PreparedChange {
    /// What lanes see of it; none if the object is cached in this version.
    seen: Option<ChangeVisibility>,
    /// What the indexes list the object under.
    values: IndexValues,
}

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

    /// Watches of a kind are to begin that are about this only.
    pub fn watches_narrow(&self, kind: &Kind, reach: &Reach) {
        self.tables.write().store.narrow(kind, reach);
    }

    /// A list begins.
    pub fn list_begins(&self, source: &WatchSource) {
        self.tables.write().store.begin_list(source);
    }

    /// An object was listed, added or modified. If it nests too deep, and was not known to, the answer is that object.
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
        // The others are told when they open.
        let lanes = tables.lanes.of_kind(&source.kind);
        let open = lanes.filter(|lane| tables.queue.is_open(lane.id)).cloned().collect();
        Some((object, open))
    }

    /// An object was deleted, or left what the source is about.
    pub fn deleted(&self, source: &WatchSource, name: &Name) {
        let PreparedChange { seen, values: _ } = self.prepare(&source.kind, name, None);
        let mut tables = self.tables.write();
        let change = tables.store.remove(source, name);
        self.route_all(&mut tables, change, seen);
    }

    /// The list is complete; it shows the cluster at this resourceVersion.
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
        self.route_all(&mut tables, changes, None);
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
    /// swapped in where they have not changed meanwhile.
    pub fn trim(&self, codec: &ObjectCodec) {
        let objects = self.tables.write().store.untrimmed(codec.kind());
        self.replace(codec.kind(), objects, |object| codec.again(object));
    }

    /// Has the cache know of each object of a kind what a lane asks for without reading the object. The codec is asked first,
    /// so an object that arrives meanwhile has these facts, and the others are read again without the lock. Where the codec
    /// was asked for them before, that has been done.
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

    /// Takes in what a look past the cache has shown; none: the object is gone. Says nothing where the cache is as new.
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

    /// Reads what taking in an object will need of it, before the lock is taken for writing.
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

    /// Routes each change; `seen` is what was decoded of the first one, if it is still that change.
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
