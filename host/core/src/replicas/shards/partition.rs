//! Decides which replica reconciles an object: the one that holds its namespace's shard, or the leader.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::hash::{HashRanges, hash_of};
use crate::plugin::manifest::{Access, Touch, TouchScope};

/// The division of a controller's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub enum Division {
    /// Divided by the namespace of the primary.
    Namespaces,
    /// No division: the leader does all of it.
    Leader,
}

impl Division {
    /// The division that a controller's declarations allow. Its writes have to be in the primary's own namespace.
    /// Contributions of several primaries cannot be divided, because all claims of a plugin on an object are one
    /// request.
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
    /// All of it: this is the only replica, or the only one that writes.
    #[default]
    All,
    /// The objects in these shards, and the leader's part if it leads.
    Part {
        /// The namespaces.
        ranges: HashRanges,
        /// Set if the replica leads.
        leads: bool,
        /// The division of each controller. A controller that is missing here is not reconciled by any replica yet.
        divisions: Arc<Divisions>,
    },
}

/// The objects of one controller that a replica owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedOf<'a> {
    /// Every object.
    All,
    /// None.
    Nothing,
    /// Those in these namespaces, and cluster-scoped ones if the flag is set (it leads).
    Namespaces(&'a HashRanges, bool),
}

impl OwnedWork {
    /// No work yet.
    pub fn none() -> Self {
        Self::Part {
            ranges: HashRanges::default(),
            leads: false,
            divisions: Arc::default(),
        }
    }

    /// The owned objects of a controller.
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
    /// Reports whether an object in a namespace, or a cluster-scoped one, is owned.
    pub fn has(&self, namespace: Option<&str>) -> bool {
        match (self, namespace) {
            (Self::All, _) => true,
            (Self::Nothing, _) => false,
            (Self::Namespaces(_, leads), None) => *leads,
            (Self::Namespaces(ranges, _), Some(namespace)) => ranges.contains(hash_of(namespace)),
        }
    }
}
