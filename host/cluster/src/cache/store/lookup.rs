//! Finds cached objects: by name, by namespace, by controller and by query. No object is read here;
//! [`QueryCandidates::found`] matches a query's conditions on the content, without the store.

use std::sync::Arc;

use pilothouse_core::kubernetes::path::{FieldPath, Projection};
use pilothouse_core::reads::query::CheckedQuery;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Kind, Name};

use super::Store;
use crate::cache::index::{Index, IndexDraft};
use crate::object::CachedObject;

impl Store {
    /// Reports whether any part of a kind has been listed, and is watched since.
    pub fn is_synced(&self, kind: &Kind) -> bool {
        self.kind_caches
            .get(kind)
            .is_some_and(|kind_cache| kind_cache.synced.is_some())
    }

    /// Reports whether these fields and this reach of a kind have been listed, and are watched since.
    pub fn has(&self, kind: &Kind, projection: &Projection, reach: &Reach) -> bool {
        let synced = self
            .kind_caches
            .get(kind)
            .and_then(|kind_cache| kind_cache.synced.as_ref());
        synced.is_some_and(|synced| synced.projection.covers(projection) && synced.reach.covers(reach))
    }

    /// Reports whether an existing object would be in the cache. If not, its absence there means nothing.
    pub fn would_know(&self, kind: &Kind, name: &Name) -> bool {
        let synced = self
            .kind_caches
            .get(kind)
            .and_then(|kind_cache| kind_cache.synced.as_ref());
        synced.is_some_and(|synced| synced.reach.holds(name))
    }

    /// Reports whether changes of this object will be seen: its kind is watched, and a watch covers its name.
    pub fn is_followed(&self, kind: &Kind, name: &Name) -> bool {
        let kind_cache = self.kind_caches.get(kind);
        kind_cache.is_some_and(|kind_cache| kind_cache.sources.iter().any(|listing| listing.scope.has(name)))
    }

    /// The change count of a kind.
    pub fn changes(&self, kind: &Kind) -> u64 {
        self.kind_caches.get(kind).map_or(0, |kind_cache| kind_cache.changes)
    }

    /// The object of this name.
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<&Arc<CachedObject>> {
        self.kind_caches.get(kind)?.get(name)
    }

    /// The objects of a kind by namespace and name, in one namespace or in all.
    pub fn iter<'a>(
        &'a self,
        kind: &Kind,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        let kind_cache = self.kind_caches.get(kind);
        let from = namespace.map(|namespace| Name::new(Some(namespace), ""));
        let objects = kind_cache.map(|kind_cache| match &from {
            Some(from) => kind_cache.objects.range::<Name, _>(from..),
            None => kind_cache.objects.range::<Name, _>(..),
        });
        objects
            .into_iter()
            .flatten()
            .map(|(object, _)| &object.0)
            .take_while(move |object| from.as_ref().is_none_or(|from| object.name.namespace == from.namespace))
    }

    /// The objects among which a query finds its results, now. None is read here, so the store's lock is held briefly.
    pub fn candidates(&self, kind: &Kind, query: &CheckedQuery) -> QueryCandidates {
        let Some(kind_cache) = self.kind_caches.get(kind) else {
            return QueryCandidates::default();
        };
        let within = |object: &&Arc<CachedObject>| query.is_within(&object.name);
        // Without conditions on the content, all of these match; those that are too deep are not shown, and do not
        // count.
        let most = query.limit.filter(|_| !query.looks_inside());
        let most = most.map_or(usize::MAX, |limit| limit as usize);
        let mut taken = 0;
        let is_wanted = |object: &&Arc<CachedObject>| {
            let is_wanted = taken < most;
            taken += usize::from(!object.is_too_deep());
            is_wanted
        };
        let objects = if let Some(names) = kind_cache.indexes.look_up(query) {
            let objects = names.into_iter().filter_map(|name| kind_cache.get(name));
            objects.filter(within).take_while(is_wanted).cloned().collect()
        } else {
            let objects = self.iter(kind, query.namespace.as_deref());
            objects.filter(within).take_while(is_wanted).cloned().collect()
        };
        QueryCandidates {
            objects,
            changes: kind_cache.changes,
        }
    }

    /// Reports whether a query needs no new index: it is indexed, or cannot be.
    pub fn is_indexed(&self, kind: &Kind, query: &CheckedQuery) -> bool {
        self.kind_caches
            .get(kind)
            .is_none_or(|kind_cache| kind_cache.indexes.serve(query))
    }

    /// The draft of the index that a query needs; none if there is one, or cannot be one.
    pub fn draft_index(&self, kind: &Kind, query: &CheckedQuery) -> Option<IndexDraft> {
        self.kind_caches.get(kind)?.draft_index(query)
    }

    /// Adds an index, after updating it with the changes since its draft.
    pub fn add_index(&mut self, kind: &Kind, index: Index) {
        if let Some(kind_cache) = self.kind_caches.get_mut(kind) {
            kind_cache.add_index(index);
        }
    }

    /// The index paths at which an object's values are needed before it is inserted: they are read before the store is
    /// locked. None if the store has the object in the same state.
    pub fn paths_to_index(&self, kind: &Kind, object: &CachedObject) -> Vec<FieldPath> {
        let kind_cache = self.kind_caches.get(kind);
        kind_cache.map_or_else(Vec::new, |kind_cache| kind_cache.paths_to_index(object))
    }

    /// Drops an index that is no longer used.
    pub fn drop_index(&mut self, kind: &Kind, path: &FieldPath) {
        if let Some(kind_cache) = self.kind_caches.get_mut(kind) {
            kind_cache.indexes.drop_index(path);
        }
    }

    /// The objects of a kind whose controller has this uid.
    pub fn children<'a>(
        &'a self,
        kind: &Kind,
        controller: &str,
    ) -> impl Iterator<Item = &'a Arc<CachedObject>> + use<'a> {
        let kind_cache = self.kind_caches.get(kind);
        let controller: Arc<str> = controller.into();
        let first = (controller.clone(), Name::new(None, ""));
        kind_cache
            .into_iter()
            .flat_map(move |kind_cache| kind_cache.children.range(first.clone()..))
            .take_while(move |(uid, _)| *uid == controller)
            .filter_map(move |(_, name)| kind_cache?.get(name))
    }

    /// The number of cached objects of a kind.
    pub fn len(&self, kind: &Kind) -> usize {
        self.kind_caches
            .get(kind)
            .map_or(0, |kind_cache| kind_cache.objects.len())
    }
}

/// Objects at one moment, by namespace and name, among which a query finds its results.
#[derive(Debug, Default)]
pub struct QueryCandidates {
    objects: Vec<Arc<CachedObject>>,
    /// The kind's change count at that moment.
    pub changes: u64,
}

impl QueryCandidates {
    /// The number of candidates.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Reports whether there are no candidates.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The candidates that match the query.
    pub fn found<'a>(&'a self, query: &'a CheckedQuery) -> impl Iterator<Item = &'a Arc<CachedObject>> {
        let found = |object: &&Arc<CachedObject>| !query.looks_inside() || query.matches(&object.name, &object.value());
        self.objects.iter().filter(found)
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_support::*;
    use super::*;
    use crate::cache::index::MAX_INDEXES;

    /// The names that the index of a query has for it.
    fn listed(store: &Store, query: &CheckedQuery) -> Vec<String> {
        let names = store.kind_caches[&kind()].indexes.look_up(query);
        names
            .expect("there is an index")
            .into_iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn objects_are_found_by_namespace_and_by_controller() {
        let mut store = Store::default();
        let source = opened(&mut store);
        for (namespace, name, owner) in [
            ("a", "x", Some("o")),
            ("a", "y", None),
            ("ab", "z", Some("o")),
            ("b", "x", None),
        ] {
            put(
                &mut store,
                &source,
                object(namespace, name, &format!("{namespace}{name}"), "1", owner),
            );
        }
        assert_eq!(names(store.iter(&kind(), Some("a"))), ["a/x", "a/y"]);
        assert_eq!(names(store.iter(&kind(), None)), ["a/x", "a/y", "ab/z", "b/x"]);
        assert_eq!(names(store.children(&kind(), "o")), ["a/x", "ab/z"]);
        put(&mut store, &source, object("a", "x", "ax", "2", None));
        assert_eq!(names(store.children(&kind(), "o")), ["ab/z"]);
        store.remove(&source, &Name::new(Some("ab"), "z"));
        assert_eq!(names(store.children(&kind(), "o")), Vec::<String>::new());
    }

    #[test]
    fn what_changes_while_an_index_is_made_is_in_it() {
        let codec = codec(&[".data"]);
        let mut store = Store::default();
        let source = store.open(codec.clone(), Reach::all(), true).remove(0);
        let add = |store: &mut Store, name: &str, version: &str, value: &str| {
            put(store, &source, codec.read(&config(name, version, value)).unwrap());
        };
        for name in ["changes", "goes", "stays"] {
            add(&mut store, name, "1", "red");
        }
        let query = by("", Some("red"));
        let draft = store.draft_index(&kind(), &query).unwrap();
        add(&mut store, "changes", "2", "blue");
        add(&mut store, "comes", "3", "red");
        store.remove(&source, &Name::new(Some("a"), "goes"));
        store.add_index(&kind(), draft.build());
        assert!(store.is_indexed(&kind(), &query));
        assert_eq!(found(&store, &query), ["a/comes", "a/stays"]);
        assert_eq!(found(&store, &by("", Some("blue"))), ["a/changes"]);
        assert_eq!(
            listed(&store, &query),
            ["a/comes", "a/stays"],
            "nothing is left of what went"
        );
        assert!(store.draft_index(&kind(), &query).is_none(), "once is enough");
    }

    #[test]
    fn what_is_found_by_an_index_is_what_a_walk_finds_and_stays_so() {
        let codec = codec(&[".data"]);
        let queries = [by("", Some("red")), by("tier in (red,blue)", None)];
        let (mut indexed, mut walked) = (Store::default(), Store::default());
        for store in [&mut indexed, &mut walked] {
            let source = store.open(codec.clone(), Reach::all(), true).remove(0);
            put(store, &source, codec.read(&config("early", "1", "red")).unwrap());
        }
        for query in &queries {
            assert!(!indexed.is_indexed(&kind(), query));
            let draft = indexed.draft_index(&kind(), query).unwrap();
            indexed.add_index(&kind(), draft.build());
            assert!(indexed.is_indexed(&kind(), query));
        }
        for store in [&mut indexed, &mut walked] {
            let source = store.open(codec.clone(), Reach::all(), true).remove(0);
            for (name, version, value) in [
                ("b", "2", "red"),
                ("c", "3", "blue"),
                ("early", "4", "green"),
                ("b", "5", "blue"),
            ] {
                put(store, &source, codec.read(&config(name, version, value)).unwrap());
            }
            put(store, &source, codec.read(&config("d", "6", "red")).unwrap());
            store.remove(&source, &Name::new(Some("a"), "c"));
        }
        let found = |store: &Store, query| found(store, query);
        for query in &queries {
            assert_eq!(found(&indexed, query), found(&walked, query), "{query:?}");
        }
        assert_eq!(found(&indexed, &queries[0]), ["a/d"]);
        assert_eq!(
            listed(&indexed, &queries[1]),
            ["a/b", "a/d"],
            "nothing is left of what went"
        );
        indexed.drop_index(&kind(), &queries[0].anchor().unwrap().path);
        assert!(!indexed.is_indexed(&kind(), &queries[0]));
    }

    #[test]
    fn an_object_that_is_seen_better_is_listed_under_what_shows() {
        let (narrow, wide) = (codec(&[]), codec(&[".data"]));
        let mut store = Store::default();
        let source = store.open(narrow.clone(), Reach::all(), true).remove(0);
        put(&mut store, &source, narrow.read(&config("x", "1", "red")).unwrap());
        let query = by("", Some("red"));
        let draft = store.draft_index(&kind(), &query).unwrap();
        store.add_index(&kind(), draft.build());
        assert!(listed(&store, &query).is_empty());
        let source = store.open(wide.clone(), Reach::all(), true).remove(0);
        put(&mut store, &source, wide.read(&config("x", "1", "red")).unwrap());
        assert_eq!(listed(&store, &query), ["a/x"]);
    }

    #[test]
    fn a_guest_cannot_make_indexes_without_end() {
        let mut store = Store::default();
        opened(&mut store);
        for index in 0..100 {
            if let Some(draft) = store.draft_index(&kind(), &by(&format!("label-{index}=x"), None)) {
                store.add_index(&kind(), draft.build());
            }
        }
        assert_eq!(store.kind_caches[&kind()].indexes.len(), MAX_INDEXES);
    }
}
