//! Reads as they are recorded, and the changes that they are compared with.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::kubernetes::key::{Kind, Name};
use crate::kubernetes::path::FieldPath;
use crate::reads::query::CheckedQuery;

/// One read of a reconcile.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Read {
    /// An object by its name, existing or not.
    Get(Arc<Kind>, Name),
    /// The objects that match a query.
    List(Arc<Kind>, Arc<CheckedQuery>),
    /// An object that obstructs a desired one: any change of it counts, visible or not.
    Obstacle(Arc<Kind>, Name),
    /// Some objects of a kind, in place of reads that would take too much memory.
    Some(Arc<Kind>),
    /// Some obstructing objects of a kind, likewise.
    SomeObstacles(Arc<Kind>),
}

impl Read {
    /// The kind that was read.
    pub fn kind(&self) -> &Arc<Kind> {
        match self {
            Self::Get(kind, _)
            | Self::List(kind, _)
            | Self::Obstacle(kind, _)
            | Self::Some(kind)
            | Self::SomeObstacles(kind) => kind,
        }
    }

    /// The coarse read that covers this one: every change that concerns this read concerns it too.
    pub(super) fn coarse(&self) -> Self {
        match self {
            // Queries match visible fields only: an object that enters or leaves a result has changed visibly.
            Self::Get(kind, _) | Self::List(kind, _) | Self::Some(kind) => Self::Some(kind.clone()),
            Self::Obstacle(kind, _) | Self::SomeObstacles(kind) => Self::SomeObstacles(kind.clone()),
        }
    }
}

/// A change of one object, as seen by its possible readers.
pub trait ChangedObject<R: Grouped> {
    /// Reports whether a group sees other bytes than before, also if the object was created or deleted.
    fn is_visible_to(&self, group: &R::Group) -> bool;
    /// Reports whether the object matched a query before the change.
    fn matched(&self, query: &CheckedQuery) -> bool;
    /// Reports whether the object matches a query after the change.
    fn matches(&self, query: &CheckedQuery) -> bool;
    /// The scalars at a path, before and after the change.
    fn values(&self, path: &FieldPath) -> BTreeSet<String>;
}

/// A reader, and the group that it belongs to: its lane.
pub trait Grouped {
    /// Groups have one budget, and their readers see the same fields of each object.
    type Group: Clone + Eq + Hash + Ord;
    /// The reader's group.
    fn group(&self) -> Self::Group;
}
