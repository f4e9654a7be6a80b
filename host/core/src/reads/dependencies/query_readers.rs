//! Indexes the queries for objects of one kind with their readers, and finds the queries that a change may concern.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::kubernetes::key::Name;
use crate::kubernetes::path::FieldPath;
use crate::reads::dependencies::read::{ChangedObject, Grouped};
use crate::reads::query::{Anchor, CheckedQuery};

/// Queries with their readers.
type Queries<R> = BTreeMap<Arc<CheckedQuery>, BTreeSet<R>>;

/// The queries for one kind, indexed so that a change need not be matched against all of them: by the value of their
/// anchor, the rest by namespace.
#[derive(Debug)]
pub(super) struct QueryReaders<R> {
    anchored: BTreeMap<FieldPath, HashMap<String, Queries<R>>>,
    placed: HashMap<Option<String>, Queries<R>>,
}

impl<R> Default for QueryReaders<R> {
    fn default() -> Self {
        Self {
            anchored: BTreeMap::new(),
            placed: HashMap::new(),
        }
    }
}

impl<R: Grouped + Clone + Eq + Hash + Ord> QueryReaders<R> {
    /// Reports whether there are no queries.
    pub(super) fn is_empty(&self) -> bool {
        self.anchored.is_empty() && self.placed.is_empty()
    }

    /// The queries that a change of an object may concern.
    pub(super) fn about(&self, name: &Name, change: &impl ChangedObject<R>) -> Vec<(&CheckedQuery, &BTreeSet<R>)> {
        let mut found = BTreeMap::new();
        for (path, by_value) in &self.anchored {
            for queries in change.values(path).iter().filter_map(|value| by_value.get(value)) {
                found.extend(queries.iter().map(|(query, readers)| (&**query, readers)));
            }
        }
        let namespace = name.namespace.as_deref().map(str::to_owned);
        for place in BTreeSet::from([None, namespace]) {
            let queries = self.placed.get(&place).into_iter().flatten();
            found.extend(queries.map(|(query, readers)| (&**query, readers)));
        }
        found.into_iter().collect()
    }

    pub(super) fn link(&mut self, reader: &R, query: &Arc<CheckedQuery>) {
        let add = |queries: &mut Queries<R>| {
            queries.entry(query.clone()).or_default().insert(reader.clone());
        };
        match query.anchor() {
            None => add(self.placed.entry(query.namespace.clone()).or_default()),
            Some(Anchor { path, values }) => {
                let by_value = self.anchored.entry(path).or_default();
                for value in values {
                    add(by_value.entry(value).or_default());
                }
            }
        }
    }

    /// Removes a reader of a query. Returns the path that is no longer an anchor, if any.
    pub(super) fn unlink(&mut self, reader: &R, query: &Arc<CheckedQuery>) -> Option<FieldPath> {
        let remove = |queries: &mut Queries<R>| {
            if let Some(readers) = queries.get_mut(query) {
                readers.remove(reader);
                if readers.is_empty() {
                    queries.remove(query);
                }
            }
            queries.is_empty()
        };
        let Some(Anchor { path, values }) = query.anchor() else {
            if self.placed.get_mut(&query.namespace).is_some_and(remove) {
                self.placed.remove(&query.namespace);
            }
            return None;
        };
        let by_value = self.anchored.get_mut(&path)?;
        for value in &values {
            if by_value.get_mut(value).is_some_and(remove) {
                by_value.remove(value);
            }
        }
        if !by_value.is_empty() {
            return None;
        }
        self.anchored.remove(&path);
        Some(path)
    }
}
