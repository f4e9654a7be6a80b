//! Owns what is known of how the cluster serves the kinds that lanes need.

use std::collections::HashMap;

use parking_lot::RwLock;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_core::Kind;

/// How the cluster serves the kinds that are watched.
#[derive(Debug, Default)]
pub struct ServedKinds(RwLock<HashMap<Kind, Option<ServedKind>>>);

impl ServedKinds {
    /// How a kind is served; none if it is not, or not known to be.
    pub fn get(&self, kind: &Kind) -> Option<ServedKind> {
        self.0.read().get(kind).cloned().flatten()
    }

    /// Whether the cluster was asked and does not serve the kind.
    pub fn is_missing(&self, kind: &Kind) -> bool {
        matches!(self.0.read().get(kind), Some(None))
    }

    /// The kinds of a resource that are served, each version for itself.
    pub fn of_resource(&self, plural: &str, group: &str) -> Vec<Kind> {
        let kinds = self.0.read();
        let served = kinds.values().flatten();
        let of_it = served.filter(|served| served.plural == plural && served.kind.group == group);
        of_it.map(|served| (*served.kind).clone()).collect()
    }

    /// Says whether that is news.
    pub fn set(&self, kind: &Kind, served: Option<ServedKind>) -> bool {
        let before = self.0.write().insert(kind.clone(), served.clone());
        before != Some(served)
    }

    /// Nobody asks for the kind any more.
    pub fn forget(&self, kind: &Kind) {
        self.0.write().remove(kind);
    }
}
