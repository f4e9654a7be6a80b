//! The third stage: checks the answer against the grants, and records the reads of the call as the object's
//! dependencies, also if the call failed. Makes no request.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_core::Failure;
use pilothouse_core::answer::desired::PrimaryName;
use pilothouse_core::answer::{self, CheckedAnswer};
use pilothouse_core::plugin::contract::Outcome;
use pilothouse_core::reads::dependencies::read::Read;

use super::gather::Gathered;
use super::invoke::Invoked;
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::queue::{Cause, TriggerReason};
use crate::state::tables::reads::{ReadFingerprint, Recheck};

/// An answer that may be carried out.
pub struct Validated {
    /// The desired objects.
    pub answer: CheckedAnswer,
    /// Time at which the answer would change without other changes, in milliseconds since the epoch.
    pub wake_at: Option<u64>,
}

impl Validated {
    /// The answer for an object of which nothing is desired.
    pub fn nothing() -> Self {
        Self {
            answer: CheckedAnswer::default(),
            wake_at: None,
        }
    }
}

/// Registers the dependencies and checks the answer.
pub async fn validate(
    host: &HostContext,
    lane: &Arc<Lane>,
    gathered: &Gathered,
    primary_ref: &PrimaryRef,
    invoked: Invoked,
) -> Result<Validated, Failure> {
    let Invoked { result, view, .. } = invoked;
    let wake_at = view.as_ref().and_then(|view| view.wake_at);
    depend(host, lane, primary_ref, view.map(|view| view.reads).unwrap_or_default()).await;
    Ok(Validated {
        answer: check(lane, gathered, result)?,
        wake_at,
    })
}

/// Checks the answer.
pub fn check(lane: &Lane, gathered: &Gathered, result: Result<Outcome, Failure>) -> Result<CheckedAnswer, Failure> {
    let primary = PrimaryName {
        kind: lane.grants.primary(),
        name: &gathered.object.name,
    };
    answer::check(result?, &primary, &lane.grants, &lane.limits, |kind| lane.served(kind))
}

/// Replaces the object's dependencies. If a read has changed since, the object is requeued: no change between the read
/// and this moment has requeued it.
///
/// The compared state is taken from the cache in the same step, and compared without its lock.
async fn depend(
    host: &HostContext,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    reads: BTreeMap<Read, ReadFingerprint>,
) {
    let rechecks = host.state.depend(primary_ref, reads);
    let (quick, slow): (Vec<_>, Vec<_>) = rechecks.into_iter().partition(Recheck::is_quick);
    let mut outdated = quick.iter().any(|recheck| recheck.is_outdated(lane));
    if !outdated && !slow.is_empty() {
        let lane = lane.clone();
        let compared = host
            .blocking
            .run(move || slow.iter().any(|recheck| recheck.is_outdated(&lane)));
        // An unnecessary run does no harm.
        outdated = compared.await.unwrap_or(true);
    }
    if outdated {
        // The host itself may have changed it, for another object.
        host.state
            .requeue(primary_ref, Cause::Ours, TriggerReason::DependencyChanged);
    }
}
