//! Owns whose work an object is: that of the replica that holds its namespace's shard, or that of the leader.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hash::{HashRanges, hash_of};
use crate::plugin::manifest::{Access, Touch, TouchScope};

/// How the work of a controller is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Division {
    /// By the namespace of the primary.
    Namespaces,
    /// Not at all: the leader does all of it.
    Leader,
}

impl Division {
    /// Of a controller by what its manifest says that it touches. What it writes has to be in the primary's own namespace, and nothing
    /// that several primaries contribute to can be divided, because all claims of a plugin on an object are one request.
    pub fn of<'a>(touches: impl IntoIterator<Item = &'a Touch>) -> Self {
        let stays = touches.into_iter().all(|touch| {
            let is_written = touch.access.iter().any(|access| *access != Access::Read);
            !touch.access.contains(&Access::Contributed) && (!is_written || touch.scope == TouchScope::Namespace)
        });
        if stays { Self::Namespaces } else { Self::Leader }
    }
}

/// The division of each controller, by `plugin/controller`.
pub type Divisions = BTreeMap<String, Division>;

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
        /// How the work of each controller is divided. That of a controller that is not in here is nobody's yet.
        divisions: Arc<Divisions>,
    },
}

/// What a replica owns of the objects of one controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedOf<'a> {
    /// Every object.
    All,
    /// None.
    Nothing,
    /// Those in these namespaces, and cluster-scoped ones if it leads.
    Namespaces(&'a HashRanges, bool),
}

impl OwnedWork {
    /// Nothing yet.
    pub fn none() -> Self {
        Self::Part {
            ranges: HashRanges::default(),
            leads: false,
            divisions: Arc::default(),
        }
    }

    /// What is owned of a controller's objects.
    pub fn of(&self, controller: &str) -> OwnedOf<'_> {
        let Self::Part {
            ranges,
            leads,
            divisions,
        } = self
        else {
            return OwnedOf::All;
        };
        match divisions.get(controller) {
            Some(Division::Namespaces) => OwnedOf::Namespaces(ranges, *leads),
            Some(Division::Leader) if *leads => OwnedOf::All,
            Some(Division::Leader) | None => OwnedOf::Nothing,
        }
    }
}

impl OwnedOf<'_> {
    /// Whether an object in a namespace, or a cluster-scoped one, is owned.
    pub fn has(&self, namespace: Option<&str>) -> bool {
        match (self, namespace) {
            (Self::All, _) => true,
            (Self::Nothing, _) => false,
            (Self::Namespaces(_, leads), None) => *leads,
            (Self::Namespaces(ranges, _), Some(namespace)) => ranges.contains(hash_of(namespace)),
        }
    }
}
