//! The shared state, behind the host's only lock: the cache, the recorded reads, the lanes, the work queue, the claims,
//! and the host's own unconfirmed writes.
//!
//! These change together, because a race between any two of them is a missed wake-up. An object that changes between a
//! read and the record of that read would requeue nobody; a lane that opens between the creation of a primary and its
//! routing would never reconcile it; a write whose echo arrives before it is awaited would be awaited for ever. So each
//! operation here is one step. It takes the lock once, holds it while it looks up and moves entries, and leaves
//! parsing, comparing and logging to its caller. Each table is in a module of its own; the tables are private to this
//! folder.
//!
//! `observe` applies watch events, and `route` decides which primaries they requeue. `lanes` opens, replaces and closes
//! lanes, `ownership` takes over and gives up shards, `jobs` hands out and ends reconciles, `reads` answers and records
//! reads of plugins, `writes` follows the host's own writes, and `claims` gives access to the registry of claims. In
//! `queries`, `snapshot` reads the cache, `leftovers` finds what earlier versions of a plugin made, `orphaned` finds
//! what a primary leaves behind, `waits` lists pending waits, `figures` counts for metrics, and `explain` answers why
//! an object was or was not reconciled.
//!
//! A change of an object (`route`) requeues
//!
//! - the primary itself, if what its lane sees of it changed, it was created, deleted, paused or resumed, a reconcile of it was
//!   requested, or others changed its status;
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

use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::snapshot::Lanes;
use crate::queue::{Capacity, WorkQueue};
use crate::state::lock::StateLock;
use crate::state::tables::claims::Contributions;
use crate::state::tables::competing_waits::CompetingPluginWaits;
use crate::state::tables::earlier_desires::EarlierDesires;
use crate::state::tables::echo::OwnWrites;
use crate::state::tables::history::History;
use crate::state::tables::namespace_waits::NamespaceWaits;
use crate::state::tables::orphans::Orphans;
use crate::state::tables::paused::PausedPrimaries;
use crate::state::tables::refusals::Refusals;
use crate::state::tables::unpersisted::UnpersistedApplies;

pub use crate::state::queries::explain::{Explanation, FailingPrimary};
pub use crate::state::queries::figures::{KindSize, LaneFigures};
pub use crate::state::queries::orphaned::{LeftChild, LeftChildren};
pub use crate::state::queries::snapshot::{DiffSnapshot, ObjectSnapshot, OwnerSnapshot};
pub use crate::state::queries::waits::PendingWait;
pub use lanes::{KindsOfLane, LaneChange, LaneObstacle};

/// The shared state.
pub struct SharedState {
    tables: StateLock<Tables>,
    /// Notified whenever a job may be ready.
    work: Notify,
    /// Notified whenever a target of contributions may be due.
    claims: Notify,
    /// Notified whenever a job has ended.
    ended: Notify,
    /// Notified whenever a primary begins to wait for a namespace.
    namespaces: Notify,
}

/// State behind the lock.
struct Tables {
    /// The cache.
    store: Store,
    /// Recorded reads of each primary.
    dependencies: Dependencies<PrimaryRef>,
    /// Work queue of all lanes.
    queue: WorkQueue,
    /// The lanes. A lane that is replaced keeps its number, and with it its queued objects and recorded reads.
    lanes: Lanes,
    /// Lanes that are closed for good.
    leaving: HashSet<LaneId>,
    /// Number of primaries that each open lane reconciles: counted when it opens, and updated by `route`.
    selected: HashMap<LaneId, usize>,
    /// Own writes that the cache does not show yet.
    own_writes: OwnWrites,
    /// Applied children and statuses that the server stores differently.
    unpersisted: UnpersistedApplies,
    /// Claims on fields of shared objects.
    contributions: Contributions,
    /// Bodies that the server has rejected permanently.
    refusals: Refusals,
    /// Primaries that wait because another plugin applies the same object.
    competing_waits: CompetingPluginWaits,
    /// Primaries that wait for a namespace.
    namespace_waits: NamespaceWaits,
    /// Objects that the last answer for each primary desired.
    earlier_desires: EarlierDesires,
    /// Children without a living owner, and lost children.
    orphans: Orphans,
    /// Primaries that are paused.
    paused: PausedPrimaries,
    /// Changes that plugins in preview would make.
    previews: Previews<PrimaryRef>,
    /// Records of earlier reconciles, for people.
    history: History,
}

impl SharedState {
    /// Makes an empty state.
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
                paused: PausedPrimaries::default(),
                previews: Previews::of_at_most(MAX_PRIMARIES),
                history: History::default(),
            }),
            work: Notify::new(),
            claims: Notify::new(),
            ended: Notify::new(),
            namespaces: Notify::new(),
        }
    }

    /// Waits until a job may be ready.
    pub async fn wait_for_work(&self) {
        self.work.notified().await;
    }

    /// Waits until a target of contributions may be due.
    pub async fn wait_for_claims(&self) {
        self.claims.notified().await;
    }

    /// Wakes all waiting tasks, after a change outside of these operations.
    pub fn notify_all(&self) {
        self.work.notify_one();
        self.claims.notify_one();
    }
}
