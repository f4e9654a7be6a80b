//! Holds how the cluster serves the kinds that lanes need.

use std::collections::HashMap;

use parking_lot::RwLock;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_core::Kind;

/// Served kinds that are watched; `None`: the cluster does not serve the kind.
#[derive(Debug, Default)]
pub struct ServedKinds(RwLock<HashMap<Kind, Option<ServedKind>>>);

impl ServedKinds {
    /// Returns how a kind is served; `None` if it is not served or not known.
    pub fn get(&self, kind: &Kind) -> Option<ServedKind> {
        self.0.read().get(kind).cloned().flatten()
    }

    /// Returns `true` if discovery found that the cluster does not serve the kind.
    pub fn is_missing(&self, kind: &Kind) -> bool {
        matches!(self.0.read().get(kind), Some(None))
    }

    /// Served kinds of a resource, one for each version.
    pub fn of_resource(&self, plural: &str, group: &str) -> Vec<Kind> {
        let kinds = self.0.read();
        let served = kinds.values().flatten();
        let of_it = served.filter(|served| served.plural == plural && served.kind.group == group);
        of_it.map(|served| (*served.kind).clone()).collect()
    }

    /// Records how a kind is served. Returns `true` if that differs from before.
    pub fn set(&self, kind: &Kind, served: Option<ServedKind>) -> bool {
        let before = self.0.write().insert(kind.clone(), served.clone());
        before != Some(served)
    }

    /// Forgets a kind that no lane needs any more.
    pub fn forget(&self, kind: &Kind) {
        self.0.write().remove(kind);
    }
}
