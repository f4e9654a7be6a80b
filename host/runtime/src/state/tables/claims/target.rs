//! One object that a plugin contributes to: its claims, and how our last response compares with the cache.

use std::collections::BTreeMap;
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::watch::reflector::is_before;
use pilothouse_core::contribution::{Claim, Leaves};
use pilothouse_core::{Failure, Key};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::revert_limiter::RevertLimiter;
use crate::lanes::primary::PrimaryRef;

/// An object that a plugin contributes to: the plugin's name and the object.
pub type TargetId = (Arc<str>, Key);

/// Primaries that wait for the next settlement of a target.
pub type WaitingClaims = Vec<(PrimaryRef, oneshot::Sender<ClaimOutcome>)>;

/// Outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimOutcome {
    /// `Ok` if it is held, otherwise the reason.
    pub result: Result<(), Failure>,
    /// Set if something was written for it.
    pub wrote: bool,
}

/// One object that a plugin contributes to.
#[derive(Default)]
pub(super) struct ContributionTarget {
    /// Its claims.
    pub claims: BTreeMap<PrimaryRef, RegisteredClaim>,
    /// Fields held by dropped claims while not all claims are known: they can be released without waiting for
    /// primaries.
    pub released: Leaves,
    /// Time since which claims wait because the holder of a field is not known.
    pub undecided: Option<Instant>,
    /// The object as our last response showed it, until the cache is as new.
    pub newest: Option<Arc<CachedObject>>,
    /// Fingerprints of what was sent and stored, if these differ.
    pub unpersisted: Option<UnpersistedContribution>,
    /// Settlements in a row that failed because of the cluster.
    pub troubles: u32,
    /// Unrequested writes.
    pub reverts: RevertLimiter,
    /// Time of the last write.
    pub written: Option<Instant>,
    /// Primaries that wait for the next settlement.
    pub waiters: WaitingClaims,
    /// Primaries that do not run before the cache shows this version.
    pub unseen: Vec<(Box<str>, PrimaryRef)>,
}

/// Fingerprints of the fields that were sent and of those held afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpersistedContribution {
    /// Fingerprint of the sent fields.
    pub sent: u64,
    /// Fingerprint of the fields held since.
    pub left: u64,
}

/// Claim of one primary on a target.
pub(super) struct RegisteredClaim {
    /// The claim.
    pub claim: Claim,
    /// The primary, for messages: `StreamIngress a/b`.
    pub title: Arc<str>,
    /// The primary as it was when the claim was made, until the outcome is known: its status shows the outcome that was
    /// reported before the host started.
    pub before: Option<Arc<CachedObject>>,
    /// Outcome that was last reported to its primary.
    pub told: Option<Result<(), Failure>>,
    /// Reason why the server rejects it, and the fingerprint of the target for which that holds.
    pub refused: Option<(Failure, u64)>,
}

impl ContributionTarget {
    /// Drops the claim of a primary, and returns it.
    pub fn drop_claim(&mut self, primary_ref: &PrimaryRef, is_settled: bool) -> Option<RegisteredClaim> {
        let dropped = self.claims.remove(primary_ref)?;
        if !is_settled {
            let held = dropped.claim.held.iter().flat_map(|held| held.iter());
            self.released
                .extend(held.map(|(path, leaf)| (path.clone(), leaf.clone())));
        }
        Some(dropped)
    }

    /// Returns `true` if it has no claims and no waits.
    pub fn is_forgettable(&self) -> bool {
        self.claims.is_empty() && self.unseen.is_empty() && self.waiters.is_empty() && self.newest.is_none()
    }

    /// The newest known version of the object: from the cache, or from our own last response.
    pub fn best_known(&self, cached: &Arc<CachedObject>) -> Arc<CachedObject> {
        match &self.newest {
            Some(newest) if is_older(Some(cached), newest) => newest.clone(),
            _ => cached.clone(),
        }
    }
}

/// Returns `true` if `seen` is older than `newest`.
pub(super) fn is_older(seen: Option<&CachedObject>, newest: &CachedObject) -> bool {
    seen.is_some_and(|seen| seen.uid == newest.uid && !is_as_new(&seen.resource_version, &newest.resource_version))
}

/// Returns `true` if `have` is the resourceVersion `want` or a later one.
pub(super) fn is_as_new(have: &str, want: &str) -> bool {
    have == want || is_before(want, have)
}
