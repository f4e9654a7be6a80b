//! Owns the cache of one kind: its objects, the state of its lists and watches, and its indexes, which are updated with
//! each change of an object.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::path::{FieldPath, Projection};
use pilothouse_core::query::{Anchor, CheckedQuery, values_at};
use pilothouse_core::reach::{Reach, Scope};

use crate::codec::ObjectCodec;
use crate::decoding;
use crate::object::CachedObject;

/// The most indexes of one kind; a query that would need another goes through all objects. A plugin chooses by which
/// labels and fields it asks.
pub(crate) const MAX_INDEXES: usize = 16;

/// One kind.
#[derive(Debug)]
pub(crate) struct KindCache {
    pub(crate) codec: Arc<ObjectCodec>,
    /// With the list or watch that last showed each.
    pub(crate) objects: BTreeMap<ByName, u32>,
    /// By the controller's uid. One set for all, because a set of its own for each controller would be larger than most
    /// objects.
    pub(crate) children: BTreeSet<(Arc<str>, Name)>,
    indexes: HashMap<FieldPath, Values>,
    pub(crate) run: u64,
    pub(crate) reach: Reach,
    pub(crate) sources: Vec<Listing>,
    /// How many lists have begun, over all runs: no object may look as if a list had shown it that an earlier run made.
    pub(crate) lists: u32,
    /// What has been listed, as long as the watches of that run or a later one go on.
    pub(crate) synced: Option<Synced>,
    /// The store's count at the last change.
    pub(crate) changes: u64,
}

/// One list and watch of a kind cache.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) scope: Scope,
    pub(crate) epoch: u32,
    pub(crate) is_complete: bool,
}

/// What a kind cache is known to hold.
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
    pub(crate) fn new(scope: Scope) -> Self {
        Self {
            scope,
            epoch: 0,
            is_complete: false,
        }
    }
}

impl KindCache {
    pub(crate) fn new(codec: Arc<ObjectCodec>) -> Self {
        Self {
            codec,
            objects: BTreeMap::new(),
            children: BTreeSet::new(),
            indexes: HashMap::new(),
            run: 0,
            reach: Reach::all(),
            sources: Vec::new(),
            lists: 0,
            synced: None,
            changes: 0,
        }
    }

    /// One object.
    pub(crate) fn get(&self, name: &Name) -> Option<&Arc<CachedObject>> {
        let (object, _) = self.objects.get_key_value(name)?;
        Some(&object.0)
    }

    /// The names of what an index has for a query; none if there is no index for it.
    pub(crate) fn look_up(&self, query: &CheckedQuery) -> Option<BTreeSet<&Name>> {
        let Anchor { path, values } = query.anchor()?;
        let index = self.indexes.get(&path)?;
        let names = values.iter().filter_map(|value| index.get(value.as_str()));
        Some(names.flatten().collect())
    }

    /// Whether a query is answered without going through all objects, or cannot be.
    pub(crate) fn is_indexed(&self, query: &CheckedQuery) -> bool {
        let anchor = query.anchor();
        anchor.is_none_or(|anchor| self.indexes.contains_key(&anchor.path) || self.indexes.len() >= MAX_INDEXES)
    }

    /// What the index that a query needs is made of; none where there is one, or cannot be.
    pub(crate) fn draft_index(&self, query: &CheckedQuery) -> Option<IndexDraft> {
        let Anchor { path, values: _ } = query.anchor().filter(|_| !self.is_indexed(query))?;
        let objects = self.objects.keys().map(|ByName(object)| object.clone());
        Some(IndexDraft {
            path,
            objects: objects.collect(),
        })
    }

    /// Takes an index in. What has changed since its draft is brought up to date first.
    pub(crate) fn add_index(&mut self, index: Index) {
        let Index {
            path,
            mut names,
            objects,
        } = index;
        if self.indexes.contains_key(&path) || self.indexes.len() >= MAX_INDEXES {
            return;
        }
        // What has changed while the index was built is little. Both are in the order of names.
        decoding::allowed(|| self.catch_up(&path, &mut names, &objects));
        self.indexes.insert(path, names);
    }

    fn catch_up(&self, path: &FieldPath, names: &mut Values, objects: &[Arc<CachedObject>]) {
        let mut now = self.objects.keys().map(|ByName(object)| object).peekable();
        for old in objects {
            while let Some(new) = now.next_if(|new| new.name < old.name) {
                enter(names, path, new);
            }
            let new = now.next_if(|new| new.name == old.name);
            if new.is_some_and(|new| Arc::ptr_eq(new, old)) {
                continue;
            }
            leave(names, path, old);
            if let Some(new) = new {
                enter(names, path, new);
            }
        }
        for new in now {
            enter(names, path, new);
        }
    }

    /// Drops an index that nobody uses any more.
    pub(crate) fn drop_index(&mut self, path: &FieldPath) {
        self.indexes.remove(path);
    }

    /// How many indexes there are.
    #[cfg(test)]
    pub(crate) fn indexes(&self) -> usize {
        self.indexes.len()
    }

    pub(crate) fn place(&mut self, object: Arc<CachedObject>, epoch: u32) {
        // A map keeps the key that it has, and here the key is the object.
        self.objects.remove::<Name>(&object.name);
        self.objects.insert(ByName(object), epoch);
    }

    /// Brings the controllers' children and the indexes to the new state of one object.
    pub(crate) fn reindex(&mut self, old: Option<&CachedObject>, new: Option<&CachedObject>) {
        let controller =
            |object: Option<&CachedObject>| object?.controller.as_ref().map(|controller| controller.uid.clone());
        let (before, after) = (controller(old), controller(new));
        if before != after {
            if let (Some(old), Some(uid)) = (old, before) {
                self.children.remove(&(uid, old.name.clone()));
            }
            if let (Some(new), Some(uid)) = (new, after) {
                self.children.insert((uid, new.name.clone()));
            }
        }
        if self.indexes.is_empty() {
            return;
        }
        // One object, and only while somebody depends on a query that needs the index.
        let (before, after) = decoding::allowed(|| (old.map(CachedObject::value), new.map(CachedObject::value)));
        for (path, index) in &mut self.indexes {
            if let (Some(old), Some(value)) = (old, &before) {
                for value in values_at(path, value) {
                    remove_from(index, &value, &old.name);
                }
            }
            if let (Some(new), Some(value)) = (new, &after) {
                for value in values_at(path, value) {
                    index.entry(value.into()).or_default().insert(new.name.clone());
                }
            }
        }
    }
}

/// The objects of a kind at one moment, to be put in order by what each has at a path.
#[derive(Debug)]
pub struct IndexDraft {
    path: FieldPath,
    objects: Vec<Arc<CachedObject>>,
}

/// Objects by what they have at a path.
#[derive(Debug)]
pub struct Index {
    path: FieldPath,
    names: Values,
    /// What it was made of.
    objects: Vec<Arc<CachedObject>>,
}

impl IndexDraft {
    /// Reads every object, which may take a while.
    pub fn build(self) -> Index {
        let Self { path, objects } = self;
        let mut names = Values::new();
        for object in &objects {
            enter(&mut names, &path, object);
        }
        Index { path, names, objects }
    }
}

/// Who has which value.
type Values = HashMap<Box<str>, BTreeSet<Name>>;

fn enter(index: &mut Values, path: &FieldPath, object: &CachedObject) {
    for value in values_at(path, &object.value()) {
        index.entry(value.into()).or_default().insert(object.name.clone());
    }
}

fn leave(index: &mut Values, path: &FieldPath, object: &CachedObject) {
    for value in values_at(path, &object.value()) {
        remove_from(index, &value, &object.name);
    }
}

fn remove_from(index: &mut Values, key: &str, name: &Name) {
    if let Some(names) = index.get_mut(key) {
        names.remove(name);
        if names.is_empty() {
            index.remove(key);
        }
    }
}
