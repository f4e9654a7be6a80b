//! Explains a primary to people: its recorded state, and which primaries fail. Takes the lock once.

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

/// The most dependencies, children, contributions and other items of one primary that are listed, for each of these.
const MOST_NAMED: usize = 200;

/// The first items of a list, and its length.
#[derive(Clone, Debug)]
pub struct Named<T> {
    /// The first items.
    pub first: Vec<T>,
    /// Number of all items.
    pub count: usize,
}

impl<T> Named<T> {
    /// Number of items that are not listed.
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

/// Recorded state of a primary in one lane.
pub struct Explanation {
    /// The lane.
    pub lane: Arc<Lane>,
    /// Set if the lane is open.
    pub is_open: bool,
    /// Set if the object is this replica's work, if the work is divided among replicas.
    pub is_owned: bool,
    /// The primary as cached; `None` if it does not exist.
    pub object: Option<Arc<CachedObject>>,
    /// State in the queue.
    pub queued: QueuedObject,
    /// Its failure, if it fails.
    pub failure: Option<LastingFailure>,
    /// Reads of its last call.
    pub reads: Named<Read>,
    /// Kinds of which every change requeues all primaries of the lane, because the limit of recorded reads was reached.
    pub coarse: Vec<Arc<Kind>>,
    /// Its children, as cached.
    pub children: Named<(Arc<Kind>, Arc<CachedObject>)>,
    /// The objects that it contributes to.
    pub targets: Named<Key>,
    /// Its last runs, newest first.
    pub runs: Vec<Run>,
    /// Changes of others that were reverted for it, newest first.
    pub reverts: Vec<Revert>,
}

/// A primary that fails.
pub struct FailingPrimary {
    /// Its lane.
    pub lane: Arc<Lane>,
    /// The primary.
    pub name: Name,
    /// Its failure.
    pub failure: LastingFailure,
    /// State in the queue.
    pub queued: QueuedObject,
}

impl SharedState {
    /// Explains an object in each lane that reconciles it.
    pub fn explain(&self, kind: &Kind, name: &Name) -> Vec<Explanation> {
        let tables = self.tables.read();
        let lanes = tables.lanes.of_kind(kind);
        let lanes = lanes.filter(|lane| lane.grants.primary() == kind && lane.selects(name));
        lanes.map(|lane| tables.explain(lane, name)).collect()
    }

    /// Primaries that own an object, with their lanes.
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

    /// Failing primaries, as far as their failures are remembered.
    pub fn failing(&self) -> Vec<FailingPrimary> {
        let tables = self.tables.read();
        let failing = tables.history.failures.iter().filter_map(|(primary_ref, failure)| {
            Some(FailingPrimary {
                lane: tables.lanes.get(primary_ref.lane)?.clone(),
                name: primary_ref.name.clone(),
                failure: failure.clone(),
                queued: tables.queue.state_of(primary_ref.lane, &primary_ref.name),
            })
        });
        failing.collect()
    }

    /// Number of remembered runs, and their size in bytes.
    pub fn remembered_runs(&self) -> (usize, usize) {
        self.tables.read().history.runs.size()
    }

    /// Records that a change of another writer was reverted for a primary.
    pub fn record_revert(&self, primary_ref: &PrimaryRef, revert: Revert) {
        self.tables.write().history.reverts.record(primary_ref.clone(), revert);
    }
}

impl Tables {
    fn explain(&self, lane: &Arc<Lane>, name: &Name) -> Explanation {
        let primary_ref = PrimaryRef::new(lane.id, name.clone());
        let object = self.store.get(lane.grants.primary(), name);
        let children = object.into_iter().flat_map(|object| {
            let children = children_of(&self.store, lane, &object.uid);
            children.map(|(served, child)| (served.kind, child.clone()))
        });
        Explanation {
            lane: lane.clone(),
            is_open: self.queue.is_open(lane.id),
            is_owned: self.queue.owned().of(&lane.title()).has(name.namespace.as_deref()),
            object: object.cloned(),
            queued: self.queue.state_of(lane.id, name),
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
