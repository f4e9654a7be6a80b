//! Carries out contributions: fields in objects that others own. A reconcile registers its primary's claims in
//! [`crate::state::tables::claims`] and waits for their outcomes; [`worker`] combines the claims of many primaries into
//! few writes, and [`settle`] finds out which claims the server accepts.
//!
//! A waiting primary occupies no worker, so that all queued primaries can make their claims before the first write.
//!
//! All claims of a plugin on a target are one body, sent without force, with uid and resourceVersion. Its field manager is another than that
//! of owned objects: where a plugin owns its target, too, neither apply drops the other's fields, and the owner's fields count.
//!
//! 1. **Claim.** A reconcile registers its claims and waits.
//! 2. **Due.** `worker` looks at a target when no more of the plugin's primaries are queued, the last write was 250 ms ago, and the cache
//!    shows the host's own writes of it.
//! 3. **Snapshot.** The target and all claims on it are captured in one moment.
//! 4. **Settle.** All claims are merged, each completely or not at all. Nothing is sent if the plugin's entry with its live values already
//!    equals the result.
//! 5. **Outcome.** The result is kept and wakes the primaries that wait. A primary that does not wait is requeued only if the outcome of
//!    its claim changed.
//!
//! A preview shows the fields that would change as if nothing else claimed them, and not those that are removed with a claim. How a kind is
//! merged is looked up once: if maps or lists of a CRD become atomic while it is served, the host notices when an apply shows the change or
//! the CRD is made anew. Until then claims may be merged wrongly.

mod send;
mod settle;
mod worker;

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::contribution::{ClaimAge, Leaves, take_apart};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Key};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

pub use worker::run;

use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::state::tables::claims::{ClaimRequest, PendingClaims, contributes};

/// Outcome of a primary's claims.
#[derive(Default)]
pub struct Contributed {
    /// Failures of the claims that are not held.
    pub failures: Vec<Failure>,
    /// Set if something was written for it.
    pub wrote: bool,
    /// Slot in which the primary continues; released on drop.
    pub turn: Option<ResumeSlot>,
}

/// Makes the claims of a primary and waits for their outcomes. `primary` is the object as the plugin saw it.
pub async fn contribute(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    primary: &CachedObject,
    desired: Vec<DesiredObject>,
) -> Contributed {
    let mut contributed = Contributed::default();
    if !contributes(lane) && !host.state.has_claims(lane, primary_ref) {
        return contributed;
    }
    let wanted = match take_all_apart(host, lane, &desired).await {
        Ok(wanted) => wanted,
        Err(failure) => {
            contributed.failures.push(failure);
            return contributed;
        }
    };
    let age = ClaimAge {
        created: primary.value()["metadata"]["creationTimestamp"]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
        uid: primary.uid.clone(),
    };
    let request = ClaimRequest {
        primary_ref,
        uid: &primary.uid,
        title: format!("{} {}", lane.grants.primary().kind, primary_ref.name).into(),
        age,
        wanted,
    };
    let registered = host.state.make_claims(lane, request);
    let PendingClaims::Known(mut outcomes, coming) = registered else {
        return contributed;
    };
    if !coming.is_empty() {
        let waiting = Waiting::begin(host, primary_ref);
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

/// Wanted fields of each object.
pub async fn take_all_apart(
    host: &HostContext,
    lane: &Lane,
    desired: &[DesiredObject],
) -> Result<BTreeMap<Key, Leaves>, Failure> {
    let types = host.schemas.types(desired.iter().map(DesiredObject::kind)).await;
    let types = types.map_err(|error| {
        let problem = format!("cannot contribute anything before the lists of the kinds are known: {error}");
        Failure::cluster(Reason::ClusterUnavailable, problem)
    })?;
    let mut wanted = BTreeMap::new();
    for object in desired {
        if lane.served(object.kind()).is_none() {
            return Err(not_served(&object.title()));
        }
        let leaves = types.get(object.kind()).map(|types| take_apart(&object.body, types));
        let leaves = leaves.ok_or_else(|| not_served(&object.title()))?.map_err(|error| {
            let problem = format!("cannot contribute to {}: {error}; fix the plugin", object.title());
            Failure::guest(Reason::InvalidAnswer, problem)
        })?;
        wanted.insert(Key::new(object.served.kind.clone(), object.name.clone()), leaves);
    }
    Ok(wanted)
}

/// The failure for a kind that is no longer served since the answer was checked.
fn not_served(title: &str) -> Failure {
    let problem = format!("cannot contribute to {title}: the cluster does not serve its kind any more; retrying");
    Failure::cluster(Reason::NotSynced, problem)
}

/// A waiting primary, which leaves its worker to others until this is dropped.
pub struct Waiting(Option<Parked>);

impl Waiting {
    /// Begins to wait. If too many wait already, the primary keeps its worker.
    pub fn begin(host: &Arc<HostContext>, primary_ref: &PrimaryRef) -> Self {
        if !host.resume_slots.begin() {
            return Self(None);
        }
        host.state.park(primary_ref);
        Self(Some(Parked {
            host: host.clone(),
            primary_ref: primary_ref.clone(),
            since: Instant::now(),
        }))
    }

    /// Waits for a slot to continue. A primary that kept its worker needs none.
    async fn end(self) -> Option<ResumeSlot> {
        let parked = self.0?;
        let permit = parked.host.resume_slots.turn().await;
        Some(ResumeSlot {
            _permit: permit,
            _parked: parked,
        })
    }
}

/// Slot of a primary that continues after a wait, beside the workers, until this is dropped.
pub struct ResumeSlot {
    _permit: Option<OwnedSemaphorePermit>,
    _parked: Parked,
}

/// Place of a primary among the waiting ones.
struct Parked {
    host: Arc<HostContext>,
    primary_ref: PrimaryRef,
    since: Instant,
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.host.resume_slots.end();
        self.host.state.unpark(&self.primary_ref, self.since.elapsed());
    }
}
