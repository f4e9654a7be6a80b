//! Counts what there is, for metrics: one look under the lock, at no object.

use std::sync::Arc;

use pilothouse_core::Kind;
use tokio::time::Instant;

use crate::lanes::lane::Lane;
use crate::queue::Depth;
use crate::state::SharedState;

/// What there is of one lane.
pub struct LaneFigures {
    /// The lane.
    pub lane: Arc<Lane>,
    /// Whether it runs.
    pub is_open: bool,
    /// What it has to do.
    pub depth: Depth,
    /// How many reads are recorded, and the bytes that they take.
    pub reads: (usize, usize),
}

/// What there is of one kind.
pub struct KindSize {
    /// The kind.
    pub kind: Arc<Kind>,
    /// The objects in the cache.
    pub objects: usize,
    /// The memory that they take.
    pub bytes: usize,
    /// Those in which the server stores other values than were applied.
    pub rewritten: usize,
}

impl SharedState {
    /// What there is of each lane and of each kind. It costs a look at each of them, however many objects they have.
    pub fn figures(&self) -> (Vec<LaneFigures>, Vec<KindSize>) {
        let (tables, now) = (self.tables.read(), Instant::now());
        let lanes = tables.lanes.iter().map(|lane| LaneFigures {
            lane: lane.clone(),
            is_open: tables.queue.is_open(lane.id),
            depth: tables.queue.depth(lane.id, now),
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
