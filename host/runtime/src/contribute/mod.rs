//! Owns contributions: fields in other people's objects. A reconcile makes its primary's claims in the [`claims`] and
//! waits for what becomes of them; [`worker`] makes the claims of many primaries into few writes, and [`settle`] finds
//! out which claims the server takes.
//!
//! A primary that waits occupies no worker, so that all that are queued can make their claims before the first write.

mod claims;
mod ending;
mod send;
mod settle;
mod target_queue;
mod target_snapshot;
mod target_state;
mod unclaimed;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::answer::DesiredObject;
use pilothouse_core::contribution::{ClaimAge, Leaves, take_apart};
use pilothouse_core::reason::Reason;
use pilothouse_core::{Failure, Key};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

pub use claims::{Contributions, TargetId, forget_refusals, withdraw};
pub use ending::{Contribution, all_contributed, close_books};
pub use target_state::{forget_unseen, target_changed, watch_ends};
pub use unclaimed::{give_up, lane_goes, lane_opens};
pub use worker::run;

use self::claims::PendingClaims;
use crate::hub::{Hub, PrimaryRef};
use crate::lane::{Lane, metadata};

/// Primaries that wait without a worker at most; more than these keep theirs.
const MOST_WAITING: usize = 2048;

/// Primaries that go on at once after waiting.
const RESUMED_AT_ONCE: usize = 16;

/// What became of a primary's claims.
#[derive(Default)]
pub struct Contributed {
    /// The claims that are not held.
    pub failures: Vec<Failure>,
    /// Whether something was written for it.
    pub wrote: bool,
    /// The primary's turn to go on; given back when this is dropped.
    pub turn: Option<ResumeSlot>,
}

/// Makes the claims of a primary and waits for what becomes of them. `primary` is the object as the plugin saw it.
pub async fn contribute(
    hub: &Arc<Hub>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    primary: &CachedObject,
    desired: Vec<DesiredObject>,
) -> Contributed {
    let mut contributed = Contributed::default();
    if !unclaimed::contributes(lane) && !hub.state.read().contributions.has_claims(lane, primary_ref) {
        return contributed;
    }
    let wanted = match take_all_apart(hub, lane, &desired).await {
        Ok(wanted) => wanted,
        Err(failure) => {
            contributed.failures.push(failure);
            return contributed;
        }
    };
    let age = ClaimAge {
        created: metadata(primary)["creationTimestamp"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        uid: primary.uid.clone(),
    };
    let registered = {
        let mut state = hub.state.write();
        let registered = claims::register(&mut state, lane, primary_ref, &primary.uid, &age, wanted);
        unclaimed::answered(&mut state, lane, primary_ref);
        registered
    };
    hub.claims.notify_one();
    let PendingClaims::Known(mut outcomes, coming) = registered else {
        return contributed;
    };
    if !coming.is_empty() {
        let waiting = Waiting::begin(hub, primary_ref);
        let mut came = Vec::with_capacity(coming.len());
        for outcome in coming {
            came.push(outcome.await);
        }
        contributed.turn = waiting.end().await;
        for outcome in came {
            match outcome {
                Ok(outcome) => outcomes.push(outcome),
                Err(_) => contributed.failures.push(Failure::host(
                    Reason::HostFault,
                    "the host stopped reconciling the target; retrying",
                )),
            }
        }
    }
    for outcome in outcomes {
        contributed.wrote |= outcome.wrote;
        contributed.failures.extend(outcome.result.err());
    }
    contributed
}

/// The fields that are wanted of each object.
pub async fn take_all_apart(
    hub: &Hub,
    lane: &Lane,
    desired: &[DesiredObject],
) -> Result<BTreeMap<Key, Leaves>, Failure> {
    let types = hub.schemas.types(desired.iter().map(|object| &object.kind)).await;
    let types = types.map_err(|error| {
        let problem = format!("cannot contribute anything before the lists of the kinds are known: {error}");
        Failure::cluster(Reason::ClusterUnavailable, problem)
    })?;
    let mut wanted = BTreeMap::new();
    for object in desired {
        let served = lane.served(&object.kind).ok_or_else(|| not_served(&object.title()))?;
        let leaves = types.get(&object.kind).map(|types| take_apart(&object.body, types));
        let leaves = leaves.ok_or_else(|| not_served(&object.title()))?.map_err(|error| {
            let problem = format!("cannot contribute to {}: {error}; fix the plugin", object.title());
            Failure::guest(Reason::InvalidAnswer, problem)
        })?;
        wanted.insert(Key::new(served.kind, object.name.clone()), leaves);
    }
    Ok(wanted)
}

/// The kind has gone since the answer was checked.
fn not_served(title: &str) -> Failure {
    let problem = format!("cannot contribute to {title}: the cluster does not serve its kind any more; retrying");
    Failure::cluster(Reason::NotSynced, problem)
}

/// How many wait, and whose turn it is to go on.
pub struct Waiters {
    count: AtomicUsize,
    turns: Arc<Semaphore>,
}

impl Default for Waiters {
    fn default() -> Self {
        Self {
            count: AtomicUsize::new(0),
            turns: Arc::new(Semaphore::new(RESUMED_AT_ONCE)),
        }
    }
}

/// A primary that waits and leaves its worker to others.
struct Waiting(Option<Parked>);

impl Waiting {
    fn begin(hub: &Arc<Hub>, primary_ref: &PrimaryRef) -> Self {
        if hub.waiters.count.fetch_add(1, Ordering::Relaxed) >= MOST_WAITING {
            hub.waiters.count.fetch_sub(1, Ordering::Relaxed);
            return Self(None);
        }
        hub.state.write().queue.park(primary_ref.lane, &primary_ref.name);
        hub.work.notify_one();
        Self(Some(Parked {
            hub: hub.clone(),
            primary_ref: primary_ref.clone(),
            since: Instant::now(),
        }))
    }

    /// Waits for a turn to go on. Those who kept their worker need none.
    async fn end(self) -> Option<ResumeSlot> {
        let parked = self.0?;
        let turns = parked.hub.waiters.turns.clone();
        let permit = turns.acquire_owned().await.ok();
        Some(ResumeSlot {
            _permit: permit,
            _parked: parked,
        })
    }
}

/// A primary that waited goes on, beside the workers, until this is dropped.
pub struct ResumeSlot {
    _permit: Option<OwnedSemaphorePermit>,
    _parked: Parked,
}

/// A primary's place among those that wait.
struct Parked {
    hub: Arc<Hub>,
    primary_ref: PrimaryRef,
    since: Instant,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.hub.waiters.count.fetch_sub(1, Ordering::Relaxed);
        let mut state = self.hub.state.write();
        state
            .queue
            .unpark(self.primary_ref.lane, &self.primary_ref.name, self.since.elapsed());
    }
}
