//! Owns who has read what: the reads of each reconcile, and whom a change of an object wakes.
//!
//! A reader is a primary of one lane. After a reconcile its dependencies are replaced, not added to. Whether what a
//! reader may see of the object has changed is asked from the caller, because lanes see different fields.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

use crate::key::{Kind, Name};
use crate::path::FieldPath;
use crate::query::{Anchor, CheckedQuery};

/// One thing that a reconcile has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Read {
    /// An object by its name, there or not.
    Get(Arc<Kind>, Name),
    /// The objects that match a query.
    Find(Arc<Kind>, Arc<CheckedQuery>),
    /// An object that stands in the way of a desired one: any change of it counts, seen or not.
    Obstacle(Arc<Kind>, Name),
}

impl Read {
    /// The kind that was read.
    pub fn kind(&self) -> &Arc<Kind> {
        match self {
            Self::Get(kind, _) | Self::Find(kind, _) | Self::Obstacle(kind, _) => kind,
        }
    }
}

/// What a change of one object looks like to those who may have read it.
pub trait ChangedObject<R> {
    /// Whether a reader sees other bytes than before; also when the object came or went.
    fn is_visible_to(&self, reader: &R) -> bool;
    /// Whether the object matched a query before the change.
    fn matched(&self, query: &CheckedQuery) -> bool;
    /// Whether the object matches a query after the change.
    fn matches(&self, query: &CheckedQuery) -> bool;
    /// The scalars at a path, before and after the change.
    fn values(&self, path: &FieldPath) -> BTreeSet<String>;
}

/// A path by which objects of a kind are looked up.
pub type Index = (Arc<Kind>, FieldPath);

/// The reads of all readers, by what was read.
#[derive(Debug)]
pub struct Dependencies<R> {
    reads: HashMap<R, BTreeSet<Read>>,
    gets: HashMap<(Arc<Kind>, Name), BTreeSet<R>>,
    obstacles: HashMap<(Arc<Kind>, Name), BTreeSet<R>>,
    finds: HashMap<Arc<Kind>, Finds<R>>,
}

/// Who asked which query.
type Queries<R> = BTreeMap<Arc<CheckedQuery>, BTreeSet<R>>;

/// The queries for one kind, so that a change need not be held against all of them: by the value of their anchor, the
/// rest by namespace.
#[derive(Debug)]
struct Finds<R> {
    anchored: BTreeMap<FieldPath, HashMap<String, Queries<R>>>,
    placed: HashMap<Option<String>, Queries<R>>,
}

impl<R> Default for Finds<R> {
    fn default() -> Self {
        Self {
            anchored: BTreeMap::new(),
            placed: HashMap::new(),
        }
    }
}

impl<R> Default for Dependencies<R> {
    fn default() -> Self {
        Self {
            reads: HashMap::new(),
            gets: HashMap::new(),
            obstacles: HashMap::new(),
            finds: HashMap::new(),
        }
    }
}

impl<R: Clone + Eq + Hash + Ord> Dependencies<R> {
    /// Replaces what a reader depends on. Says by which paths nobody looks for objects any more.
    pub fn replace(&mut self, reader: &R, reads: BTreeSet<Read>) -> Vec<Index> {
        let before = self.reads.remove(reader).unwrap_or_default();
        for new in reads.difference(&before) {
            self.link(reader, new);
        }
        let mut unused = Vec::new();
        for gone in before.difference(&reads) {
            unused.extend(self.unlink(reader, gone));
        }
        if !reads.is_empty() {
            self.reads.insert(reader.clone(), reads);
        }
        unused
    }

    /// Adds one read to what a reader depends on.
    pub fn add(&mut self, reader: &R, read: Read) {
        self.link(reader, &read);
        self.reads.entry(reader.clone()).or_default().insert(read);
    }

    /// Forgets a reader. Says by which paths nobody looks for objects any more.
    pub fn remove(&mut self, reader: &R) -> Vec<Index> {
        self.replace(reader, BTreeSet::new())
    }

    /// Forgets every reader of whom this holds; says which indexes nobody needs any more.
    pub fn remove_all(&mut self, is_gone: impl Fn(&R) -> bool) -> Vec<Index> {
        let gone: Vec<R> = self.reads.keys().filter(|reader| is_gone(reader)).cloned().collect();
        gone.iter().flat_map(|reader| self.remove(reader)).collect()
    }

    /// How many readers depend on something.
    pub fn readers(&self) -> usize {
        self.reads.len()
    }

    /// Whom a change of an object wakes, each once.
    pub fn woken(&self, kind: &Arc<Kind>, name: &Name, change: &impl ChangedObject<R>) -> Vec<R> {
        let key = (kind.clone(), name.clone());
        let mut woken: Vec<&R> = Vec::new();
        if let Some(getters) = self.gets.get(&key) {
            woken.extend(getters.iter().filter(|reader| change.is_visible_to(reader)));
        }
        let from_gets = woken.len();
        woken.extend(self.obstacles.get(&key).into_iter().flatten());
        for (query, readers) in self
            .finds
            .get(kind)
            .into_iter()
            .flat_map(|finds| finds.about(name, change))
        {
            match (change.matched(query), change.matches(query)) {
                (false, false) => {}
                (true, true) => woken.extend(readers.iter().filter(|reader| change.is_visible_to(reader))),
                _ => woken.extend(readers),
            }
        }
        // Those who read by name are in order and each is there once; that is how thousands depend on one object.
        if woken.len() > from_gets {
            woken.sort_unstable();
            woken.dedup();
        }
        woken.into_iter().cloned().collect()
    }

    fn link(&mut self, reader: &R, read: &Read) {
        let readers = match read {
            Read::Get(kind, name) => self.gets.entry((kind.clone(), name.clone())).or_default(),
            Read::Obstacle(kind, name) => self.obstacles.entry((kind.clone(), name.clone())).or_default(),
            Read::Find(kind, query) => {
                self.finds.entry(kind.clone()).or_default().link(reader, query);
                return;
            }
        };
        readers.insert(reader.clone());
    }

    /// Says by which path nobody looks for objects any more.
    fn unlink(&mut self, reader: &R, read: &Read) -> Option<Index> {
        match read {
            Read::Get(kind, name) => unlink_from(&mut self.gets, (kind.clone(), name.clone()), reader),
            Read::Obstacle(kind, name) => unlink_from(&mut self.obstacles, (kind.clone(), name.clone()), reader),
            Read::Find(kind, query) => {
                let finds = self.finds.get_mut(kind)?;
                let unused = finds.unlink(reader, query);
                if finds.anchored.is_empty() && finds.placed.is_empty() {
                    self.finds.remove(kind);
                }
                return unused.map(|path| (kind.clone(), path));
            }
        }
        None
    }
}

impl<R: Clone + Eq + Hash + Ord> Finds<R> {
    /// The queries that an object may have to do with.
    fn about(&self, name: &Name, change: &impl ChangedObject<R>) -> Vec<(&CheckedQuery, &BTreeSet<R>)> {
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

    fn link(&mut self, reader: &R, query: &Arc<CheckedQuery>) {
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

    /// Says which path is not an anchor any more.
    fn unlink(&mut self, reader: &R, query: &Arc<CheckedQuery>) -> Option<FieldPath> {
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

fn unlink_from<R: Ord>(index: &mut HashMap<(Arc<Kind>, Name), BTreeSet<R>>, key: (Arc<Kind>, Name), reader: &R) {
    if let std::collections::hash_map::Entry::Occupied(mut readers) = index.entry(key) {
        readers.get_mut().remove(reader);
        if readers.get().is_empty() {
            readers.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selector::Selector;

    struct Seen {
        visible: &'static [u32],
        matched: bool,
        matches: bool,
    }

    impl ChangedObject<u32> for Seen {
        fn is_visible_to(&self, reader: &u32) -> bool {
            self.visible.contains(reader)
        }

        fn matched(&self, _: &CheckedQuery) -> bool {
            self.matched
        }

        fn matches(&self, _: &CheckedQuery) -> bool {
            self.matches
        }

        fn values(&self, path: &FieldPath) -> BTreeSet<String> {
            let labels = path == &FieldPath::label("a");
            labels.then(|| "b".to_owned()).into_iter().collect()
        }
    }

    fn kind() -> Arc<Kind> {
        Arc::new(Kind::new("", "v1", "ConfigMap"))
    }

    fn name(name: &str) -> Name {
        Name::new(Some("a"), name)
    }

    fn query(labels: &str) -> Read {
        let labels = Selector::parse(labels).unwrap();
        Read::Find(
            kind(),
            Arc::new(CheckedQuery {
                labels,
                ..CheckedQuery::default()
            }),
        )
    }

    fn woken(dependencies: &Dependencies<u32>, object: &str, seen: &Seen) -> Vec<u32> {
        dependencies.woken(&kind(), &name(object), seen).into_iter().collect()
    }

    #[test]
    fn a_change_wakes_exactly_those_who_read_the_object_and_see_the_change() {
        let mut dependencies = Dependencies::default();
        for reader in 0..4 {
            dependencies.replace(&reader, BTreeSet::from([Read::Get(kind(), name("x"))]));
        }
        dependencies.replace(&9, BTreeSet::from([Read::Get(kind(), name("y"))]));
        let seen = Seen {
            visible: &[1, 3, 9],
            matched: false,
            matches: false,
        };
        assert_eq!(woken(&dependencies, "x", &seen), [1, 3]);
        assert_eq!(woken(&dependencies, "z", &seen), Vec::<u32>::new());
    }

    #[test]
    fn entering_and_leaving_a_query_wakes_and_changing_within_it_wakes_those_who_see_it() {
        let mut dependencies = Dependencies::default();
        dependencies.replace(&1, BTreeSet::from([query("a=b")]));
        let wakes = |visible, matched, matches| {
            !woken(
                &dependencies,
                "x",
                &Seen {
                    visible,
                    matched,
                    matches,
                },
            )
            .is_empty()
        };
        assert!(wakes(&[], false, true));
        assert!(wakes(&[], true, false));
        assert!(wakes(&[1], true, true));
        assert!(!wakes(&[], true, true));
        assert!(!wakes(&[1], false, false));
    }

    #[test]
    fn an_obstacle_wakes_at_any_change() {
        let mut dependencies = Dependencies::default();
        dependencies.replace(&1, BTreeSet::from([Read::Obstacle(kind(), name("x"))]));
        assert_eq!(
            woken(
                &dependencies,
                "x",
                &Seen {
                    visible: &[],
                    matched: false,
                    matches: false
                }
            ),
            [1]
        );
    }

    #[test]
    fn dependencies_are_replaced_and_leave_nothing_behind() {
        let mut dependencies = Dependencies::default();
        dependencies.replace(
            &1,
            BTreeSet::from([Read::Get(kind(), name("x")), query("a=b"), query("c")]),
        );
        dependencies.replace(&1, BTreeSet::from([Read::Get(kind(), name("y"))]));
        let seen = Seen {
            visible: &[1],
            matched: true,
            matches: true,
        };
        assert_eq!(woken(&dependencies, "x", &seen), Vec::<u32>::new());
        assert_eq!(woken(&dependencies, "y", &seen), [1]);
        dependencies.replace(&2, BTreeSet::from([Read::Get(kind(), name("y"))]));
        dependencies.remove_all(|reader| *reader == 2);
        assert_eq!(woken(&dependencies, "y", &seen), [1]);
        dependencies.remove(&1);
        assert_eq!(dependencies.readers(), 0);
        assert!(dependencies.gets.is_empty() && dependencies.finds.is_empty() && dependencies.obstacles.is_empty());
    }

    #[test]
    fn a_change_is_held_only_against_queries_that_it_may_concern() {
        let mut dependencies = Dependencies::default();
        dependencies.replace(&1, BTreeSet::from([query("a=b")]));
        dependencies.replace(&2, BTreeSet::from([query("a=c")]));
        dependencies.replace(&3, BTreeSet::from([query("a in (b,c)")]));
        dependencies.replace(&4, BTreeSet::from([query("!x")]));
        let seen = Seen {
            visible: &[],
            matched: false,
            matches: true,
        };
        // Seen says that all match: who is left out was not asked.
        assert_eq!(woken(&dependencies, "x", &seen), [1, 3, 4]);
    }

    #[test]
    fn an_index_is_of_use_as_long_as_somebody_asks_by_it() {
        let mut dependencies = Dependencies::default();
        dependencies.replace(&1, BTreeSet::from([query("a=b")]));
        dependencies.replace(&2, BTreeSet::from([query("a=c"), query("!x")]));
        assert_eq!(dependencies.replace(&1, BTreeSet::from([query("a=d")])), []);
        assert_eq!(dependencies.remove(&1), []);
        assert_eq!(dependencies.remove(&2), [(kind(), FieldPath::label("a"))]);
    }
}
