//! Stores the objects, the one counter of resource versions, the bounded history that watches start from, and the
//! snapshots of paged lists. Knows nothing of the meaning of objects.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Weak};

use serde_json::Value;

use crate::change::Change;
use crate::journal::Journal;
use crate::kinds::Storage;
use crate::resource::Key;
use crate::watch::Channel;

/// Pages of lists that can still be continued.
const MAXIMAL_SNAPSHOTS: usize = 64;

/// The first resource version; a real server never starts at nothing.
const FIRST_REVISION: u64 = 1000;

/// A snapshot that a list is paged from.
#[derive(Debug)]
struct Snapshot {
    id: u64,
    objects: Vec<Arc<Value>>,
}

#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    objects: HashMap<Storage, BTreeMap<Key, Arc<Value>>>,
    history: VecDeque<Change>,
    history_limit: usize,
    /// Watches can't start before this revision.
    compacted: u64,
    snapshots: VecDeque<Snapshot>,
    next_snapshot: u64,
    watchers: Vec<Weak<Channel>>,
    /// Changes that the controllers have not seen yet.
    fresh: Vec<Change>,
    pub(crate) journal: Journal,
}

impl Store {
    pub(crate) fn new(history_limit: usize) -> Self {
        Self {
            revision: FIRST_REVISION,
            objects: HashMap::new(),
            history: VecDeque::new(),
            history_limit,
            compacted: FIRST_REVISION,
            snapshots: VecDeque::new(),
            next_snapshot: 1,
            watchers: Vec::new(),
            fresh: Vec::new(),
            journal: Journal::default(),
        }
    }

    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// The oldest revision a watch can start from.
    pub(crate) fn compacted(&self) -> u64 {
        self.compacted
    }

    pub(crate) fn get(&self, storage: &Storage, key: &Key) -> Option<&Arc<Value>> {
        self.objects.get(storage)?.get(key)
    }

    /// The objects of a resource, in the order namespace, name.
    pub(crate) fn list(&self, storage: &Storage) -> impl Iterator<Item = &Arc<Value>> {
        self.objects.get(storage).into_iter().flat_map(BTreeMap::values)
    }

    /// Lists the objects of one namespace.
    pub(crate) fn list_namespace<'a>(
        &'a self,
        storage: &Storage,
        namespace: &'a str,
    ) -> impl Iterator<Item = &'a Arc<Value>> {
        let first = Key::new(namespace, "");
        let objects = self
            .objects
            .get(storage)
            .into_iter()
            .flat_map(move |objects| objects.range(first.clone()..));
        objects
            .take_while(move |(key, _)| key.namespace == namespace)
            .map(|(_, object)| object)
    }

    /// The objects of a resource as they were at an earlier revision that the history still reaches.
    pub(crate) fn list_at(&self, storage: &Storage, revision: u64) -> Vec<Arc<Value>> {
        let mut objects = self.objects.get(storage).cloned().unwrap_or_default();
        for change in self
            .history
            .iter()
            .rev()
            .take_while(|change| change.revision > revision)
        {
            if change.storage != *storage {
                continue;
            }
            let key = Key::of(&change.after);
            match &change.before {
                Some(before) => objects.insert(key, before.clone()),
                None => objects.remove(&key),
            };
        }
        objects.into_values().collect()
    }

    /// Every object with its storage.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&Storage, &Arc<Value>)> {
        self.objects
            .iter()
            .flat_map(|(storage, objects)| objects.values().map(move |object| (storage, object)))
    }

    /// Writes an object under a new resource version, and tells the watchers.
    pub(crate) fn put(&mut self, storage: &Storage, mut object: Value) -> Arc<Value> {
        self.revision += 1;
        object["metadata"]["resourceVersion"] = Value::String(self.revision.to_string());
        let object = Arc::new(object);
        let before = self
            .objects
            .entry(storage.clone())
            .or_default()
            .insert(Key::of(&object), object.clone());
        self.record(Change {
            revision: self.revision,
            storage: storage.clone(),
            before,
            after: object.clone(),
            deleted: false,
        });
        object
    }

    /// Removes an object; None when there is none.
    pub(crate) fn remove(&mut self, storage: &Storage, key: &Key) -> Option<Arc<Value>> {
        let before = self.objects.get_mut(storage)?.remove(key)?;
        self.revision += 1;
        let mut last = (*before).clone();
        last["metadata"]["resourceVersion"] = Value::String(self.revision.to_string());
        self.record(Change {
            revision: self.revision,
            storage: storage.clone(),
            before: Some(before.clone()),
            after: Arc::new(last),
            deleted: true,
        });
        Some(before)
    }

    fn record(&mut self, change: Change) {
        self.watchers.retain(|watcher| {
            watcher.upgrade().is_some_and(|watcher| {
                watcher.offer(&change);
                true
            })
        });
        self.journal.record(&change);
        self.fresh.push(change.clone());
        self.history.push_back(change);
        while self.history.len() > self.history_limit {
            if let Some(forgotten) = self.history.pop_front() {
                self.compacted = forgotten.revision;
            }
        }
    }

    /// Forgets the history up to now, as etcd's compaction does: watches from before are answered with 410.
    pub(crate) fn compact(&mut self) {
        self.history.clear();
        self.snapshots.clear();
        self.compacted = self.revision;
    }

    /// Changes after a revision, for a watch that starts there.
    pub(crate) fn changes_after(&self, revision: u64) -> impl Iterator<Item = &Change> {
        self.history.iter().filter(move |change| change.revision > revision)
    }

    /// Changes that the controllers have not seen yet.
    pub(crate) fn fresh(&self) -> &[Change] {
        &self.fresh
    }

    /// Makes the controllers reconcile an object that has not changed.
    pub(crate) fn touch(&mut self, storage: &Storage, key: &Key) {
        if let Some(object) = self.get(storage, key).cloned() {
            self.fresh.push(Change {
                revision: self.revision,
                storage: storage.clone(),
                before: Some(object.clone()),
                after: object,
                deleted: false,
            });
        }
    }

    /// Changes since this was last asked, for the controllers.
    pub(crate) fn take_fresh(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.fresh)
    }

    pub(crate) fn subscribe(&mut self, channel: &Arc<Channel>) {
        self.watchers.push(Arc::downgrade(channel));
    }

    /// Ends every watch of a resource, because it is not served any more.
    pub(crate) fn close_watches(&mut self, storage: &Storage) {
        for watcher in self.watchers.iter().filter_map(Weak::upgrade) {
            if watcher.storage() == storage {
                watcher.close();
            }
        }
    }

    /// Ends every watch.
    pub(crate) fn close_every_watch(&mut self) {
        for watcher in self.watchers.iter().filter_map(Weak::upgrade) {
            watcher.close();
        }
    }

    /// Keeps the rest of a list, and returns the number under which it is found.
    pub(crate) fn keep_snapshot(&mut self, objects: Vec<Arc<Value>>) -> u64 {
        let id = self.next_snapshot;
        self.next_snapshot += 1;
        self.snapshots.push_back(Snapshot { id, objects });
        while self.snapshots.len() > MAXIMAL_SNAPSHOTS {
            self.snapshots.pop_front();
        }
        id
    }

    /// Returns the rest of a paged list. The snapshot stays, because a page may be requested twice.
    pub(crate) fn snapshot(&self, id: u64) -> Option<&[Arc<Value>]> {
        self.snapshots
            .iter()
            .find(|snapshot| snapshot.id == id)
            .map(|snapshot| snapshot.objects.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_write_gets_a_higher_resource_version_and_deletions_too() {
        let storage = Storage::new("", "configmaps");
        let mut store = Store::new(2);
        let first = store.put(&storage, json!({"metadata": {"namespace": "a", "name": "b"}}));
        assert_eq!(first["metadata"]["resourceVersion"], "1001");
        store
            .remove(&storage, &Key::new("a", "b"))
            .expect("it was just written");
        let changes: Vec<u64> = store.changes_after(1000).map(|change| change.revision).collect();
        assert_eq!(changes, [1001, 1002]);
        assert!(store.get(&storage, &Key::new("a", "b")).is_none());
    }

    #[test]
    fn the_history_is_bounded() {
        let storage = Storage::new("", "configmaps");
        let mut store = Store::new(2);
        for name in ["a", "b", "c"] {
            store.put(&storage, json!({"metadata": {"namespace": "a", "name": name}}));
        }
        assert_eq!(store.compacted(), 1001);
        assert_eq!(store.list_namespace(&storage, "a").count(), 3);
        assert_eq!(store.list_namespace(&storage, "b").count(), 0);
    }
}
