//! The cache of one kind: its objects, the state of its lists and watches, and the data derived from its objects: the
//! children of controllers, and the indexes (`cache/index.rs`).

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::kubernetes::path::{FieldPath, Projection};
use pilothouse_core::reads::query::{Anchor, CheckedQuery};
use pilothouse_core::reads::reach::{Reach, Scope};

use crate::cache::codec::{ObjectCodec, ObjectLayout};
use crate::cache::decoding;
use crate::cache::index::{Index, IndexDraft, IndexValues, Indexes};
use crate::object::CachedObject;

/// The cache of one kind.
#[derive(Debug)]
pub(crate) struct KindCache {
    pub(crate) codec: Arc<ObjectCodec>,
    /// The objects, each with the epoch of the list or watch that last showed it.
    pub(crate) objects: BTreeMap<ByName, u32>,
    /// The memory of the objects, in bytes.
    pub(crate) bytes: usize,
    /// Children by the controller's uid. One set for all, because a set for each controller would be larger than most
    /// objects.
    pub(crate) children: BTreeSet<(Arc<str>, Name)>,
    pub(crate) indexes: Indexes,
    pub(crate) run: u64,
    pub(crate) reach: Reach,
    pub(crate) sources: Vec<Listing>,
    /// The number of lists begun, over all runs, so that objects of earlier runs are not mistaken for listed ones.
    pub(crate) lists: u32,
    /// The listed content, valid as long as the watches of that run or a later one continue.
    pub(crate) synced: Option<Synced>,
    /// The store's change count at the last change.
    pub(crate) changes: u64,
}

/// One list and watch of a kind.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) scope: Scope,
    pub(crate) epoch: u32,
    pub(crate) is_complete: bool,
    /// The layout of objects when the list began.
    pub(crate) layout: Arc<ObjectLayout>,
}

/// The known content of a kind cache.
#[derive(Debug)]
pub(crate) struct Synced {
    pub(crate) projection: Projection,
    pub(crate) reach: Reach,
}

/// An object by its name.
#[derive(Debug)]
pub(crate) struct ByName(pub(crate) Arc<CachedObject>);

impl Borrow<Name> for ByName {
    fn borrow(&self) -> &Name {
        &self.0.name
    }
}

impl PartialEq for ByName {
    fn eq(&self, other: &Self) -> bool {
        self.0.name == other.0.name
    }
}

impl Eq for ByName {}

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.name.cmp(&other.0.name)
    }
}

impl Listing {
    pub(crate) fn new(scope: Scope, layout: Arc<ObjectLayout>) -> Self {
        Self {
            scope,
            epoch: 0,
            is_complete: false,
            layout,
        }
    }
}

impl KindCache {
    pub(crate) fn new(codec: Arc<ObjectCodec>) -> Self {
        Self {
            codec,
            objects: BTreeMap::new(),
            bytes: 0,
            children: BTreeSet::new(),
            indexes: Indexes::default(),
            run: 0,
            reach: Reach::all(),
            sources: Vec::new(),
            lists: 0,
            synced: None,
            changes: 0,
        }
    }

    /// Restricts the cache to a reach when its watches restart. Objects outside of it are no longer known.
    pub(crate) fn narrow(&mut self, reach: &Reach, run: u64) {
        self.run = run;
        if let Some(synced) = self.synced.take() {
            self.synced = reach.common(&synced.reach).map(|reach| Synced { reach, ..synced });
        }
    }

    /// The fields that the complete lists show. The codec may have changed since they began: some objects may lack
    /// fields.
    pub(crate) fn shown(&self) -> Projection {
        let now = self.codec.layout();
        let metadata = Projection::default();
        let mut shown = now.projection();
        for listing in &self.sources {
            let listed = listing.layout.projection();
            if !listed.covers(shown) {
                shown = if shown.covers(listed) { listed } else { &metadata };
            }
        }
        shown.clone()
    }

    /// The object of this name.
    pub(crate) fn get(&self, name: &Name) -> Option<&Arc<CachedObject>> {
        let (object, _) = self.objects.get_key_value(name)?;
        Some(&object.0)
    }

    /// The draft of the index that a query needs; none if there is one, or cannot be one.
    pub(crate) fn draft_index(&self, query: &CheckedQuery) -> Option<IndexDraft> {
        let Anchor { path, values: _ } = query.anchor()?;
        let objects = || self.objects.keys().map(|ByName(object)| object.clone());
        self.indexes
            .accept(&path)
            .then(|| IndexDraft::new(path, objects().collect()))
    }

    /// Adds an index, after updating it with the changes since its draft.
    pub(crate) fn add_index(&mut self, index: Index) {
        if !self.indexes.accept(index.path()) {
            return;
        }
        let now = self.objects.keys().map(|ByName(object)| object);
        // Few objects have changed while the index was built.
        let (path, index) = decoding::allowed(|| index.caught_up(now));
        self.indexes.add(path, index);
    }

    /// The index paths at which an object's values are needed before it is inserted; none if the cached state is equal.
    pub(crate) fn paths_to_index(&self, object: &CachedObject) -> Vec<FieldPath> {
        let is_known = || self.get(&object.name).is_some_and(|known| known.is_kept_like(object));
        let paths = self.indexes.paths().cloned().collect::<Vec<_>>();
        if paths.is_empty() || is_known() {
            Vec::new()
        } else {
            paths
        }
    }

    pub(crate) fn place(&mut self, object: Arc<CachedObject>, epoch: u32) {
        // A map keeps the key that it has, and here the key is the object.
        self.unplace(&object.name);
        self.bytes += object.held_bytes();
        self.objects.insert(ByName(object), epoch);
    }

    /// Removes an object.
    pub(crate) fn unplace(&mut self, name: &Name) -> Option<Arc<CachedObject>> {
        let (ByName(object), _) = self.objects.remove_entry(name)?;
        self.bytes -= object.held_bytes();
        Some(object)
    }

    /// Updates the controllers' children and the indexes for one object, whose values have been read before.
    pub(crate) fn reindex(&mut self, old: Option<&CachedObject>, new: &CachedObject, values: &IndexValues) {
        self.move_child(old, Some(new));
        self.indexes.set(&new.name, values);
    }

    /// Removes a deleted object from the controllers' children and the indexes.
    pub(crate) fn unindex(&mut self, old: &CachedObject) {
        self.move_child(Some(old), None);
        self.indexes.remove(&old.name);
    }

    fn move_child(&mut self, old: Option<&CachedObject>, new: Option<&CachedObject>) {
        let controller =
            |object: Option<&CachedObject>| object?.controller.as_ref().map(|controller| controller.uid.clone());
        let (before, after) = (controller(old), controller(new));
        if before == after {
            return;
        }
        if let (Some(old), Some(uid)) = (old, before) {
            self.children.remove(&(uid, old.name.clone()));
        }
        if let (Some(new), Some(uid)) = (new, after) {
            self.children.insert((uid, new.name.clone()));
        }
    }
}
