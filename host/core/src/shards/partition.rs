//! Owns whose work an object is: that of the replica that holds its namespace's shard, or that of the leader.

use super::hash::{HashRanges, hash_of};
use crate::key::Name;

/// The part of the work that something belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// What exists once, or cannot be divided: one replica does all of it.
    Leader,
    /// What concerns one namespace, by its hash.
    Namespace(u64),
}

impl Partition {
    /// Of an object of a controller, whose work is divided by namespace or not. A cluster-scoped object is the leader's.
    pub fn of(is_divided: bool, name: &Name) -> Self {
        match &name.namespace {
            Some(namespace) if is_divided => Self::Namespace(hash_of(namespace)),
            _ => Self::Leader,
        }
    }
}

/// The work of one replica.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum OwnedWork {
    /// All of it: the only replica, or the only one that writes.
    #[default]
    All,
    /// What is in these shards, and the leader's part if it leads.
    Part {
        /// The namespaces.
        ranges: HashRanges,
        /// Whether it leads.
        leads: bool,
    },
}

impl OwnedWork {
    /// Nothing yet.
    pub fn none() -> Self {
        Self::Part {
            ranges: HashRanges::default(),
            leads: false,
        }
    }

    /// Whether something is its work.
    pub fn has(&self, partition: Partition) -> bool {
        match (self, partition) {
            (Self::All, _) => true,
            (Self::Part { leads, .. }, Partition::Leader) => *leads,
            (Self::Part { ranges, .. }, Partition::Namespace(hash)) => ranges.contains(hash),
        }
    }
}
