//! Decides what the cache has to hold of a kind, so that one watch serves all lanes that need the kind.

use pilothouse_cluster::watch::reflector::Detail;
use pilothouse_core::kubernetes::path::Projection;
use pilothouse_core::reads::reach::Reach;

/// Content that the cache needs of a kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheNeed {
    /// Fields of each object.
    pub projection: Projection,
    /// Objects that are cached.
    pub reach: Reach,
    /// Set if whole objects are requested although only a part is kept: the host reads the order of the fields that it
    /// applied from them.
    pub whole: bool,
}

impl CacheNeed {
    /// Returns the need that satisfies both.
    pub fn union(self, other: &Self) -> Self {
        Self {
            projection: self.projection.union(&other.projection),
            reach: self.reach.union(&other.reach),
            whole: self.whole || other.whole,
        }
    }

    /// Returns `true` if a watch for this need also satisfies the other.
    pub fn covers(&self, other: &Self) -> bool {
        self.projection.covers(&other.projection)
            && self.reach.covers(&other.reach)
            && (self.detail() == other.detail() || self.detail() == Detail::Whole)
    }

    /// Detail that is requested of each object.
    pub fn detail(&self) -> Detail {
        if self.whole || !self.projection.is_metadata_only() {
            Detail::Whole
        } else {
            Detail::Metadata
        }
    }
}
