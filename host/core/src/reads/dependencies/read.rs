//! Reads as they are recorded, and the changes that they are compared with.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::kubernetes::key::{Kind, Name};
use crate::kubernetes::path::FieldPath;
use crate::reads::query::CheckedQuery;

/// One thing that a reconcile has read.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Read {
    /// An object by its name, there or not.
    Get(Arc<Kind>, Name),
    /// The objects that match a query.
    List(Arc<Kind>, Arc<CheckedQuery>),
    /// An object that stands in the way of a desired one: any change of it counts, seen or not.
    Obstacle(Arc<Kind>, Name),
    /// Some objects of a kind, in place of what would take too much memory.
    Some(Arc<Kind>),
    /// Some objects of a kind that stand in the way, likewise.
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

    /// A read that every change concerns which concerns this one.
    pub(super) fn coarse(&self) -> Self {
        match self {
            // Queries ask by what is shown: what enters or leaves one has changed visibly.
            Self::Get(kind, _) | Self::List(kind, _) | Self::Some(kind) => Self::Some(kind.clone()),
            Self::Obstacle(kind, _) | Self::SomeObstacles(kind) => Self::SomeObstacles(kind.clone()),
        }
    }
}

/// What a change of one object looks like to those who may have read it.
pub trait ChangedObject<R: Grouped> {
    /// Whether a group sees other bytes than before; also when the object came or went.
    fn is_visible_to(&self, group: &R::Group) -> bool;
    /// Whether the object matched a query before the change.
    fn matched(&self, query: &CheckedQuery) -> bool;
    /// Whether the object matches a query after the change.
    fn matches(&self, query: &CheckedQuery) -> bool;
    /// The scalars at a path, before and after the change.
    fn values(&self, path: &FieldPath) -> BTreeSet<String>;
}

/// A reader, and the group that it belongs to: its lane.
pub trait Grouped {
    /// Whose readers see the same of each object, and have one budget.
    type Group: Clone + Eq + Hash + Ord;
    /// The reader's group.
    fn group(&self) -> Self::Group;
}
