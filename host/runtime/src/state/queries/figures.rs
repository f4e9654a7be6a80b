//! Counts for metrics: takes the lock once and visits no object.

use std::sync::Arc;

use pilothouse_core::Kind;
use tokio::time::Instant;

use crate::lanes::lane::Lane;
use crate::lanes::primary::LaneId;
use crate::queue::Depth;
use crate::state::SharedState;

/// Figures of one lane.
pub struct LaneFigures {
    /// The lane.
    pub lane: Arc<Lane>,
    /// Set if it is open, or closed only because its kind, which is optional, is not served.
    pub is_synced: bool,
    /// Depth of its queue.
    pub depth: Depth,
    /// Number of paused primaries.
    pub paused: usize,
    /// Number of recorded reads, and their size in bytes.
    pub reads: (usize, usize),
}

/// Figures of one kind.
pub struct KindSize {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The objects in the cache.
    pub objects: usize,
    /// Memory that they take, in bytes.
    pub bytes: usize,
    /// Objects in which the server stores other values than were applied.
    pub rewritten: usize,
}

impl SharedState {
    /// Number of paused primaries of a lane, of this replica's work.
    pub fn paused(&self, lane: LaneId) -> u64 {
        self.tables.read().paused.count(lane) as u64
    }

    /// Figures of each lane and kind. The cost does not depend on the number of objects.
    pub fn figures(&self) -> (Vec<LaneFigures>, Vec<KindSize>) {
        let (tables, now) = (self.tables.read(), Instant::now());
        let lanes = tables.lanes.iter().map(|lane| LaneFigures {
            lane: lane.clone(),
            is_synced: tables.queue.is_open(lane.id) || lane.lacks_primary(),
            depth: tables.queue.depth(lane.id, now),
            paused: tables.paused.count(lane.id),
            reads: tables.dependencies.recorded(&lane.id),
        });
        let kinds = tables.store.sizes().map(|(kind, objects, bytes)| KindSize {
            kind: kind.clone(),
            objects,
            bytes,
            rewritten: tables.unpersisted.rewritten(kind),
        });
        (lanes.collect(), kinds.collect())
    }
}
