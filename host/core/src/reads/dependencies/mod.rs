//! Records the reads of each reconcile, and finds the readers to requeue when an object changes.
//!
//! A reader is a primary of one lane. After a reconcile its dependencies are replaced, not added to. The caller decides
//! whether a change is visible to a reader, because lanes see different fields.
//!
//! The memory of each group of readers is bounded ([`budget`]). Beyond it reads become coarser: the reader depends on
//! the whole kind, or, where even that is too much, all readers of its group do. Readers may then be requeued too
//! often, but never too seldom.

pub mod budget;
mod query_readers;

use crate::reads::dependencies::read::{ChangedObject, Grouped, Read};
pub mod read;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::sync::Arc;

#[cfg(doc)]
use self::budget::GROUP_BYTES;
use self::budget::ReadBudget;
use self::query_readers::QueryReaders;
use crate::kubernetes::key::{Kind, Name};
use crate::kubernetes::path::FieldPath;

/// A path by which objects of a kind are looked up.
pub type IndexKey = (Arc<Kind>, FieldPath);

/// The readers to requeue after a change.
#[derive(Debug, PartialEq, Eq)]
pub struct Woken<R: Grouped> {
    /// Readers, each once.
    pub readers: Vec<R>,
    /// Groups whose readers are all to be requeued.
    pub groups: BTreeSet<R::Group>,
}

/// The parts of a change that matter to any reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Set if its visibility to groups matters.
    pub is_read: bool,
    /// Set if it matters whether the object matches queries.
    pub is_queried: bool,
}

/// The reads of all readers, by read object or query.
#[derive(Debug)]
pub struct Dependencies<R: Grouped> {
    reads: HashMap<R, BTreeSet<Read>>,
    gets: HashMap<(Arc<Kind>, Name), BTreeSet<R>>,
    obstacles: HashMap<(Arc<Kind>, Name), BTreeSet<R>>,
    lists: HashMap<Arc<Kind>, QueryReaders<R>>,
    some: HashMap<Arc<Kind>, BTreeSet<R>>,
    some_obstacles: HashMap<Arc<Kind>, BTreeSet<R>>,
    /// Groups that depend on a kind as a whole, because the individual readers are not recorded.
    everybody: HashMap<Arc<Kind>, BTreeSet<R::Group>>,
    everybodys_obstacles: HashMap<Arc<Kind>, BTreeSet<R::Group>>,
    budgets: HashMap<R::Group, ReadBudget>,
}

impl<R: Grouped> Default for Dependencies<R> {
    fn default() -> Self {
        Self {
            reads: HashMap::new(),
            gets: HashMap::new(),
            obstacles: HashMap::new(),
            lists: HashMap::new(),
            some: HashMap::new(),
            some_obstacles: HashMap::new(),
            everybody: HashMap::new(),
            everybodys_obstacles: HashMap::new(),
            budgets: HashMap::new(),
        }
    }
}

impl<R: Grouped + Clone + Eq + Hash + Ord> Dependencies<R> {
    /// Sets the memory limit of a group, in bytes; the default is [`GROUP_BYTES`].
    pub fn allow(&mut self, group: &R::Group, bytes: usize) {
        self.budgets.entry(group.clone()).or_default().most = bytes;
    }

    /// Forgets the coarse dependencies of a group whose readers are all about to be reconciled and recorded again.
    pub fn begin_anew(&mut self, group: &R::Group) {
        for everybody in [&mut self.everybody, &mut self.everybodys_obstacles] {
            everybody.retain(|_, groups| {
                groups.remove(group);
                !groups.is_empty()
            });
        }
    }

    /// Replaces the dependencies of a reader. Returns the indexes that no reader needs any more.
    pub fn replace(&mut self, reader: &R, reads: BTreeSet<Read>) -> Vec<IndexKey> {
        let before = self.reads.remove(reader).unwrap_or_default();
        let budget = self.budgets.entry(reader.group()).or_default();
        budget.release(&before);
        let reads = match budget.reserve(reads) {
            Ok(reads) => reads,
            Err(coarse) => {
                self.depend_together(&reader.group(), coarse);
                BTreeSet::new()
            }
        };
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

    /// Adds one read to the dependencies of a reader.
    pub fn add(&mut self, reader: &R, read: Read) {
        let known = self.reads.get(reader);
        if known.is_some_and(|reads| reads.contains(&read) || reads.contains(&read.coarse())) {
            return;
        }
        let is_first = known.is_none();
        let budget = self.budgets.entry(reader.group()).or_default();
        if budget.reserve_one(&read, is_first) {
            self.link(reader, &read);
            self.reads.entry(reader.clone()).or_default().insert(read);
            return;
        }
        let mut reads = known.cloned().unwrap_or_default();
        reads.insert(read);
        // The indexes of queries that become coarser are kept: the next reader of them needs them again.
        self.replace(reader, reads);
    }

    /// Forgets a reader. Returns the indexes that no reader needs any more.
    pub fn remove(&mut self, reader: &R) -> Vec<IndexKey> {
        self.replace(reader, BTreeSet::new())
    }

    /// Forgets a group with all of its readers. Returns the indexes that no reader needs any more.
    pub fn remove_group(&mut self, group: &R::Group) -> Vec<IndexKey> {
        let gone: Vec<R> = self
            .reads
            .keys()
            .filter(|reader| reader.group() == *group)
            .cloned()
            .collect();
        let unused = gone.iter().flat_map(|reader| self.remove(reader)).collect();
        self.begin_anew(group);
        self.budgets.remove(group);
        unused
    }

    /// The number of recorded reads of a group, and their approximate memory in bytes.
    pub fn recorded(&self, group: &R::Group) -> (usize, usize) {
        let budget = self.budgets.get(group);
        budget.map_or((0, 0), |budget| (budget.reads, budget.used))
    }

    /// The dependencies of a reader, as far as they are recorded for this reader alone.
    pub fn of(&self, reader: &R) -> impl Iterator<Item = &Read> {
        self.reads.get(reader).into_iter().flatten()
    }

    /// The kinds on which a whole group depends, because there was no room to record its readers.
    pub fn of_everybody(&self, group: &R::Group) -> BTreeSet<&Arc<Kind>> {
        let coarse = self.everybody.iter().chain(&self.everybodys_obstacles);
        let of_group = coarse.filter(|(_, groups)| groups.contains(group));
        of_group.map(|(kind, _)| kind).collect()
    }

    /// The number of readers with dependencies.
    pub fn readers(&self) -> usize {
        self.reads.len()
    }

    /// The parts of an object's change that [`Dependencies::woken`] may look up, given the present dependencies.
    pub fn interest(&self, kind: &Arc<Kind>, name: &Name) -> Interest {
        let is_queried = self.lists.contains_key(kind);
        let is_read = is_queried
            || self.some.contains_key(kind)
            || self.everybody.contains_key(kind)
            || self.gets.contains_key(&(kind.clone(), name.clone()));
        Interest { is_read, is_queried }
    }

    /// The readers to requeue after a change of an object.
    pub fn woken(&self, kind: &Arc<Kind>, name: &Name, change: &impl ChangedObject<R>) -> Woken<R> {
        let key = (kind.clone(), name.clone());
        let mut woken: Vec<&R> = Vec::new();
        let sees = |reader: &&R| change.is_visible_to(&reader.group());
        if let Some(getters) = self.gets.get(&key) {
            woken.extend(getters.iter().filter(sees));
        }
        let from_gets = woken.len();
        woken.extend(self.obstacles.get(&key).into_iter().flatten());
        woken.extend(self.some_obstacles.get(kind).into_iter().flatten());
        woken.extend(self.some.get(kind).into_iter().flatten().filter(sees));
        for (query, readers) in self
            .lists
            .get(kind)
            .into_iter()
            .flat_map(|lists| lists.about(name, change))
        {
            match (change.matched(query), change.matches(query)) {
                (false, false) => {}
                (true, true) => woken.extend(readers.iter().filter(sees)),
                _ => woken.extend(readers),
            }
        }
        // Those who read by name are in order and each is there once; that is how thousands depend on one object.
        if woken.len() > from_gets {
            woken.sort_unstable();
            woken.dedup();
        }
        let seeing = self.everybody.get(kind).into_iter().flatten();
        let seeing = seeing.filter(|group| change.is_visible_to(group));
        let hindered = self.everybodys_obstacles.get(kind).into_iter().flatten();
        Woken {
            readers: woken.into_iter().cloned().collect(),
            groups: seeing.chain(hindered).cloned().collect(),
        }
    }

    /// Whom it wakes that the cluster serves a kind: those that depend on obstacles of it.
    pub fn waiting_for(&self, kind: &Arc<Kind>) -> Woken<R> {
        let of_kind = self.obstacles.iter().filter(|((obstacle, _), _)| obstacle == kind);
        let readers = of_kind.map(|(_, readers)| readers).chain(self.some_obstacles.get(kind));
        let readers: BTreeSet<&R> = readers.flatten().collect();
        let groups = self.everybodys_obstacles.get(kind).into_iter().flatten();
        Woken {
            readers: readers.into_iter().cloned().collect(),
            groups: groups.cloned().collect(),
        }
    }

    /// Records the coarse reads for the group as a whole; the reader itself is not recorded.
    fn depend_together(&mut self, group: &R::Group, coarse: BTreeSet<Read>) {
        for read in coarse {
            let everybody = match read {
                Read::Obstacle(..) | Read::SomeObstacles(_) => &mut self.everybodys_obstacles,
                Read::Get(..) | Read::List(..) | Read::Some(_) => &mut self.everybody,
            };
            everybody.entry(read.kind().clone()).or_default().insert(group.clone());
        }
    }

    fn link(&mut self, reader: &R, read: &Read) {
        let readers = match read {
            Read::Get(kind, name) => self.gets.entry((kind.clone(), name.clone())).or_default(),
            Read::Obstacle(kind, name) => self.obstacles.entry((kind.clone(), name.clone())).or_default(),
            Read::Some(kind) => self.some.entry(kind.clone()).or_default(),
            Read::SomeObstacles(kind) => self.some_obstacles.entry(kind.clone()).or_default(),
            Read::List(kind, query) => {
                self.lists.entry(kind.clone()).or_default().link(reader, query);
                return;
            }
        };
        readers.insert(reader.clone());
    }

    /// Removes a reader from a read. Returns the index that no reader needs any more, if any.
    fn unlink(&mut self, reader: &R, read: &Read) -> Option<IndexKey> {
        match read {
            Read::Get(kind, name) => unlink_from(&mut self.gets, (kind.clone(), name.clone()), reader),
            Read::Obstacle(kind, name) => unlink_from(&mut self.obstacles, (kind.clone(), name.clone()), reader),
            Read::Some(kind) => unlink_from(&mut self.some, kind.clone(), reader),
            Read::SomeObstacles(kind) => unlink_from(&mut self.some_obstacles, kind.clone(), reader),
            Read::List(kind, query) => {
                let lists = self.lists.get_mut(kind)?;
                let unused = lists.unlink(reader, query);
                if lists.is_empty() {
                    self.lists.remove(kind);
                }
                return unused.map(|path| (kind.clone(), path));
            }
        }
        None
    }
}

fn unlink_from<K: Eq + Hash, R: Ord>(index: &mut HashMap<K, BTreeSet<R>>, key: K, reader: &R) {
    if let std::collections::hash_map::Entry::Occupied(mut readers) = index.entry(key) {
        readers.get_mut().remove(reader);
        if readers.get().is_empty() {
            readers.remove();
        }
    }
}
