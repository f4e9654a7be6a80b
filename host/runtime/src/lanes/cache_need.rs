//! Decides what the cache has to hold of a kind, so that one watch serves all lanes that need the kind.

use pilothouse_cluster::watch::reflector::Detail;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::reads::reach::Reach;

/// What the cache has to know of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheNeed {
    /// What of each object.
    pub projection: Projection,
    /// Of which objects.
    pub reach: Reach,
    /// Whether whole objects have to be asked for though not all of them is kept: the order of the fields that the host
    /// applied is read from there.
    pub whole: bool,
}

impl CacheNeed {
    /// What is enough for both.
    pub fn union(self, other: &Self) -> Self {
        Self {
            projection: self.projection.union(&other.projection),
            reach: self.reach.union(&other.reach),
            whole: self.whole || other.whole,
        }
    }

    /// Whether a watch for this need is enough for another.
    pub fn covers(&self, other: &Self) -> bool {
        self.projection.covers(&other.projection)
            && self.reach.covers(&other.reach)
            && (self.detail() == other.detail() || self.detail() == Detail::Whole)
    }

    /// What is asked for of each object.
    pub fn detail(&self) -> Detail {
        if self.whole || !self.projection.is_metadata_only() {
            Detail::Whole
        } else {
            Detail::Metadata
        }
    }
}
