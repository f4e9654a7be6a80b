//! Stores the cached objects of each kind from lists and watches. Finding objects is in `lookup.rs`;
//! [`crate::cache::kind_cache`] holds the objects of one kind.
//!
//! A relist updates in place: unchanged objects stay, and deleted ones are reported when the list is complete. A kind
//! may come from several lists and watches that have no object in common.

use std::collections::HashMap;
use std::sync::Arc;

use pilothouse_core::reads::reach::{Reach, Scope};
use pilothouse_core::{Key, Kind, Name};

use crate::cache::codec::ObjectCodec;
use crate::cache::decoding;
pub use crate::cache::index::{Index, IndexDraft, IndexValues};
use crate::cache::kind_cache::{ByName, KindCache, Listing, Synced};
use crate::object::CachedObject;

mod lookup;
#[cfg(test)]
mod test_support;

pub use lookup::QueryCandidates;

/// The change of one object. An object that was deleted and recreated counts as two changes.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// The object's kind.
    pub kind: Arc<Kind>,
    /// The object before the change, if it existed.
    pub old: Option<Arc<CachedObject>>,
    /// The object after the change, if it exists.
    pub new: Option<Arc<CachedObject>>,
}

impl ObjectChange {
    /// The object's namespace and name.
    pub fn name(&self) -> &Name {
        let object = self.new.as_ref().or(self.old.as_ref());
        &object.expect("a change has an object before or after it").name
    }
}

/// The source of a list or an event: one list and watch of a kind, in one run of the kind's watches.
#[derive(Clone, Debug)]
pub struct WatchSource {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The objects of the list and watch.
    pub scope: Scope,
    run: u64,
}

impl WatchSource {
    /// The source of every object of a kind that no [`Store`] holds.
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

impl Store {
    /// Starts the watches of a kind, for the first time or in another form. Known objects stay, and the kind stays
    /// synced as far as it was. The rest waits for the lists.
    pub fn open(&mut self, codec: Arc<ObjectCodec>, reach: Reach, namespaced: bool) -> Vec<WatchSource> {
        let kind = codec.kind().clone();
        let run = self.next_change();
        let kind_cache = self
            .kind_caches
            .entry(kind.clone())
            .or_insert_with(|| KindCache::new(codec.clone()));
        let scopes = reach.scopes(namespaced);
        kind_cache.narrow(&reach, run);
        let listing = |scope: &Scope| Listing::new(scope.clone(), codec.layout());
        kind_cache.sources = scopes.iter().map(listing).collect();
        kind_cache.codec = codec;
        kind_cache.reach = reach;
        let source = |scope| WatchSource {
            kind: kind.clone(),
            scope,
            run,
        };
        scopes.into_iter().map(source).collect()
    }

    /// Restricts a kind before its watches restart with a narrower reach. Other objects are no longer known, and events
    /// of the earlier watches are ignored.
    pub fn narrow(&mut self, kind: &Kind, reach: &Reach) {
        let run = self.next_change();
        if let Some(kind_cache) = self.kind_caches.get_mut(kind) {
            kind_cache.narrow(reach, run);
        }
    }

    /// Drops a kind that is no longer needed, and frees its memory.
    pub fn close(&mut self, kind: &Kind) {
        self.kind_caches.remove(kind);
    }

    /// Empties a kind that is no longer served. Nothing is known until it is listed again.
    pub fn empty(&mut self, kind: &Arc<Kind>) -> Vec<ObjectChange> {
        let Some(kind_cache) = self.kind_caches.get_mut(kind) else {
            return Vec::new();
        };
        kind_cache.synced = None;
        kind_cache.sources.clear();
        let names: Vec<Name> = kind_cache.objects.keys().map(|object| object.0.name.clone()).collect();
        names.iter().filter_map(|name| self.remove_object(kind, name)).collect()
    }

    /// The objects of a kind that were read before its codec was narrowed. The caller reads them
    /// [again](ObjectCodec::again) and [`Store::replace`]s them; from now on nothing relies on their further fields.
    pub fn untrimmed(&mut self, kind: &Kind) -> Vec<Arc<CachedObject>> {
        let Some(kind_cache) = self.kind_caches.get_mut(kind) else {
            return Vec::new();
        };
        let layout = kind_cache.codec.layout();
        if let Some(synced) = &mut kind_cache.synced {
            synced.projection = layout.projection().clone();
        }
        let objects = kind_cache.objects.keys().map(|ByName(object)| object);
        let untrimmed = objects.filter(|object| object.projection() != layout.projection());
        untrimmed.cloned().collect()
    }

    /// The number of objects of each kind, and their memory in bytes. Reads no object.
    pub fn sizes(&self) -> impl Iterator<Item = (&Arc<Kind>, usize, usize)> {
        let kinds = self.kind_caches.iter();
        kinds.map(|(kind, kind_cache)| (kind, kind_cache.objects.len(), kind_cache.bytes))
    }

    /// The codec of a kind.
    pub fn codec(&self, kind: &Kind) -> Option<Arc<ObjectCodec>> {
        Some(self.kind_caches.get(kind)?.codec.clone())
    }

    /// The objects of a kind that were read before its codec extracted more facts.
    pub fn without_facts(&self, kind: &Kind) -> Vec<Arc<CachedObject>> {
        let kind_cache = self.kind_caches.get(kind).into_iter();
        let objects = kind_cache.flat_map(|kind_cache| {
            let objects = kind_cache.objects.keys().map(|ByName(object)| object);
            objects.filter(|object| !kind_cache.codec.has_facts_of(object))
        });
        objects.cloned().collect()
    }

    /// Replaces objects by re-read ones, unless they have changed meanwhile. This is no change of the objects.
    pub fn replace(&mut self, kind: &Kind, objects: Vec<(Arc<CachedObject>, CachedObject)>) {
        let Some(kind_cache) = self.kind_caches.get_mut(kind) else {
            return;
        };
        for (old, new) in objects {
            let known = kind_cache.objects.get_key_value::<Name>(&old.name);
            if let Some((_, epoch)) = known.filter(|(ByName(known), _)| Arc::ptr_eq(known, &old)) {
                let epoch = *epoch;
                kind_cache.place(Arc::new(new), epoch);
            }
        }
    }

    /// Begins a list.
    pub fn begin_list(&mut self, source: &WatchSource) {
        if let Some((kind_cache, listing)) = self.listing(source) {
            kind_cache.lists += 1;
            kind_cache.sources[listing].epoch = kind_cache.lists;
            kind_cache.sources[listing].layout = kind_cache.codec.layout();
        }
    }

    /// Inserts an object that was listed, added or modified. `values` are its values at the [`Store::paths_to_index`].
    /// Returns nothing for an object that is known in this version.
    pub fn upsert(
        &mut self,
        source: &WatchSource,
        object: impl Into<Arc<CachedObject>>,
        values: &IndexValues,
    ) -> Vec<ObjectChange> {
        let object = object.into();
        let Some((kind_cache, listing)) = self.listing(source) else {
            return Vec::new();
        };
        let epoch = kind_cache.sources[listing].epoch;
        let old = kind_cache.get(&object.name).cloned();
        let object = if kind_cache.codec.has_facts_of(&object) {
            object
        } else {
            // More facts were requested while the object was being read.
            Arc::new(decoding::allowed(|| kind_cache.codec.with_facts(&object)))
        };
        if let Some(old) = old.as_ref().filter(|old| old.is_version_of(&object)) {
            // The same object. If it was trimmed differently it is replaced, which is no change of it.
            let is_kept = old.is_kept_like(&object);
            if !is_kept {
                kind_cache.reindex(Some(old), &object, values);
            }
            let is_kept = is_kept && old.fact_keys() == object.fact_keys();
            kind_cache.place(if is_kept { old.clone() } else { object }, epoch);
            return Vec::new();
        }
        kind_cache.reindex(old.as_deref(), &object, values);
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

    /// Corrects an object by a live read, where the watches have not shown that state themselves; `live` is none if the
    /// object does not exist. `before` is the cached object when the read began: a later state in the cache is newer.
    /// `live` is read by the kind's codec, and has `values` at the [`Store::paths_to_index`].
    pub fn correct(
        &mut self,
        key: &Key,
        before: Option<&CachedObject>,
        live: Option<Arc<CachedObject>>,
        values: &IndexValues,
    ) -> Vec<ObjectChange> {
        let Some(kind_cache) = self.kind_caches.get(&key.kind) else {
            return Vec::new();
        };
        let is_as_before = match (kind_cache.get(&key.name), before) {
            (Some(known), Some(before)) => known.is_version_of(before),
            (known, before) => known.is_none() && before.is_none(),
        };
        if !is_as_before {
            return Vec::new();
        }
        let Some(live) = live else {
            return self.remove_object(&key.kind, &key.name).into_iter().collect();
        };
        let listing = kind_cache.sources.iter().find(|listing| listing.scope.has(&key.name));
        // Only the server knows whether the object matches the label selector.
        let Some(listing) = listing.filter(|listing| listing.scope.labels.is_empty()) else {
            return Vec::new();
        };
        let source = WatchSource {
            kind: key.kind.clone(),
            scope: listing.scope.clone(),
            run: kind_cache.run,
        };
        self.upsert(&source, live, values)
    }

    /// Keeps the known state of an object that exists but cannot be read.
    pub fn keep(&mut self, source: &WatchSource, name: &Name) {
        let Some((kind_cache, listing)) = self.listing(source) else {
            return;
        };
        let epoch = kind_cache.sources[listing].epoch;
        if let Some(seen) = kind_cache.objects.get_mut(name) {
            *seen = epoch;
        }
    }

    /// Removes an object that was deleted, or left the source.
    pub fn remove(&mut self, source: &WatchSource, name: &Name) -> Option<ObjectChange> {
        self.listing(source)?;
        self.remove_object(&source.kind, name)
    }

    /// Ends a list: objects that it did not confirm are removed. The last list of a run makes the kind synced.
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
                projection: kind_cache.shown(),
                reach: kind_cache.reach.clone(),
            });
        }
        gone.iter()
            .filter_map(|name| self.remove_object(&source.kind, name))
            .collect()
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

    fn remove_object(&mut self, kind: &Arc<Kind>, name: &Name) -> Option<ObjectChange> {
        let kind_cache = self.kind_caches.get_mut(kind)?;
        let old = kind_cache.unplace(name)?;
        kind_cache.unindex(&old);
        self.count_change(kind);
        Some(ObjectChange {
            kind: kind.clone(),
            old: Some(old),
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

#[cfg(test)]
mod tests {
    use pilothouse_core::kubernetes::path::{FieldPath, Projection};
    use pilothouse_core::kubernetes::selector::Selector;

    use super::test_support::*;
    use super::*;
    use crate::cache::decoding::NoDecoding;
    use crate::object::facts::FactKeys;

    #[test]
    fn facts_extracted_later_decode_nothing_afterwards() {
        let mut store = Store::default();
        let source = opened(&mut store);
        let labelled = |name: &str, version: &str, label: &str| {
            let labels = format!(r#","labels":{{"app":"{label}"}},"annotations":{{"on":""}}}}"#);
            codec(&[]).read(&raw("a", name, name, version, &labels)).unwrap()
        };
        put(&mut store, &source, labelled("kept", "1", "web"));
        put(&mut store, &source, labelled("changed", "1", "web"));
        let selector = Selector::parse("app=web").unwrap();
        let codec = store.codec(&kind()).unwrap();
        codec.ask(&FactKeys::default().with_labels(&selector).with_annotation("on"));
        let objects = store.without_facts(&kind());
        assert_eq!(objects.len(), 2);
        let known = objects.into_iter().map(|old| {
            let new = codec.with_facts(&old);
            (old, new)
        });
        let known = known.collect();
        let _guard = NoDecoding::begin();
        let changes = put(&mut store, &source, labelled("changed", "2", "other"));
        assert_eq!(changes.len(), 1);
        store.replace(&kind(), known);
        let matching = |name: &str| {
            let object = store.get(&kind(), &Name::new(Some("a"), name)).unwrap();
            (
                object.has_labels(&selector),
                object.has_annotation("on"),
                &*object.resource_version,
            )
        };
        assert_eq!(matching("kept"), (true, true, "1"));
        assert_eq!(matching("changed"), (false, true, "2"), "what came meanwhile stays");
        assert!(store.without_facts(&kind()).is_empty());
    }

    /// A plugin comes while the list for another one is on its way, and reads more.
    #[test]
    fn a_list_that_began_before_more_was_needed_does_not_show_more() {
        let wide = [FieldPath::parse(".spec").unwrap(), FieldPath::parse(".status").unwrap()];
        let [narrow, wide] = [&wide[..1], &wide[..]].map(Projection::new);
        let mut store = Store::default();
        let source = opened(&mut store);
        let shared = store.codec(&kind()).unwrap();
        shared.trim_to(narrow.clone());
        let read = |name| shared.read(&raw("a", name, name, "1", "}")).unwrap();
        store.begin_list(&source);
        put(&mut store, &source, read("it"));
        put(&mut store, &source, read("gone"));
        shared.trim_to(wide.clone());
        store.end_list(&source);
        let has = |store: &Store, projection| store.has(&kind(), projection, &Reach::all());
        assert_eq!((has(&store, &narrow), has(&store, &wide)), (true, false));
        // The list for both. What has gone meanwhile says nothing of it.
        store.begin_list(&source);
        put(&mut store, &source, read("it"));
        store.end_list(&source);
        assert!(has(&store, &wide));
    }

    #[test]
    fn a_relist_reports_only_what_differs_and_what_is_gone() {
        let mut store = Store::default();
        let source = opened(&mut store);
        store.begin_list(&source);
        put(&mut store, &source, object("a", "same", "1", "1", None));
        put(&mut store, &source, object("a", "changed", "2", "1", None));
        put(&mut store, &source, object("a", "gone", "3", "1", None));
        assert!(!store.is_synced(&kind()));
        assert!(store.end_list(&source).is_empty());
        assert!(store.is_synced(&kind()));

        let same = store.get(&kind(), &Name::new(Some("a"), "same")).unwrap().clone();
        store.begin_list(&source);
        assert!(put(&mut store, &source, object("a", "same", "1", "1", None)).is_empty());
        assert_eq!(
            put(&mut store, &source, object("a", "changed", "2", "5", None)).len(),
            1
        );
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
    fn memory_of_a_kind_is_the_sum_of_its_objects() {
        let mut store = Store::default();
        let source = opened(&mut store);
        let sizes = |store: &Store| {
            let held = store.iter(&kind(), None).map(|object| object.held_bytes()).sum();
            let sizes: Vec<_> = store.sizes().map(|(_, objects, bytes)| (objects, bytes)).collect();
            assert_eq!(sizes, [(store.len(&kind()), held)]);
            held
        };
        store.begin_list(&source);
        assert_eq!(sizes(&store), 0);
        put(&mut store, &source, object("a", "changed", "1", "1", None));
        put(&mut store, &source, object("a", "deleted", "2", "1", None));
        put(&mut store, &source, object("a", "anew", "3", "1", None));
        store.end_list(&source);
        let before = sizes(&store);
        put(
            &mut store,
            &source,
            object("a", "changed", "1", "a-longer-version", None),
        );
        assert!(sizes(&store) > before);
        put(&mut store, &source, object("a", "anew", "4", "5", None));
        store.remove(&source, &Name::new(Some("a"), "deleted"));
        sizes(&store);
        store.begin_list(&source);
        store.end_list(&source);
        assert_eq!(sizes(&store), 0);
    }

    #[test]
    fn an_aborted_list_deletes_nothing_but_the_next_full_list_does() {
        let mut store = Store::default();
        let source = opened(&mut store);
        put(&mut store, &source, object("a", "x", "1", "1", None));
        store.begin_list(&source);
        put(&mut store, &source, object("a", "y", "2", "2", None));
        store.begin_list(&source);
        put(&mut store, &source, object("a", "y", "2", "2", None));
        assert_eq!(store.end_list(&source).len(), 1);
        assert_eq!(names(store.iter(&kind(), None)), ["a/y"]);
    }

    #[test]
    fn an_object_made_anew_under_its_name_is_two_changes() {
        let mut store = Store::default();
        let source = opened(&mut store);
        put(&mut store, &source, object("a", "x", "1", "1", None));
        let changes = put(&mut store, &source, object("a", "x", "2", "9", None));
        assert_eq!(changes.len(), 2);
        assert!(changes[0].new.is_none() && changes[1].old.is_none());
    }

    #[test]
    fn an_object_that_a_watch_added_during_a_list_is_kept() {
        let mut store = Store::default();
        let source = opened(&mut store);
        put(&mut store, &source, object("a", "x", "1", "1", None));
        store.begin_list(&source);
        store.remove(&source, &Name::new(Some("a"), "x"));
        put(&mut store, &source, object("a", "x", "2", "4", None));
        assert!(store.end_list(&source).is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_not_taken_for_gone() {
        let mut store = Store::default();
        let source = opened(&mut store);
        put(&mut store, &source, object("a", "x", "1", "1", None));
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
    fn one_that_needs_more_waits_for_the_list_and_the_others_do_not() {
        let mut store = Store::default();
        let (narrow, wide) = (codec(&[]), codec(&[".data"]));
        let (less, more) = (narrow.layout(), wide.layout());
        let has = |store: &Store, layout: &crate::cache::codec::ObjectLayout| {
            store.has(&kind(), layout.projection(), &Reach::all())
        };
        let source = store.open(narrow.clone(), Reach::all(), true).remove(0);
        put(&mut store, &source, narrow.read(&config("x", "1", "red")).unwrap());
        store.end_list(&source);
        assert!(has(&store, &less) && !has(&store, &more));

        let source = store.open(wide.clone(), Reach::all(), true).remove(0);
        assert!(has(&store, &less) && !has(&store, &more));
        store.begin_list(&source);
        let changes = put(&mut store, &source, wide.read(&config("x", "1", "red")).unwrap());
        assert!(changes.is_empty(), "to be seen better is no change");
        store.end_list(&source);
        assert!(has(&store, &more));
        assert_eq!(found(&store, &by("", Some("red"))), ["a/x"]);
    }

    #[test]
    fn after_reach_changes_only_the_common_objects_are_known() {
        let mut store = Store::default();
        let namespaces =
            |names: &[&str]| Reach::namespaces(&names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>());
        let has =
            |store: &Store, names: &[&str]| store.has(&kind(), codec(&[]).layout().projection(), &namespaces(names));
        for source in store.open(codec(&[]), namespaces(&["a", "b"]), true) {
            store.begin_list(&source);
            store.end_list(&source);
        }
        let sources = store.open(codec(&[]), namespaces(&["b", "c"]), true);
        assert!(has(&store, &["b"]) && !has(&store, &["c"]) && !has(&store, &["a"]));
        for source in sources {
            store.begin_list(&source);
            store.end_list(&source);
        }
        assert!(has(&store, &["b", "c"]));
    }

    #[test]
    fn objects_deleted_between_runs_go_with_the_next_list() {
        let mut store = Store::default();
        let first = opened(&mut store);
        store.begin_list(&first);
        put(&mut store, &first, object("a", "stays", "s", "1", None));
        put(&mut store, &first, object("a", "goes", "g", "1", None));
        assert!(store.end_list(&first).is_empty());
        let second = opened(&mut store);
        assert!(
            store.remove(&first, &Name::new(Some("a"), "goes")).is_none(),
            "its run is over"
        );
        store.begin_list(&second);
        put(&mut store, &second, object("a", "stays", "s", "1", None));
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
        put(&mut store, &sources[0], object("a", "x", "1", "1", None));
        put(&mut store, &sources[1], object("b", "x", "2", "2", None));
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
        assert!(put(&mut store, &sources[1], object("b", "y", "3", "3", None)).is_empty());
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
        put(&mut store, &source, object("a", "x", "1", "1", None));
        store.end_list(&source);
        assert_eq!(store.empty(&kind()).len(), 1);
        assert!(!store.is_synced(&kind()) && store.len(&kind()) == 0);
    }
}
