//! Owns the cache's contents: what lists and watches make of the objects of each kind, and how they are found again. What
//! is kept of one kind is [`crate::kind_cache`]'s matter.
//!
//! A relist updates in place: what is unchanged stays as it is, and what is gone is reported when the list is complete. A
//! kind may come in by several lists and watches that have no object in common.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_core::path::{FieldPath, Projection};
use pilothouse_core::query::CheckedQuery;
use pilothouse_core::reach::{Reach, Scope};
use pilothouse_core::{Key, Kind, Name};

use crate::codec::ObjectCodec;
use crate::kind_cache::{ByName, KindCache, Listing, Synced};
pub use crate::kind_cache::{Index, IndexDraft};
use crate::object::CachedObject;

/// What happened to one object. An object that was deleted and made anew counts as two changes.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// As it was.
    pub old: Option<Arc<CachedObject>>,
    /// As it is.
    pub new: Option<Arc<CachedObject>>,
}

impl ObjectChange {
    /// The object's place.
    pub fn name(&self) -> &Name {
        let object = self.new.as_ref().or(self.old.as_ref());
        &object.expect("a change has an object before or after it").name
    }
}

/// Where a list or an event comes from: one list and watch of a kind, in one run of the kind's watches.
#[derive(Clone, Debug)]
pub struct WatchSource {
    /// The kind.
    pub kind: Arc<Kind>,
    /// What the list and watch is about.
    pub scope: Scope,
    run: u64,
}

impl WatchSource {
    /// Every object of a kind that no [`Store`] keeps.
    pub(crate) fn all(kind: Arc<Kind>) -> Self {
        Self {
            kind,
            scope: Scope::default(),
            run: 0,
        }
    }
}

/// The objects of all watched kinds.
#[derive(Debug, Default)]
pub struct Store {
    kind_caches: HashMap<Arc<Kind>, KindCache>,
    changes: u64,
}

/// The objects of a kind at one moment, to be trimmed again.
#[derive(Debug)]
pub struct TrimDraft {
    codec: Arc<ObjectCodec>,
    objects: Vec<Arc<CachedObject>>,
}

/// Objects before and after they were trimmed again.
#[derive(Debug)]
pub struct TrimmedObjects {
    projection: Projection,
    objects: Vec<(Arc<CachedObject>, Arc<CachedObject>)>,
}

impl TrimDraft {
    /// Reads every object, which may take a while.
    pub fn build(self) -> TrimmedObjects {
        let Self { codec, objects } = self;
        let again = |object: Arc<CachedObject>| {
            let trimmed = Arc::new(codec.again(&object));
            (object, trimmed)
        };
        TrimmedObjects {
            projection: codec.layout().projection().clone(),
            objects: objects.into_iter().map(again).collect(),
        }
    }
}

impl Store {
    /// The watches of a kind begin, for the first time or in another form. What is known stays, and counts as synced for
    /// those whom it was enough for; the rest waits for the lists.
    pub fn open(&mut self, codec: Arc<ObjectCodec>, reach: Reach, namespaced: bool) -> Vec<WatchSource> {
        let kind = codec.kind().clone();
        let run = self.next_change();
        let kind_cache = self
            .kind_caches
            .entry(kind.clone())
            .or_insert_with(|| KindCache::new(codec.clone()));
        let scopes = reach.scopes(namespaced);
        // What is not followed any more is not known any more.
        if let Some(synced) = &mut kind_cache.synced
            && !reach.covers(&synced.reach)
        {
            synced.reach = reach.clone();
        }
        kind_cache.codec = codec;
        kind_cache.run = run;
        kind_cache.reach = reach;
        kind_cache.sources = scopes.iter().cloned().map(Listing::new).collect();
        let source = |scope| WatchSource {
            kind: kind.clone(),
            scope,
            run,
        };
        scopes.into_iter().map(source).collect()
    }

    /// Nobody needs a kind any more: its memory is given back.
    pub fn close(&mut self, kind: &Kind) {
        self.kind_caches.remove(kind);
    }

    /// The kind is not served any more: nothing of it is there, and nothing is known until it is listed again.
    pub fn empty(&mut self, kind: &Arc<Kind>) -> Vec<ObjectChange> {
        let Some(kind_cache) = self.kind_caches.get_mut(kind) else {
            return Vec::new();
        };
        kind_cache.synced = None;
        kind_cache.sources.clear();
        let names: Vec<Name> = kind_cache.objects.keys().map(|object| object.0.name.clone()).collect();
        names.iter().filter_map(|name| self.take(kind, name)).collect()
    }

    /// What is known of a kind, to be trimmed again after its codec was told to show less.
    pub fn draft_trim(&self, kind: &Kind) -> Option<TrimDraft> {
        let kind_cache = self.kind_caches.get(kind)?;
        let objects = kind_cache.objects.keys().map(|ByName(object)| object.clone());
        Some(TrimDraft {
            codec: kind_cache.codec.clone(),
            objects: objects.collect(),
        })
    }

    /// Takes trimmed objects in. What has changed since their draft was read by the codec as it is now.
    pub fn add_trimmed(&mut self, kind: &Kind, trimmed: TrimmedObjects) {
        let Some(kind_cache) = self.kind_caches.get_mut(kind) else {
            return;
        };
        let TrimmedObjects { projection, objects } = trimmed;
        if let Some(synced) = &mut kind_cache.synced {
            synced.projection = projection;
        }
        for (before, trimmed) in objects {
            let known = kind_cache.objects.get_key_value(&before.name);
            let epoch = known
                .filter(|(now, _)| Arc::ptr_eq(&now.0, &before))
                .map(|(_, epoch)| *epoch);
            if let Some(epoch) = epoch {
                kind_cache.place(trimmed, epoch);
            }
        }
    }

    /// Whether something of a kind has been listed once, and is followed since.
    pub fn is_synced(&self, kind: &Kind) -> bool {
        self.kind_caches
            .get(kind)
            .is_some_and(|kind_cache| kind_cache.synced.is_some())
    }

    /// Whether all that is needed of a kind has been listed once, and is followed since.
    pub fn has(&self, kind: &Kind, projection: &Projection, reach: &Reach) -> bool {
        let synced = self
            .kind_caches
            .get(kind)
            .and_then(|kind_cache| kind_cache.synced.as_ref());
        synced.is_some_and(|synced| synced.projection.covers(projection) && synced.reach.covers(reach))
    }

    /// Whether an object that exists would be known. Where it would not, its absence says nothing.
    pub fn would_know(&self, kind: &Kind, name: &Name) -> bool {
        let synced = self
            .kind_caches
            .get(kind)
            .and_then(|kind_cache| kind_cache.synced.as_ref());
        synced.is_some_and(|synced| synced.reach.holds(name))
    }

    /// Whether an object of this name will be seen when it changes: its kind is watched, and the watches are about it as
    /// far as its name says.
    pub fn is_followed(&self, kind: &Kind, name: &Name) -> bool {
        let kind_cache = self.kind_caches.get(kind);
        kind_cache.is_some_and(|kind_cache| kind_cache.sources.iter().any(|listing| listing.scope.has(name)))
    }

    /// Moves with each change of a kind.
    pub fn changes(&self, kind: &Kind) -> u64 {
        self.kind_caches.get(kind).map_or(0, |kind_cache| kind_cache.changes)
    }

    /// One object.
    pub fn get(&self, kind: &Kind, name: &Name) -> Option<&Arc<CachedObject>> {
        self.kind_caches.get(kind)?.get(name)
    }

    /// The objects of a kind by namespace and name, of one namespace or of all.
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

    /// The objects among which a query finds its own, as they are at this moment. Nothing is read of them here, so that
    /// whoever holds the store for others does not keep them waiting.
    pub fn candidates(&self, kind: &Kind, query: &CheckedQuery) -> QueryCandidates {
        let Some(kind_cache) = self.kind_caches.get(kind) else {
            return QueryCandidates::default();
        };
        let within = |object: &&Arc<CachedObject>| query.is_within(&object.name);
        // Where nothing is asked of what is inside, all of these are found; what is too deep may still not be shown.
        let most = query.limit.filter(|_| !query.looks_inside());
        let most = most.map_or(usize::MAX, |limit| limit as usize);
        let mut taken = 0;
        let is_wanted = |object: &&Arc<CachedObject>| {
            let is_wanted = taken < most;
            taken += usize::from(!object.is_too_deep());
            is_wanted
        };
        let objects = if let Some(names) = kind_cache.look_up(query) {
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

    /// Whether a query is answered without going through all objects, or cannot be.
    pub fn is_indexed(&self, kind: &Kind, query: &CheckedQuery) -> bool {
        self.kind_caches
            .get(kind)
            .is_none_or(|kind_cache| kind_cache.is_indexed(query))
    }

    /// What the index that a query needs is made of; none where there is one, or cannot be.
    pub fn draft_index(&self, kind: &Kind, query: &CheckedQuery) -> Option<IndexDraft> {
        self.kind_caches.get(kind)?.draft_index(query)
    }

    /// Takes an index in, with what has changed since its draft.
    pub fn add_index(&mut self, kind: &Kind, index: Index) {
        if let Some(kind_cache) = self.kind_caches.get_mut(kind) {
            kind_cache.add_index(index);
        }
    }

    /// Drops an index that nobody uses any more.
    pub fn drop_index(&mut self, kind: &Kind, path: &FieldPath) {
        if let Some(kind_cache) = self.kind_caches.get_mut(kind) {
            kind_cache.drop_index(path);
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

    /// How many objects of a kind there are.
    pub fn len(&self, kind: &Kind) -> usize {
        self.kind_caches
            .get(kind)
            .map_or(0, |kind_cache| kind_cache.objects.len())
    }

    /// A list begins.
    pub fn begin_list(&mut self, source: &WatchSource) {
        if let Some((kind_cache, listing)) = self.listing(source) {
            kind_cache.lists += 1;
            kind_cache.sources[listing].epoch = kind_cache.lists;
        }
    }

    /// An object was listed, added or modified. Nothing is returned for one that is known in this version.
    pub fn upsert(&mut self, source: &WatchSource, object: CachedObject) -> Vec<ObjectChange> {
        let Some((kind_cache, listing)) = self.listing(source) else {
            return Vec::new();
        };
        let epoch = kind_cache.sources[listing].epoch;
        let old = kind_cache.get(&object.name).cloned();
        let object = Arc::new(object);
        if let Some(old) = &old
            && old.resource_version == object.resource_version
            && old.uid == object.uid
        {
            // The same object. What was trimmed in another way is replaced, and that is no change of it.
            let kept = if old.projection() == object.projection() {
                old.clone()
            } else {
                kind_cache.reindex(Some(old), Some(&object));
                object
            };
            kind_cache.place(kept, epoch);
            return Vec::new();
        }
        kind_cache.reindex(old.as_deref(), Some(&object));
        kind_cache.place(object.clone(), epoch);
        let change = |old, new| ObjectChange {
            kind: source.kind.clone(),
            old,
            new,
        };
        let changes = match old {
            Some(old) if old.uid != object.uid => vec![change(Some(old), None), change(None, Some(object))],
            old => vec![change(old, Some(object))],
        };
        self.count_change(&source.kind);
        changes
    }

    /// What a look past the watches has shown of an object, where the watches have not said so by themselves; none: it is
    /// gone. `before` is the object as it was known when that look began: what has come since then is newer.
    pub fn correct(
        &mut self,
        key: &Key,
        before: Option<&CachedObject>,
        live: Option<&CachedObject>,
    ) -> Vec<ObjectChange> {
        let Some(kind_cache) = self.kind_caches.get(&key.kind) else {
            return Vec::new();
        };
        let version = |object: &CachedObject| (object.uid.clone(), object.resource_version.clone());
        let known = kind_cache.get(&key.name);
        if known.map(|object| version(object)) != before.map(version) {
            return Vec::new();
        }
        let Some(live) = live else {
            return self.take(&key.kind, &key.name).into_iter().collect();
        };
        let listing = kind_cache.sources.iter().find(|listing| listing.scope.has(&key.name));
        // Whether its labels are right, the server alone says.
        let Some(listing) = listing.filter(|listing| listing.scope.labels.is_empty()) else {
            return Vec::new();
        };
        let source = WatchSource {
            kind: key.kind.clone(),
            scope: listing.scope.clone(),
            run: kind_cache.run,
        };
        let object = kind_cache.codec.again(live);
        self.upsert(&source, object)
    }

    /// An object is there and cannot be read: what is known of it stays.
    pub fn keep(&mut self, source: &WatchSource, name: &Name) {
        let Some((kind_cache, listing)) = self.listing(source) else {
            return;
        };
        let epoch = kind_cache.sources[listing].epoch;
        if let Some(seen) = kind_cache.objects.get_mut(name) {
            *seen = epoch;
        }
    }

    /// An object is gone, or has left what the source is about.
    pub fn remove(&mut self, source: &WatchSource, name: &Name) -> Option<ObjectChange> {
        self.listing(source)?;
        self.take(&source.kind, name)
    }

    /// A list is complete: what it did not confirm is gone. With the last list of a run, the kind is synced.
    pub fn end_list(&mut self, source: &WatchSource) -> Vec<ObjectChange> {
        let Some((kind_cache, listing)) = self.listing(source) else {
            return Vec::new();
        };
        kind_cache.sources[listing].is_complete = true;
        let epoch = kind_cache.sources[listing].epoch;
        let all = kind_cache.sources.iter().all(|listing| listing.is_complete);
        let is_gone = |name: &Name, seen: u32| {
            if source.scope.has(name) {
                seen != epoch
            } else {
                all && !kind_cache.sources.iter().any(|listing| listing.scope.has(name))
            }
        };
        let gone: Vec<Name> = kind_cache
            .objects
            .iter()
            .filter(|(object, seen)| is_gone(&object.0.name, **seen))
            .map(|(object, _)| object.0.name.clone())
            .collect();
        if all {
            kind_cache.synced = Some(Synced {
                projection: kind_cache.codec.layout().projection().clone(),
                reach: kind_cache.reach.clone(),
            });
        }
        gone.iter().filter_map(|name| self.take(&source.kind, name)).collect()
    }

    /// The kind cache and the listing of a source, unless its run is over.
    fn listing(&mut self, source: &WatchSource) -> Option<(&mut KindCache, usize)> {
        let kind_cache = self
            .kind_caches
            .get_mut(&source.kind)
            .filter(|kind_cache| kind_cache.run == source.run)?;
        let listing = kind_cache
            .sources
            .iter()
            .position(|listing| listing.scope == source.scope)?;
        Some((kind_cache, listing))
    }

    fn take(&mut self, kind: &Arc<Kind>, name: &Name) -> Option<ObjectChange> {
        let kind_cache = self.kind_caches.get_mut(kind)?;
        let (old, _) = kind_cache.objects.remove_entry(name)?;
        kind_cache.reindex(Some(&old.0), None);
        self.count_change(kind);
        Some(ObjectChange {
            kind: kind.clone(),
            old: Some(old.0),
            new: None,
        })
    }

    fn next_change(&mut self) -> u64 {
        self.changes += 1;
        self.changes
    }

    fn count_change(&mut self, kind: &Kind) {
        let change = self.next_change();
        if let Some(kind_cache) = self.kind_caches.get_mut(kind) {
            kind_cache.changes = change;
        }
    }
}

/// Objects as they were at one moment, by namespace and name, some of which a query finds.
#[derive(Debug, Default)]
pub struct QueryCandidates {
    objects: Vec<Arc<CachedObject>>,
    /// The count of the kind's changes at that moment.
    pub changes: u64,
}

impl QueryCandidates {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Those that the query finds.
    pub fn found<'a>(&'a self, query: &'a CheckedQuery) -> impl Iterator<Item = &'a Arc<CachedObject>> {
        let found = |object: &&Arc<CachedObject>| !query.looks_inside() || query.matches(&object.name, &object.value());
        self.objects.iter().filter(found)
    }
}

#[cfg(test)]
mod tests {
    use pilothouse_core::selector::Selector;
    use serde_json::value::RawValue;

    use super::*;
    use crate::kind_cache::MAX_INDEXES;

    fn kind() -> Arc<Kind> {
        Arc::new(Kind::new("", "v1", "ConfigMap"))
    }

    fn codec(paths: &[&str]) -> Arc<ObjectCodec> {
        let paths: Vec<_> = paths.iter().map(|path| FieldPath::parse(path).unwrap()).collect();
        Arc::new(ObjectCodec::new(kind(), Projection::new(&paths)))
    }

    fn raw(namespace: &str, name: &str, uid: &str, version: &str, rest: &str) -> Box<RawValue> {
        RawValue::from_string(format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}","uid":"{uid}","resourceVersion":"{version}"{rest}}}"#
        ))
        .unwrap()
    }

    fn object(namespace: &str, name: &str, uid: &str, version: &str, owner: Option<&str>) -> CachedObject {
        let owners = owner.map_or(String::new(), |uid| {
            format!(
                r#","ownerReferences":[{{"apiVersion":"v1","kind":"X","name":"x","uid":"{uid}","controller":true}}]"#
            )
        });
        codec(&[])
            .read(&raw(namespace, name, uid, version, &format!("{owners}}}")))
            .unwrap()
    }

    fn opened(store: &mut Store) -> WatchSource {
        store.open(codec(&[]), Reach::all(), true).remove(0)
    }

    fn names<'a>(objects: impl Iterator<Item = &'a Arc<CachedObject>>) -> Vec<String> {
        objects.map(|object| object.name.to_string()).collect()
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
            store.upsert(
                &source,
                object(namespace, name, &format!("{namespace}{name}"), "1", owner),
            );
        }
        assert_eq!(names(store.iter(&kind(), Some("a"))), ["a/x", "a/y"]);
        assert_eq!(names(store.iter(&kind(), None)), ["a/x", "a/y", "ab/z", "b/x"]);
        assert_eq!(names(store.children(&kind(), "o")), ["a/x", "ab/z"]);
        store.upsert(&source, object("a", "x", "ax", "2", None));
        assert_eq!(names(store.children(&kind(), "o")), ["ab/z"]);
        store.remove(&source, &Name::new(Some("ab"), "z"));
        assert_eq!(names(store.children(&kind(), "o")), Vec::<String>::new());
    }

    #[test]
    fn a_relist_reports_only_what_differs_and_what_is_gone() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.begin_list(&source);
        store.upsert(&source, object("a", "same", "1", "1", None));
        store.upsert(&source, object("a", "changed", "2", "1", None));
        store.upsert(&source, object("a", "gone", "3", "1", None));
        assert!(!store.is_synced(&kind()));
        assert!(store.end_list(&source).is_empty());
        assert!(store.is_synced(&kind()));

        let same = store.get(&kind(), &Name::new(Some("a"), "same")).unwrap().clone();
        store.begin_list(&source);
        assert!(store.upsert(&source, object("a", "same", "1", "1", None)).is_empty());
        assert_eq!(store.upsert(&source, object("a", "changed", "2", "5", None)).len(), 1);
        assert!(
            store.is_synced(&kind()),
            "what is known stays usable while a list comes in"
        );
        let gone = store.end_list(&source);
        assert_eq!(gone.len(), 1);
        assert_eq!(gone[0].name().to_string(), "a/gone");
        let kept = store.get(&kind(), &Name::new(Some("a"), "same")).unwrap();
        assert!(Arc::ptr_eq(kept, &same), "what is unchanged stays where it is");
    }

    #[test]
    fn an_aborted_list_deletes_nothing_but_the_next_full_list_does() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.upsert(&source, object("a", "x", "1", "1", None));
        store.begin_list(&source);
        store.upsert(&source, object("a", "y", "2", "2", None));
        store.begin_list(&source);
        store.upsert(&source, object("a", "y", "2", "2", None));
        assert_eq!(store.end_list(&source).len(), 1);
        assert_eq!(names(store.iter(&kind(), None)), ["a/y"]);
    }

    #[test]
    fn an_object_made_anew_under_its_name_is_two_changes() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.upsert(&source, object("a", "x", "1", "1", None));
        let changes = store.upsert(&source, object("a", "x", "2", "9", None));
        assert_eq!(changes.len(), 2);
        assert!(changes[0].new.is_none() && changes[1].old.is_none());
    }

    #[test]
    fn an_object_that_a_watch_added_during_a_list_is_kept() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.upsert(&source, object("a", "x", "1", "1", None));
        store.begin_list(&source);
        store.remove(&source, &Name::new(Some("a"), "x"));
        store.upsert(&source, object("a", "x", "2", "4", None));
        assert!(store.end_list(&source).is_empty());
    }

    fn config(name: &str, version: &str, value: &str) -> Box<RawValue> {
        let rest = format!(r#","labels":{{"tier":"{value}"}}}},"data":{{"key":"{value}"}}"#);
        raw("a", name, name, version, &rest)
    }

    fn by(labels: &str, field: Option<&str>) -> CheckedQuery {
        let key = FieldPath::parse(".data.key").unwrap();
        CheckedQuery {
            labels: Selector::parse(labels).unwrap(),
            fields: field.map(|value| (key, value.to_owned())).into_iter().collect(),
            ..CheckedQuery::default()
        }
    }

    fn found(store: &Store, query: &CheckedQuery) -> Vec<String> {
        names(store.candidates(&kind(), query).found(query))
    }

    #[test]
    fn what_changes_while_an_index_is_made_is_in_it() {
        let codec = codec(&[".data"]);
        let mut store = Store::default();
        let source = store.open(codec.clone(), Reach::all(), true).remove(0);
        let put = |store: &mut Store, name: &str, version: &str, value: &str| {
            store.upsert(&source, codec.read(&config(name, version, value)).unwrap());
        };
        for name in ["changes", "goes", "stays"] {
            put(&mut store, name, "1", "red");
        }
        let query = by("", Some("red"));
        let draft = store.draft_index(&kind(), &query).unwrap();
        put(&mut store, "changes", "2", "blue");
        put(&mut store, "comes", "3", "red");
        store.remove(&source, &Name::new(Some("a"), "goes"));
        store.add_index(&kind(), draft.build());
        assert!(store.is_indexed(&kind(), &query));
        assert_eq!(found(&store, &query), ["a/comes", "a/stays"]);
        assert_eq!(found(&store, &by("", Some("blue"))), ["a/changes"]);
        assert!(store.draft_index(&kind(), &query).is_none(), "once is enough");
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_gone() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.upsert(&source, object("a", "x", "1", "1", None));
        store.begin_list(&source);
        store.keep(&source, &Name::new(Some("a"), "x"));
        store.keep(&source, &Name::new(Some("a"), "unknown"));
        assert!(store.end_list(&source).is_empty());
        assert_eq!(names(store.iter(&kind(), None)), ["a/x"]);
    }

    #[test]
    fn an_object_is_followed_as_long_as_a_watch_is_about_it() {
        let mut store = Store::default();
        let name = |namespace| Name::new(Some(namespace), "x");
        assert!(!store.is_followed(&kind(), &name("a")));
        store.open(codec(&[]), Reach::namespaces(&["a".to_owned()]), true);
        assert!(store.is_followed(&kind(), &name("a")) && !store.is_followed(&kind(), &name("b")));
        store.empty(&kind());
        assert!(!store.is_followed(&kind(), &name("a")), "the kind is not served");
        opened(&mut store);
        assert!(store.is_followed(&kind(), &name("b")));
        store.close(&kind());
        assert!(!store.is_followed(&kind(), &name("b")));
    }

    #[test]
    fn what_is_found_by_an_index_is_what_a_walk_finds_and_stays_so() {
        let codec = codec(&[".data"]);
        let queries = [by("", Some("red")), by("tier in (red,blue)", None)];
        let (mut indexed, mut walked) = (Store::default(), Store::default());
        for store in [&mut indexed, &mut walked] {
            let source = store.open(codec.clone(), Reach::all(), true).remove(0);
            store.upsert(&source, codec.read(&config("early", "1", "red")).unwrap());
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
                store.upsert(&source, codec.read(&config(name, version, value)).unwrap());
            }
            store.upsert(&source, codec.read(&config("d", "6", "red")).unwrap());
            store.remove(&source, &Name::new(Some("a"), "c"));
        }
        let found = |store: &Store, query| found(store, query);
        for query in &queries {
            assert_eq!(found(&indexed, query), found(&walked, query), "{query:?}");
        }
        assert_eq!(found(&indexed, &queries[0]), ["a/d"]);
        indexed.drop_index(&kind(), &queries[0].anchor().unwrap().path);
        assert!(!indexed.is_indexed(&kind(), &queries[0]));
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
        assert_eq!(store.kind_caches[&kind()].indexes(), MAX_INDEXES);
    }

    #[test]
    fn one_that_needs_more_waits_for_the_list_and_the_others_do_not() {
        let mut store = Store::default();
        let (narrow, wide) = (codec(&[]), codec(&[".data"]));
        let (less, more) = (narrow.layout(), wide.layout());
        let has =
            |store: &Store, layout: &crate::codec::ObjectLayout| store.has(&kind(), layout.projection(), &Reach::all());
        let source = store.open(narrow.clone(), Reach::all(), true).remove(0);
        store.upsert(&source, narrow.read(&config("x", "1", "red")).unwrap());
        store.end_list(&source);
        assert!(has(&store, &less) && !has(&store, &more));

        let source = store.open(wide.clone(), Reach::all(), true).remove(0);
        assert!(has(&store, &less) && !has(&store, &more));
        store.begin_list(&source);
        let changes = store.upsert(&source, wide.read(&config("x", "1", "red")).unwrap());
        assert!(changes.is_empty(), "to be seen better is no change");
        store.end_list(&source);
        assert!(has(&store, &more));
        assert_eq!(found(&store, &by("", Some("red"))), ["a/x"]);
    }

    #[test]
    fn objects_deleted_between_runs_go_with_the_next_list() {
        let mut store = Store::default();
        let first = opened(&mut store);
        store.begin_list(&first);
        store.upsert(&first, object("a", "stays", "s", "1", None));
        store.upsert(&first, object("a", "goes", "g", "1", None));
        assert!(store.end_list(&first).is_empty());
        let second = opened(&mut store);
        assert!(
            store.remove(&first, &Name::new(Some("a"), "goes")).is_none(),
            "its run is over"
        );
        store.begin_list(&second);
        store.upsert(&second, object("a", "stays", "s", "1", None));
        let gone = store.end_list(&second);
        assert_eq!(gone.len(), 1);
        assert_eq!((&*gone[0].name().name, gone[0].new.is_none()), ("goes", true));
    }

    #[test]
    fn lists_of_several_namespaces_make_one_kind() {
        let mut store = Store::default();
        let namespaces =
            |names: &[&str]| Reach::namespaces(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        let sources = store.open(codec(&[]), namespaces(&["a", "b"]), true);
        for source in &sources {
            store.begin_list(source);
        }
        store.upsert(&sources[0], object("a", "x", "1", "1", None));
        store.upsert(&sources[1], object("b", "x", "2", "2", None));
        assert!(store.end_list(&sources[0]).is_empty());
        assert!(!store.is_synced(&kind()));
        assert!(store.end_list(&sources[1]).is_empty());
        assert!(store.is_synced(&kind()));
        assert!(store.would_know(&kind(), &Name::new(Some("a"), "x")));
        assert!(!store.would_know(&kind(), &Name::new(Some("c"), "x")));

        store.begin_list(&sources[0]);
        assert_eq!(store.end_list(&sources[0]).len(), 1, "only what it is about is swept");
        let narrower = store.open(codec(&[]), namespaces(&["a"]), true);
        assert!(!store.would_know(&kind(), &Name::new(Some("b"), "x")));
        assert!(store.upsert(&sources[1], object("b", "y", "3", "3", None)).is_empty());
        store.begin_list(&narrower[0]);
        assert_eq!(
            store.end_list(&narrower[0]).len(),
            1,
            "what nobody asks for any more goes"
        );
        assert_eq!(store.len(&kind()), 0);
    }

    #[test]
    fn what_is_not_served_any_more_is_gone_and_not_known() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.upsert(&source, object("a", "x", "1", "1", None));
        store.end_list(&source);
        assert_eq!(store.empty(&kind()).len(), 1);
        assert!(!store.is_synced(&kind()) && store.len(&kind()) == 0);
    }
}
