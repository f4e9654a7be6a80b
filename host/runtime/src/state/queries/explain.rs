//! Answers people who ask why: what is known of one primary, and which primaries fail. One look under the lock.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::reads::dependencies::read::Read;
use pilothouse_core::{Key, Kind, Name};

use crate::lanes::custody::{Custody, children_of, custody};
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::queue::QueuedObject;
use crate::state::tables::history::{LastingFailure, Revert, Run};
use crate::state::{SharedState, Tables};

/// The most dependencies, children, contributions and others of one primary that are named, of each kind of thing.
const MOST_NAMED: usize = 200;

/// The first of some things, and how many there are in all.
#[derive(Clone, Debug)]
pub struct Named<T> {
    /// The first of them.
    pub first: Vec<T>,
    /// How many there are.
    pub count: usize,
}

impl<T> Named<T> {
    /// How many are not among the first.
    pub fn left_out(&self) -> u64 {
        (self.count - self.first.len()) as u64
    }
}

impl<T> FromIterator<T> for Named<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Self {
        let mut all = all.into_iter();
        let first: Vec<T> = all.by_ref().take(MOST_NAMED).collect();
        let count = first.len() + all.count();
        Self { first, count }
    }
}

/// What one lane knows of a primary.
pub struct Explanation {
    /// The lane.
    pub lane: Arc<Lane>,
    /// Whether the lane runs.
    pub is_open: bool,
    /// Whether the object is this replica's work, where the work is divided among replicas.
    pub is_owned: bool,
    /// The primary as the cache has it; none where it is not there.
    pub object: Option<Arc<CachedObject>>,
    /// Where it is in the queue.
    pub queued: QueuedObject,
    /// Why it fails, if it does.
    pub failure: Option<LastingFailure>,
    /// What its last call has read.
    pub reads: Named<Read>,
    /// Kinds of which every change counts for all primaries of the lane, because there was no room for more.
    pub coarse: Vec<Arc<Kind>>,
    /// The objects that were made for it, and whether each is being deleted.
    pub children: Named<(Key, bool)>,
    /// The objects that it contributes to.
    pub targets: Named<Key>,
    /// Its last runs, the latest first.
    pub runs: Vec<Run>,
    /// What was reverted for it, the latest first.
    pub reverts: Vec<Revert>,
}

/// A primary that fails.
pub struct FailingPrimary {
    /// Its lane.
    pub lane: Arc<Lane>,
    /// The primary.
    pub name: Name,
    /// Why it fails.
    pub failure: LastingFailure,
    /// Where it is in the queue.
    pub queued: QueuedObject,
}

impl SharedState {
    /// What the lanes know of an object that they reconcile.
    pub fn explain(&self, kind: &Kind, name: &Name) -> Vec<Explanation> {
        let tables = self.tables.read();
        let lanes = tables.lanes.of_kind(kind);
        let lanes = lanes.filter(|lane| lane.grants.primary() == kind && lane.selects(name));
        lanes.map(|lane| tables.explain(lane, name)).collect()
    }

    /// The primaries for which an object was made, with their lanes.
    pub fn owners_of(&self, kind: &Kind, name: &Name) -> Vec<(Arc<Lane>, Name)> {
        let tables = self.tables.read();
        let Some(child) = tables.store.get(kind, name) else {
            return Vec::new();
        };
        let owners = tables.lanes.of_kind(kind).filter_map(|lane| {
            let (Custody::Living(owner) | Custody::Orphaned(owner, _)) = custody(&tables.store, lane, child)?;
            Some((lane.clone(), owner))
        });
        owners.collect()
    }

    /// The primaries that fail, as far as it is remembered why.
    pub fn failing(&self) -> Vec<FailingPrimary> {
        let tables = self.tables.read();
        let failing = tables.history.failures.iter().filter_map(|(primary_ref, failure)| {
            Some(FailingPrimary {
                lane: tables.lanes.get(primary_ref.lane)?.clone(),
                name: primary_ref.name.clone(),
                failure: failure.clone(),
                queued: tables.queue.look(primary_ref.lane, &primary_ref.name),
            })
        });
        failing.collect()
    }

    /// How many runs are remembered, and the bytes that they take.
    pub fn remembered_runs(&self) -> (usize, usize) {
        self.tables.read().history.runs.size()
    }

    /// Something that somebody had changed was set again for a primary.
    pub fn note_revert(&self, primary_ref: &PrimaryRef, revert: Revert) {
        self.tables.write().history.reverts.note(primary_ref.clone(), revert);
    }
}

impl Tables {
    fn explain(&self, lane: &Arc<Lane>, name: &Name) -> Explanation {
        let primary_ref = PrimaryRef::new(lane.id, name.clone());
        let object = self.store.get(lane.grants.primary(), name);
        let children = object.into_iter().flat_map(|object| {
            let children = children_of(&self.store, lane, &object.uid);
            children.map(|(served, child)| (Key::new(served.kind, child.name.clone()), child.deleting))
        });
        Explanation {
            lane: lane.clone(),
            is_open: self.queue.is_open(lane.id),
            is_owned: self.queue.owned().of(&lane.title()).has(name.namespace.as_deref()),
            object: object.cloned(),
            queued: self.queue.look(lane.id, name),
            failure: self.history.failures.get(&primary_ref).cloned(),
            reads: self.dependencies.of(&primary_ref).cloned().collect(),
            coarse: self.dependencies.of_everybody(&lane.id).into_iter().cloned().collect(),
            children: children.collect(),
            targets: self
                .contributions
                .targets_of(&lane.plugin, &primary_ref)
                .cloned()
                .collect(),
            runs: self.history.runs.of(&primary_ref).cloned().collect(),
            reverts: self.history.reverts.of(&primary_ref).cloned().collect(),
        }
    }
}
