//! Applies the outcome of a target's settlement: stores it for the next one, answers the waiting primaries, and
//! requeues those whose outcome changed.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::Failure;
use pilothouse_core::contribution::Leaves;
use pilothouse_core::status::backoff;
use pilothouse_core::status::reason::Reason;
use tokio::time::Instant;

use super::registry::Contributions;
use super::target::{ClaimOutcome, TargetId, UnpersistedContribution, WaitingClaims, is_older};
use super::unclaimed::may_claim_soon;
use crate::lanes::primary::PrimaryRef;
use crate::lanes::snapshot::Lanes;
use crate::queue::{Priority, Trigger, TriggerReason, WorkQueue};

/// Upper bound of the delay of a target that is reverted again and again.
const LONGEST_SLOWDOWN: Duration = Duration::from_secs(30);

/// Upper bound of the wait for primaries that may hold the wanted fields, while there are primaries to run.
const LONGEST_UNDECIDED: Duration = Duration::from_secs(30);

/// Interval at which undecided claims are settled again.
const UNDECIDED_STEP: Duration = Duration::from_millis(500);

/// Result of settling a target.
pub struct SettledTarget {
    /// Outcome of each primary's claim.
    pub results: BTreeMap<PrimaryRef, Result<(), Failure>>,
    /// Claims that want a field whose holder is not known yet.
    pub undecided: BTreeSet<PrimaryRef>,
    /// Claims that the server rejects, each with the fingerprint of the target for which that holds.
    pub refused: BTreeMap<PrimaryRef, (Failure, u64)>,
    /// Fields that the plugin contributes, with the live values.
    pub held: Leaves,
    /// The target as our last response showed it.
    pub newest: Option<Arc<CachedObject>>,
    /// Fingerprints of what was sent and stored, if these differ.
    pub unpersisted: Option<UnpersistedContribution>,
    /// Set if something was written.
    pub wrote: bool,
    /// Minimum delay before the settlement is repeated, if it has to be.
    pub trouble: Option<Duration>,
}

/// A settlement that has ended.
pub struct EndedLook {
    /// Claims that it was about. One that changed meanwhile has not been judged.
    pub claims: Vec<(PrimaryRef, Arc<Leaves>)>,
    /// Primaries that waited for it.
    pub waiters: WaitingClaims,
    /// Its result.
    pub settled: SettledTarget,
}

impl Contributions {
    /// Applies the result of a settlement.
    pub fn apply_settlement(
        &mut self,
        store: &Store,
        lanes: &Lanes,
        queue: &mut WorkQueue,
        id: &TargetId,
        look: EndedLook,
    ) {
        let EndedLook {
            claims,
            mut waiters,
            settled,
        } = look;
        let SettledTarget {
            mut results,
            undecided,
            refused,
            held,
            newest,
            unpersisted,
            wrote,
            trouble,
        } = settled;
        let now = Instant::now();
        let Some(target) = self.target_mut(id) else {
            return;
        };
        target.newest = newest;
        target.unpersisted = unpersisted;
        target.troubles = if trouble.is_some() {
            target.troubles.saturating_add(1)
        } else {
            0
        };
        if wrote {
            target.written = Some(now);
            if waiters.is_empty() {
                let limit = |over| backoff::delay(over, seed(id)).min(LONGEST_SLOWDOWN);
                target.reverts.record(now, limit);
            }
        }
        let troubles = target.troubles;
        for (primary_ref, leaves) in &claims {
            let claim = target.claims.get_mut(primary_ref);
            if let Some(claim) = claim.filter(|claim| Arc::ptr_eq(&claim.claim.leaves, leaves)) {
                claim.refused = refused.get(primary_ref).cloned();
                if results.get(primary_ref).is_some_and(Result::is_ok) {
                    claim.claim.held = Some(as_held(leaves, &held));
                }
            }
        }
        if undecided.is_empty() {
            target.undecided = None;
        } else if *target.undecided.get_or_insert(now) + LONGEST_UNDECIDED > now && may_claim_soon(lanes, queue, &id.0)
        {
            // An outcome that differs from the one reported before would soon change again.
            results.retain(|primary_ref, _| !undecided.contains(primary_ref));
            let waiting = waiters.extract_if(.., |(primary_ref, _)| undecided.contains(primary_ref));
            target.waiters.extend(waiting);
            self.target_queue.look_again(id, now + UNDECIDED_STEP);
        }
        let results = results.into_iter();
        let results = results.map(|(primary_ref, result)| (primary_ref, ClaimOutcome { result, wrote }));
        self.report_outcomes(store, queue, id, &results.collect(), waiters, trouble.is_some());
        if let Some(wait) = trouble {
            let wait = backoff::delay(troubles, seed(id)).max(wait);
            self.target_queue.look_again(id, now + wait);
        }
    }

    fn report_outcomes(
        &mut self,
        store: &Store,
        queue: &mut WorkQueue,
        id: &TargetId,
        results: &BTreeMap<PrimaryRef, ClaimOutcome>,
        waiters: WaitingClaims,
        is_undone: bool,
    ) {
        let Some(target) = self.target_mut(id) else {
            return;
        };
        let waiting: HashSet<PrimaryRef> = waiters.iter().map(|(primary_ref, _)| primary_ref.clone()).collect();
        let unseen = target.newest.as_ref().filter(|newest| {
            let cached = store.get(&id.1.kind, &id.1.name);
            is_older(cached.map(|cached| &**cached), newest) && store.is_followed(&id.1.kind, &id.1.name)
        });
        let version = unseen.map(|newest| newest.resource_version.clone());
        let mut target_key = None;
        for (primary_ref, outcome) in results {
            let Some(claim) = target.claims.get_mut(primary_ref) else {
                continue;
            };
            let is_news = claim.told.as_ref() != Some(&outcome.result);
            claim.told = Some(outcome.result.clone());
            let waits_for_others = matches!(&outcome.result, Err(failure) if failure.reason == Reason::Waiting);
            if !is_undone && !waits_for_others {
                claim.before = None;
            }
            let waits = waiting.contains(primary_ref);
            if let Some(version) = version.as_ref().filter(|_| waits || is_news) {
                queue.hold(primary_ref.lane, &primary_ref.name);
                target.unseen.push((version.clone(), primary_ref.clone()));
            }
            if is_news && !waits {
                let trigger = Trigger::of(
                    TriggerReason::ContributionChanged,
                    target_key.get_or_insert_with(|| Arc::new(id.1.clone())).clone(),
                );
                queue.push(primary_ref.lane, &primary_ref.name, Priority::Change, trigger);
            }
        }
        for (primary_ref, tell) in waiters {
            let outcome = results.get(&primary_ref).cloned().unwrap_or(ClaimOutcome {
                result: Ok(()),
                wrote: false,
            });
            // The receiver may have stopped waiting.
            let _ = tell.send(outcome);
        }
    }
}

/// Fields that a claim holds, with the values that the server has stored.
fn as_held(leaves: &Arc<Leaves>, held: &Leaves) -> Arc<Leaves> {
    let live = leaves.keys().filter_map(|path| held.get_key_value(path));
    if live.clone().eq(leaves.iter()) {
        return leaves.clone();
    }
    Arc::new(live.map(|(path, leaf)| (path.clone(), leaf.clone())).collect())
}

/// Seed of the jitter of the back-off, the same in each run.
fn seed(id: &TargetId) -> u64 {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    hasher.finish()
}
