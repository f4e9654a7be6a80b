//! Settles a target: finds out with as few requests as possible which claims can be held. `send` makes requests only if
//! the desired fields differ from the held ones.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::contribution::{self, Claim, ClaimBisection, Leaves, Path, RefusedClaim, Standing, unite};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Retry};

use super::send::SendResult;
use crate::lanes::primary::PrimaryRef;
use crate::state::tables::claims::{SettledTarget, TargetSnapshot, UnpersistedContribution, refusal_fingerprint};

/// Number of restarts because the target was changed meanwhile, before it is left for later.
const MOST_RESTARTS: u32 = 5;

/// Finds out which claims can be held, and applies them.
pub async fn settle(look: TargetSnapshot) -> SettledTarget {
    let mut work = TargetReconcile {
        newest: None,
        wrote: false,
        stays: false,
        held: Leaves::new(),
        overruled: BTreeMap::new(),
        look,
    };
    let mut restarts = 0;
    let failure = loop {
        if let Some(obstacle) = work.look.obstacle() {
            return work.end_for_all(&obstacle, None);
        }
        match work.pass().await {
            PassResult::Done => return work.end(),
            PassResult::Again => {}
            PassResult::Outdated => {
                restarts += 1;
                if restarts > MOST_RESTARTS {
                    let problem = format!("{} changes too often to contribute to it; retrying", work.look.title);
                    break (Failure::cluster(Reason::ClusterUnavailable, problem), Duration::ZERO);
                }
            }
            PassResult::Trouble(failure, wait) => break (*failure, wait),
        }
    };
    let (failure, wait) = failure;
    // The settlement is repeated by itself, so the primaries need not be retried.
    work.end_for_all(&failure.retry(Retry::Change), Some(wait))
}

/// Result of one pass over all claims.
enum PassResult {
    Done,
    /// New facts give other claims another chance.
    Again,
    Outdated,
    Trouble(Box<Failure>, Duration),
}

/// A settlement in progress.
pub struct TargetReconcile {
    /// Its input, updated by responses.
    pub look: TargetSnapshot,
    newest: Option<Arc<CachedObject>>,
    /// Set if something was written.
    pub wrote: bool,
    /// Set if the server does not accept the removal of held fields.
    stays: bool,
    /// Fields held in the target, with the live values.
    pub held: Leaves,
    /// Claims that want another value than the plugin itself sets as the target's owner, each with one such field.
    overruled: BTreeMap<PrimaryRef, Path>,
}

impl TargetReconcile {
    async fn pass(&mut self) -> PassResult {
        self.look_at_live();
        let refused_before = self.look.refused.len();
        let candidates = self.candidates();
        let is_held = |claim: &Claim| {
            claim
                .leaves
                .iter()
                .all(|(path, leaf)| self.held.get(path) == Some(leaf))
        };
        let (held, mut suspects): (Vec<_>, Vec<_>) = candidates.iter().partition(|(_, claim)| is_held(claim));
        suspects.sort_by_key(|(_, claim)| &claim.age);
        let held = held.into_iter().map(|(primary_ref, _)| primary_ref.clone()).collect();
        let suspects = suspects
            .into_iter()
            .map(|(primary_ref, _)| primary_ref.clone())
            .collect();
        let mut narrowing = ClaimBisection::new(held, suspects);
        while let Some(tried) = narrowing.next_try() {
            match self.attempt(&candidates, &tried).await {
                SendResult::Held => narrowing.accepted(),
                SendResult::Conflict(theirs) => {
                    for (primary_ref, failure) in theirs {
                        narrowing.leave_out(&primary_ref);
                        self.look.refused.insert(primary_ref, failure);
                    }
                }
                SendResult::Refused(words, failure) => match narrowing.refused() {
                    RefusedClaim::Unknown => {}
                    RefusedClaim::Claim(primary_ref) => {
                        self.look.refused.insert(primary_ref, *failure);
                    }
                    RefusedClaim::Nobody => return self.keep_all(&words),
                },
                SendResult::Outdated => return PassResult::Outdated,
                SendResult::Trouble(failure, wait) => return PassResult::Trouble(failure, wait),
            }
        }
        if self.look.refused.len() == refused_before {
            return PassResult::Done;
        }
        // Fields to remove were only tried together with rejected claims: now by themselves.
        match self.attempt(&candidates, &narrowing.into_passed()).await {
            SendResult::Held => {}
            SendResult::Conflict(theirs) => {
                self.look.refused.extend(theirs);
                return PassResult::Again;
            }
            SendResult::Refused(words, _) => return self.keep_all(&words),
            SendResult::Outdated => return PassResult::Outdated,
            SendResult::Trouble(failure, wait) => return PassResult::Trouble(failure, wait),
        }
        // A rejected claim blocks no other.
        if self
            .candidates()
            .keys()
            .any(|primary_ref| !candidates.contains_key(primary_ref))
        {
            PassResult::Again
        } else {
            PassResult::Done
        }
    }

    /// Keeps all held fields, because the server rejects the removal of unclaimed ones. Each claim then gets another
    /// chance.
    fn keep_all(&mut self, words: &str) -> PassResult {
        let (plugin, object) = (&*self.look.lane.plugin, &self.look.title);
        if self.stays {
            return PassResult::Done;
        }
        tracing::warn!(
            plugin,
            object,
            problem = words,
            "fields that are no longer claimed cannot be removed; they stay until the object changes"
        );
        self.stays = true;
        self.look.refused.clear();
        PassResult::Again
    }

    /// Claims that the target's owner does not overrule and the server is not known to reject.
    fn usable(&self) -> impl Iterator<Item = (&PrimaryRef, &Claim)> {
        let claims = self.look.claims.iter();
        claims.filter(|(primary_ref, _)| {
            !self.overruled.contains_key(*primary_ref) && !self.look.refused.contains_key(*primary_ref)
        })
    }

    /// Usable claims that do not lose to others.
    fn candidates(&self) -> BTreeMap<PrimaryRef, Claim> {
        let lost = unite(self.usable(), &self.look.holders(&self.held)).lost;
        let winners = self
            .usable()
            .filter(|(primary_ref, _)| !lost.contains_key(*primary_ref));
        winners
            .map(|(primary_ref, claim)| (primary_ref.clone(), claim.clone()))
            .collect()
    }

    /// Updates the held and overruled fields from the live target.
    fn look_at_live(&mut self) {
        self.held = self.look.contributed();
        self.overruled = contribution::overruled(&self.look.claims, &self.look.owned());
    }

    /// All fields that are sent when these claims are tried.
    ///
    /// Held fields that are not tried stay if they may be wanted: by a claim that waits for its try, by one that is
    /// overruled, rejected or has lost another field (a failure prunes nothing), or, until all primaries have answered,
    /// by an unknown one.
    pub fn desired(&self, candidates: &BTreeMap<PrimaryRef, Claim>, tried: &BTreeSet<PrimaryRef>) -> Leaves {
        let holders = self.look.holders(&self.held);
        let tried = candidates
            .iter()
            .filter(|(primary_ref, _)| tried.contains(*primary_ref));
        let mut desired = unite(tried, &Standing::new()).leaves;
        let has = |primary_ref: &PrimaryRef, path: &Path| self.look.claims[primary_ref].leaves.contains_key(path);
        let is_kept = |path: &Path| {
            self.stays
                || holders.contains_key(path.steps())
                || candidates
                    .keys()
                    .chain(self.overruled.keys())
                    .chain(self.look.refused.keys())
                    .any(|primary_ref| has(primary_ref, path))
                || (!self.look.all_known && !self.look.claims.keys().any(|primary_ref| has(primary_ref, path)))
        };
        let kept: Vec<_> = self
            .held
            .iter()
            .filter(|(path, leaf)| desired.get(*path) != Some(*leaf) && is_kept(path))
            .collect();
        contribution::keep(&mut desired, kept);
        desired
    }

    /// Records a new state of the target.
    pub fn know(&mut self, live: Option<Arc<CachedObject>>) {
        self.newest.clone_from(&live);
        self.look.live = live;
        self.look_at_live();
    }

    pub fn unpersisted(&self, desired: &Leaves) -> UnpersistedContribution {
        UnpersistedContribution {
            sent: fingerprint(desired),
            left: fingerprint(&self.held),
        }
    }

    fn end(self) -> SettledTarget {
        let lost = unite(self.usable(), &self.look.holders(&self.held)).lost;
        let result = |primary_ref: &PrimaryRef| {
            if let Some(path) = self.overruled.get(primary_ref) {
                return Err(self.look.owned_otherwise(primary_ref, path));
            }
            if let Some(failure) = self.look.refused.get(primary_ref) {
                return Err(failure.clone());
            }
            let lost = lost.get(primary_ref);
            lost.map_or(Ok(()), |lost| Err(self.look.held_otherwise(primary_ref, lost)))
        };
        let results = self
            .look
            .claims
            .keys()
            .map(|primary_ref| (primary_ref.clone(), result(primary_ref)))
            .collect();
        let standing = self.look.live.as_ref().map_or(0, |live| refusal_fingerprint(live));
        let refused = self
            .look
            .refused
            .iter()
            .map(|(primary_ref, failure)| (primary_ref.clone(), (failure.clone(), standing)))
            .collect();
        let undecided = lost.iter().filter(|(_, lost)| lost.holder.is_none());
        SettledTarget {
            results,
            undecided: undecided.map(|(primary_ref, _)| primary_ref.clone()).collect(),
            refused,
            held: self.held,
            newest: self.newest,
            unpersisted: self.look.unpersisted,
            wrote: self.wrote,
            trouble: None,
        }
    }

    /// Ends with the same failure for all claims; with `trouble`, only for those that are not held.
    fn end_for_all(self, failure: &Failure, trouble: Option<Duration>) -> SettledTarget {
        let is_held = |claim: &Claim| {
            trouble.is_some()
                && claim
                    .leaves
                    .iter()
                    .all(|(path, leaf)| self.held.get(path) == Some(leaf))
        };
        let results = self.look.claims.iter().map(|(primary_ref, claim)| {
            let result = if is_held(claim) { Ok(()) } else { Err(failure.clone()) };
            (primary_ref.clone(), result)
        });
        SettledTarget {
            results: results.collect(),
            undecided: BTreeSet::new(),
            refused: BTreeMap::new(),
            held: self.held,
            newest: self.newest,
            unpersisted: self.look.unpersisted,
            wrote: self.wrote,
            trouble,
        }
    }
}

fn fingerprint(leaves: &Leaves) -> u64 {
    let mut hasher = DefaultHasher::new();
    assemble_text(leaves).hash(&mut hasher);
    hasher.finish()
}

fn assemble_text(leaves: &Leaves) -> String {
    use std::fmt::Write as _;
    let mut text = String::new();
    for (path, leaf) in leaves {
        writeln!(text, "{path} {leaf:?}").expect("writing to a String cannot fail");
    }
    text
}
