//! Owns the shared state, behind the one lock of the host: the cache, who has read what, the lanes, the work queue, the
//! claims, and what is remembered of our own writes.
//!
//! These change together, because between any two of them every race is a missed wake-up. An object that changes
//! between a read of it and the record of that read would wake nobody; a lane that opens between a primary's coming and
//! its routing would never reconcile it; a write whose echo comes before it is awaited would be awaited for ever. So
//! each operation here is one step. It takes the lock once, holds it while it looks up and moves entries, and leaves
//! parsing, comparing and logging to its caller. What each table does by itself is in its own module; the tables are
//! private to this folder.
//!
//! `observe` takes in what watches see, and `route` decides which primaries that concerns. `lanes` opens, replaces and
//! closes lanes, `ownership` takes up and gives up shards, `jobs` hands out and ends reconciles, `reads` answers and records what plugins read, `writes` follows
//! our own writes, `claims` leads to the registry of claims, `snapshot` answers questions about the cache, `leftovers`
//! those about what earlier versions of a plugin made, `orphaned` those about what a primary leaves behind, `waits` lists what waits for something, `figures` counts what there
//! is, and `explain` answers people who ask why.
//!
//! A change of an object (`route`) requeues
//!
//! - the primary itself, if what its lane sees of it changed, it was created or deleted, or others changed its status;
//! - the owner of a child, if its controller, the host's entry, its digest or its deletion changed, and not by the host's own write;
//! - the primaries that read it by `get`, if their visible bytes changed, whether it was there or not;
//! - the primaries whose query it entered or left, or within which it changed visibly;
//! - the primaries in whose way it stands (`Read::Obstacle`), after any change, and those that wait for a namespace that has come.
//!
//! It also tells the claims on the object, which decide whether the target is looked at again.
//!
//! **Read-your-writes.** Each write is recorded before it is sent, and after the response the resourceVersion or deletion to wait for. The
//! queue holds the primary, without occupying a worker, until a watch shows exactly that write: the *echo*. An echo is no drift, and wakes the
//! writer only if the server made something visible of the write. The wait ends with the watch, or with a complete list that
//! shows it to be obsolete.

mod claims;
mod jobs;
mod lanes;
pub mod lock;
mod observe;
mod ownership;
pub mod queries;
mod reads;
mod route;
pub mod tables;
#[cfg(test)]
mod tests;
mod writes;

use std::collections::{HashMap, HashSet};

use pilothouse_cluster::cache::store::Store;
use pilothouse_core::diff::preview::{MAX_PRIMARIES, Previews};
use pilothouse_core::reads::dependencies::Dependencies;
use tokio::sync::Notify;

use crate::context::competing_plugins::CompetingPluginWaits;
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::snapshot::Lanes;
use crate::queue::{Capacity, WorkQueue};
use crate::state::lock::StateLock;
use crate::state::tables::claims::Contributions;
use crate::state::tables::earlier_desires::EarlierDesires;
use crate::state::tables::echo::OwnWrites;
use crate::state::tables::history::History;
use crate::state::tables::namespace_waits::NamespaceWaits;
use crate::state::tables::orphans::Orphans;
use crate::state::tables::refusals::Refusals;
use crate::state::tables::unpersisted::UnpersistedApplies;

pub use crate::state::queries::explain::{Explanation, FailingPrimary};
pub use crate::state::queries::figures::{KindSize, LaneFigures};
pub use crate::state::queries::orphaned::{LeftChild, LeftChildren};
pub use crate::state::queries::snapshot::{DiffSnapshot, ObjectSnapshot, OwnerSnapshot};
pub use crate::state::queries::waits::PendingWait;
pub use lanes::{KindsOfLane, LaneChange, LaneObstacle};
pub use ownership::WorkCount;

/// The shared state.
pub struct SharedState {
    tables: StateLock<Tables>,
    /// Told whenever the queue may have something to do.
    work: Notify,
    /// Told whenever there may be something to contribute.
    claims: Notify,
    /// Told whenever a job has ended.
    ended: Notify,
    /// Told whenever a primary begins to wait for a namespace.
    namespaces: Notify,
}

/// What the lock guards.
struct Tables {
    /// The cache.
    store: Store,
    /// Who has read what.
    dependencies: Dependencies<PrimaryRef>,
    /// What is to be done.
    queue: WorkQueue,
    /// Whose work it is. A lane that is replaced keeps its number, and with it what is queued and what was read.
    lanes: Lanes,
    /// Lanes that will not open again.
    leaving: HashSet<LaneId>,
    /// How many primaries each open lane reconciles: counted when it opens, and kept by `route`.
    selected: HashMap<LaneId, usize>,
    /// Writes of ours that the cache has not seen yet.
    own_writes: OwnWrites,
    /// Children and statuses that the server does not hold as they were applied.
    unpersisted: UnpersistedApplies,
    /// Who contributes what to which object.
    contributions: Contributions,
    /// Bodies that the server refuses for good.
    refusals: Refusals,
    /// Who waits because another plugin applies what is desired.
    competing_waits: CompetingPluginWaits,
    /// Who waits for a namespace.
    namespace_waits: NamespaceWaits,
    /// What the last answer for each primary asked for.
    earlier_desires: EarlierDesires,
    /// Whose children need a look.
    orphans: Orphans,
    /// What plugins that are in preview would do.
    previews: Previews<PrimaryRef>,
    /// What people are told of earlier reconciles.
    history: History,
}

impl SharedState {
    /// Nothing is known and nothing is to be done.
    pub fn new(capacity: Capacity) -> Self {
        Self {
            tables: StateLock::new(Tables {
                store: Store::default(),
                dependencies: Dependencies::default(),
                queue: WorkQueue::new(capacity),
                lanes: Lanes::default(),
                leaving: HashSet::new(),
                selected: HashMap::new(),
                own_writes: OwnWrites::default(),
                unpersisted: UnpersistedApplies::default(),
                contributions: Contributions::default(),
                refusals: Refusals::default(),
                competing_waits: CompetingPluginWaits::default(),
                namespace_waits: NamespaceWaits::default(),
                earlier_desires: EarlierDesires::default(),
                orphans: Orphans::default(),
                previews: Previews::of_at_most(MAX_PRIMARIES),
                history: History::default(),
            }),
            work: Notify::new(),
            claims: Notify::new(),
            ended: Notify::new(),
            namespaces: Notify::new(),
        }
    }

    /// Waits until the queue may have something to do.
    pub async fn work_comes(&self) {
        self.work.notified().await;
    }

    /// Waits until there may be something to contribute.
    pub async fn claims_come(&self) {
        self.claims.notified().await;
    }

    /// Something has changed that no operation here has told of.
    pub fn tell_all(&self) {
        self.work.notify_one();
        self.claims.notify_one();
    }
}
