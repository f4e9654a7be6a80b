//! Owns what is known of one object that a plugin contributes to: who wants what of it, and what our own last request
//! showed against what the cache has.

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

/// Primaries that wait for the next look at a target to end.
pub type WaitingClaims = Vec<(PrimaryRef, oneshot::Sender<ClaimOutcome>)>;

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimOutcome {
    /// Whether it is held, and why not.
    pub result: Result<(), Failure>,
    /// Whether something was written for it.
    pub wrote: bool,
}

/// One object that a plugin contributes to.
#[derive(Default)]
pub(super) struct ContributionTarget {
    /// Who wants what.
    pub claims: BTreeMap<PrimaryRef, RegisteredClaim>,
    /// What claims that are gone held, while it is not known who claims the rest: nobody need be asked about it.
    pub released: Leaves,
    /// Since when claims wait because it is not known who holds a field.
    pub undecided: Option<Instant>,
    /// The object as our last request showed it, until the cache is as new.
    pub newest: Option<Arc<CachedObject>>,
    /// What was sent and what the server made of it, where that is not the same.
    pub unpersisted: Option<UnpersistedContribution>,
    /// Looks in a row that ended in trouble with the cluster.
    pub troubles: u32,
    /// What nobody asked for.
    pub reverts: RevertLimiter,
    /// When something was last written.
    pub written: Option<Instant>,
    /// Those who wait for the next look to end.
    pub waiters: WaitingClaims,
    /// Primaries that do not run before the cache shows this version.
    pub unseen: Vec<(Box<str>, PrimaryRef)>,
}

/// Fingerprints of what was sent and of what was held afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnpersistedContribution {
    /// What was sent.
    pub sent: u64,
    /// What is held since.
    pub left: u64,
}

/// What one primary wants of a target.
pub(super) struct RegisteredClaim {
    /// The claim.
    pub claim: Claim,
    /// The primary, for messages: `StreamIngress a/b`.
    pub title: Arc<str>,
    /// The primary as it was when the claim was made, until it is told what became of it: its status tells what was
    /// reported of the claim before the host started.
    pub before: Option<Arc<CachedObject>>,
    /// What became of it, as far as its primary was told.
    pub told: Option<Result<(), Failure>>,
    /// Why the server does not take it, and the state of the target (a fingerprint) that this holds for.
    pub refused: Option<(Failure, u64)>,
}

impl ContributionTarget {
    /// Drops the claim of a primary. Returns it.
    pub fn drop_claim(&mut self, primary_ref: &PrimaryRef, is_settled: bool) -> Option<RegisteredClaim> {
        let dropped = self.claims.remove(primary_ref)?;
        if !is_settled {
            let held = dropped.claim.held.iter().flat_map(|held| held.iter());
            self.released
                .extend(held.map(|(path, leaf)| (path.clone(), leaf.clone())));
        }
        Some(dropped)
    }

    /// Whether nothing is wanted of it and nobody waits for it.
    pub fn is_forgettable(&self) -> bool {
        self.claims.is_empty() && self.unseen.is_empty() && self.waiters.is_empty() && self.newest.is_none()
    }

    /// The object as it is best known: as the cache has it, or as our own last request showed it where that is newer.
    pub fn best_known(&self, cached: &Arc<CachedObject>) -> Arc<CachedObject> {
        match &self.newest {
            Some(newest) if is_older(Some(cached), newest) => newest.clone(),
            _ => cached.clone(),
        }
    }
}

/// Whether what is seen of an object is older than what is known.
pub(super) fn is_older(seen: Option<&CachedObject>, newest: &CachedObject) -> bool {
    seen.is_some_and(|seen| seen.uid == newest.uid && !is_as_new(&seen.resource_version, &newest.resource_version))
}

/// Whether a resourceVersion is this one or a later one.
pub(super) fn is_as_new(have: &str, want: &str) -> bool {
    have == want || is_before(want, have)
}
