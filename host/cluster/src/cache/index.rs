//! Indexes of one kind: the names of the objects that have a value at a path. An index stores the values of each listed
//! object, so that nothing is parsed when the object changes or is deleted. The values of a new object are read before
//! the host's state is locked ([`IndexValues`]).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::kubernetes::path::FieldPath;
use pilothouse_core::reads::query::{Anchor, CheckedQuery, values_at};
use serde_json::Value;

use crate::object::CachedObject;

/// The highest number of indexes of one kind; a query that would need another scans all objects. A plugin chooses the
/// labels and fields of its queries.
pub(crate) const MAX_INDEXES: usize = 16;

/// The values that one object has at the paths of indexes.
#[derive(Debug, Default)]
pub struct IndexValues(Vec<(FieldPath, Vec<Box<str>>)>);

impl IndexValues {
    /// The values of an object at each of these paths.
    pub fn of(object: &Value, paths: Vec<FieldPath>) -> Self {
        let values = paths.into_iter().map(|path| {
            let values = values_at(&path, object).map(Box::from).collect();
            (path, values)
        });
        Self(values.collect())
    }

    fn at(&self, path: &FieldPath) -> Option<&[Box<str>]> {
        let (_, values) = self.0.iter().find(|(known, _)| known == path)?;
        Some(values)
    }
}

/// The indexes of one kind.
#[derive(Debug, Default)]
pub(crate) struct Indexes(HashMap<FieldPath, ValueIndex>);

impl Indexes {
    /// The number of indexes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The paths of the indexes.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        self.0.keys()
    }

    /// The names that an index lists for a query; none if there is no index for it.
    pub(crate) fn look_up(&self, query: &CheckedQuery) -> Option<BTreeSet<&Name>> {
        let Anchor { path, values } = query.anchor()?;
        let index = self.0.get(&path)?;
        let names = values.iter().filter_map(|value| index.names.get(value.as_str()));
        Some(names.flatten().collect())
    }

    /// Reports whether a query needs no new index: it is indexed, or cannot be.
    pub(crate) fn serve(&self, query: &CheckedQuery) -> bool {
        query.anchor().is_none_or(|anchor| !self.accept(&anchor.path))
    }

    /// Reports whether a path has no index and there is room for one.
    pub(crate) fn accept(&self, path: &FieldPath) -> bool {
        !self.0.contains_key(path) && self.0.len() < MAX_INDEXES
    }

    /// Adds an index.
    pub(crate) fn add(&mut self, path: FieldPath, index: ValueIndex) {
        self.0.insert(path, index);
    }

    /// Drops an index that is no longer used.
    pub(crate) fn drop_index(&mut self, path: &FieldPath) {
        self.0.remove(path);
    }

    /// Lists an object under its values. An index created while the object was being read has no values of it, and is
    /// dropped: an incomplete index would hide objects, and the next query builds it again.
    pub(crate) fn set(&mut self, name: &Name, values: &IndexValues) {
        self.0.retain(|path, index| {
            let values = values.at(path);
            if let Some(values) = values {
                index.set(name, values);
            }
            values.is_some()
        });
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, name: &Name) {
        for index in self.0.values_mut() {
            index.remove(name);
        }
    }
}

/// The objects by their values at one path.
#[derive(Debug, Default)]
pub(crate) struct ValueIndex {
    names: HashMap<Arc<str>, BTreeSet<Name>>,
    /// The values under which each object is listed; no entry for an object without any.
    values: HashMap<Name, Box<[Arc<str>]>>,
}

impl ValueIndex {
    fn set(&mut self, name: &Name, values: &[Box<str>]) {
        let known = self.values.get(name).map_or(&[][..], |known| known);
        if known
            .iter()
            .map(|value| &**value)
            .eq(values.iter().map(|value| &**value))
        {
            return;
        }
        self.remove(name);
        let values = values.iter().map(|value| {
            let value = match self.names.get_key_value(&**value) {
                Some((known, _)) => known.clone(),
                None => Arc::from(&**value),
            };
            self.names.entry(value.clone()).or_default().insert(name.clone());
            value
        });
        let values: Box<[_]> = values.collect();
        if !values.is_empty() {
            self.values.insert(name.clone(), values);
        }
    }

    fn remove(&mut self, name: &Name) {
        for value in self.values.remove(name).unwrap_or_default() {
            if let Some(names) = self.names.get_mut(&value) {
                names.remove(name);
                if names.is_empty() {
                    self.names.remove(&value);
                }
            }
        }
    }

    fn read(&mut self, path: &FieldPath, object: &CachedObject) {
        let value = object.value();
        let values: Vec<Box<str>> = values_at(path, &value).map(Box::from).collect();
        self.set(&object.name, &values);
    }
}

/// The objects of a kind at one moment, to be indexed by the values at a path.
#[derive(Debug)]
pub struct IndexDraft {
    path: FieldPath,
    objects: Vec<Arc<CachedObject>>,
}

/// An index of objects by the values at a path.
#[derive(Debug)]
pub struct Index {
    path: FieldPath,
    listed: ValueIndex,
    /// The indexed objects.
    objects: Vec<Arc<CachedObject>>,
}

impl IndexDraft {
    pub(crate) fn new(path: FieldPath, objects: Vec<Arc<CachedObject>>) -> Self {
        Self { path, objects }
    }

    /// Builds the index. Reads every object, which may take a while.
    pub fn build(self) -> Index {
        let Self { path, objects } = self;
        let mut listed = ValueIndex::default();
        for object in &objects {
            listed.read(&path, object);
        }
        Index { path, listed, objects }
    }
}

impl Index {
    pub(crate) fn path(&self) -> &FieldPath {
        &self.path
    }

    /// The index of the current objects, ordered by name like the draft. Only objects that differ from it are read.
    pub(crate) fn caught_up<'a>(self, now: impl Iterator<Item = &'a Arc<CachedObject>>) -> (FieldPath, ValueIndex) {
        let Self {
            path,
            listed: mut index,
            objects,
        } = self;
        let mut now = now.peekable();
        for old in &objects {
            while let Some(new) = now.next_if(|new| new.name < old.name) {
                index.read(&path, new);
            }
            match now.next_if(|new| new.name == old.name) {
                Some(new) if Arc::ptr_eq(new, old) => {}
                Some(new) => index.read(&path, new),
                None => index.remove(&old.name),
            }
        }
        for new in now {
            index.read(&path, new);
        }
        (path, index)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path() -> FieldPath {
        FieldPath::parse(".ports[]").unwrap()
    }

    fn indexes() -> Indexes {
        let mut indexes = Indexes::default();
        indexes.add(path(), ValueIndex::default());
        indexes
    }

    fn name(name: &str) -> Name {
        Name::new(Some("a"), name)
    }

    fn found(indexes: &Indexes, value: &str) -> Vec<String> {
        let query = CheckedQuery {
            fields: vec![(path(), value.to_owned())],
            ..CheckedQuery::default()
        };
        let names = indexes.look_up(&query).unwrap();
        names.iter().map(|name| name.name.to_string()).collect()
    }

    #[test]
    fn an_object_is_listed_under_its_current_values_only() {
        let mut indexes = indexes();
        let mut set = |object: &str, ports: &[u16]| {
            let values = IndexValues::of(&json!({ "ports": ports }), vec![path()]);
            indexes.set(&name(object), &values);
        };
        set("x", &[80, 81]);
        set("y", &[81]);
        set("x", &[81, 82]);
        assert_eq!(
            ["80", "81", "82"].map(|port| found(&indexes, port).join(" ")),
            ["", "x y", "x"]
        );
        indexes.remove(&name("x"));
        assert_eq!(["81", "82"].map(|port| found(&indexes, port).join(" ")), ["y", ""]);
        indexes.remove(&name("y"));
        let index = &indexes.0[&path()];
        assert!(index.names.is_empty() && index.values.is_empty(), "{index:?}");
    }

    #[test]
    fn an_index_that_is_not_told_an_objects_values_is_dropped() {
        let mut indexes = indexes();
        let other = FieldPath::parse(".other").unwrap();
        indexes.add(other.clone(), ValueIndex::default());
        let values = IndexValues::of(&json!({"ports": [80]}), vec![path()]);
        indexes.set(&name("x"), &values);
        assert_eq!(found(&indexes, "80"), ["x"]);
        assert!(indexes.accept(&other) && !indexes.accept(&path()));
    }
}
