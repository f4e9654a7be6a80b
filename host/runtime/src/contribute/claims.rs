//! Owns the claims of all primaries: which fields each wants of which object, and the outcome. Changed under the hub's
//! lock, together with the cache and the queue. Makes no request.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::contribution::{Claim, ClaimAge, Leaves};
use pilothouse_core::{Failure, Key, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::target_queue::{RevertLimiter, TargetQueue};
use super::target_state::is_older;
use super::unclaimed::answered;
use crate::hub::{HostState, PrimaryRef};
use crate::lane::Lane;
use crate::queue::Priority;

/// An object that a plugin contributes to: the plugin's name and the object.
pub type TargetId = (Arc<str>, Key);

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimOutcome {
    /// Whether it is held, and why not.
    pub result: Result<(), Failure>,
    /// Whether something was written for it.
    pub wrote: bool,
}

/// The claims of all plugins.
#[derive(Default)]
pub struct Contributions {
    pub(super) plugins: HashMap<Arc<str>, PluginClaims>,
    /// Which targets are to be looked at.
    pub target_queue: TargetQueue,
}

/// The claims of one plugin.
#[derive(Default)]
pub(super) struct PluginClaims {
    pub targets: HashMap<Key, ContributionTarget>,
    pub by_primary: HashMap<PrimaryRef, BTreeSet<Key>>,
    /// Primaries that were there when their lane opened and have not answered since. What is held without a claim may
    /// be theirs.
    pub waited_for: BTreeSet<PrimaryRef>,
    /// Whether all of them have answered, so that what nobody claims is nobody's.
    pub settled: bool,
}

/// One object that a plugin contributes to.
#[derive(Default)]
pub struct ContributionTarget {
    /// Who wants what.
    pub claims: BTreeMap<PrimaryRef, RegisteredClaim>,
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
    pub waiters: Vec<(PrimaryRef, oneshot::Sender<ClaimOutcome>)>,
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
pub struct RegisteredClaim {
    /// The claim.
    pub claim: Claim,
    /// The primary, for messages: `StreamIngress a/b`.
    pub title: Arc<str>,
    /// What became of it, as far as its primary was told.
    pub told: Option<Result<(), Failure>>,
    /// Why the server does not take it, and the state of the target (a fingerprint) that this holds for.
    pub refused: Option<(Failure, u64)>,
}

/// What has to be waited for after claims were made.
pub enum PendingClaims {
    /// The primary is not there any more.
    Gone,
    /// What is known already, and what is still to come.
    Known(Vec<ClaimOutcome>, Vec<oneshot::Receiver<ClaimOutcome>>),
}

impl Contributions {
    /// The primaries of a plugin that have to answer before fields that nobody claims are given up.
    pub fn waited_for(&self, plugin: &str) -> impl Iterator<Item = &PrimaryRef> {
        self.plugins.get(plugin).into_iter().flat_map(|book| &book.waited_for)
    }

    /// Whether a primary has claims.
    pub fn has_claims(&self, lane: &Lane, primary_ref: &PrimaryRef) -> bool {
        let book = self.plugins.get(&lane.plugin);
        book.is_some_and(|book| book.by_primary.contains_key(primary_ref))
    }

    /// A target and what is known of its plugin: whether everybody has answered.
    pub fn target(&mut self, id: &TargetId) -> Option<(&mut ContributionTarget, bool)> {
        let book = self.plugins.get_mut(&id.0)?;
        Some((book.targets.get_mut(&id.1)?, book.settled))
    }

    /// Who waits for the cache to show which version of a target.
    pub fn unseen(&self) -> impl Iterator<Item = (TargetId, &str, &PrimaryRef)> {
        self.targets().flat_map(|(plugin, key, target)| {
            let unseen = target.unseen.iter();
            unseen.map(|(version, primary_ref)| ((plugin.clone(), key.clone()), &**version, primary_ref))
        })
    }

    /// The targets whose next look somebody waits for.
    pub fn waited_for_looks(&self) -> impl Iterator<Item = TargetId> {
        let waited_for = self.targets().filter(|(_, _, target)| !target.waiters.is_empty());
        waited_for.map(|(plugin, key, _)| (plugin.clone(), key.clone()))
    }

    fn targets(&self) -> impl Iterator<Item = (&Arc<str>, &Key, &ContributionTarget)> {
        let books = self.plugins.iter();
        books.flat_map(|(plugin, book)| book.targets.iter().map(move |(key, target)| (plugin, key, target)))
    }

    /// A target has been looked at.
    pub fn done(&mut self, id: &TargetId) {
        self.target_queue.done(id);
        self.tidy(id);
    }

    /// Forgets a target of which nothing is wanted and nothing is to come.
    pub(super) fn tidy(&mut self, id: &TargetId) {
        if self.target_queue.has(id) {
            return;
        }
        let Some(book) = self.plugins.get_mut(&id.0) else {
            return;
        };
        let is_empty = |target: &ContributionTarget| {
            target.claims.is_empty() && target.unseen.is_empty() && target.waiters.is_empty() && target.newest.is_none()
        };
        if book.targets.get(&id.1).is_some_and(is_empty) {
            book.targets.remove(&id.1);
        }
    }
}

impl ContributionTarget {
    /// Those who wait for the next look to end.
    pub fn take_waiters(&mut self) -> Vec<(PrimaryRef, oneshot::Sender<ClaimOutcome>)> {
        std::mem::take(&mut self.waiters)
    }
}

/// Makes the claims of a primary: all that it wants, by target. What it wanted before and does not want now goes.
pub fn register(
    state: &mut HostState,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    uid: &str,
    age: &ClaimAge,
    wanted: BTreeMap<Key, Leaves>,
) -> PendingClaims {
    let primary = state.store.get(lane.grants.primary(), &primary_ref.name);
    if primary.is_none_or(|primary| &*primary.uid != uid) {
        return PendingClaims::Gone;
    }
    let books = &mut state.contributions;
    let book = books.plugins.entry(lane.plugin.clone()).or_default();
    let keys: BTreeSet<Key> = wanted.keys().cloned().collect();
    let before = if keys.is_empty() {
        book.by_primary.remove(primary_ref)
    } else {
        book.by_primary.insert(primary_ref.clone(), keys.clone())
    };
    let mut marked = Vec::new();
    for gone in before.unwrap_or_default().difference(&keys) {
        if let Some(target) = book.targets.get_mut(gone) {
            target.claims.remove(primary_ref);
            marked.push((lane.plugin.clone(), gone.clone()));
        }
    }
    let (mut known, mut coming) = (Vec::new(), Vec::new());
    for (key, leaves) in wanted {
        let id = (lane.plugin.clone(), key);
        let target = book.targets.entry(id.1.clone()).or_default();
        let is_looked_at = books.target_queue.has_now(&id);
        match target.claims.get_mut(primary_ref) {
            Some(before) if *before.claim.leaves == leaves && before.claim.age == *age => {
                if let (false, Some(told)) = (is_looked_at, &before.told) {
                    known.push(ClaimOutcome {
                        result: told.clone(),
                        wrote: false,
                    });
                    continue;
                }
            }
            _ => {
                let wanted = RegisteredClaim {
                    claim: Claim {
                        age: age.clone(),
                        leaves: Arc::new(leaves),
                    },
                    title: format!("{} {}", lane.grants.primary().kind, primary_ref.name).into(),
                    told: None,
                    refused: None,
                };
                target.claims.insert(primary_ref.clone(), wanted);
            }
        }
        let (tell, told) = oneshot::channel();
        target.waiters.push((primary_ref.clone(), tell));
        coming.push(told);
        marked.push(id);
    }
    for id in marked {
        books.target_queue.mark(id);
    }
    PendingClaims::Known(known, coming)
}

/// What refused claims on objects of a kind is another than it was: they have another chance. Says whether there were any.
pub fn forget_refusals(state: &mut HostState, kind: &Kind) -> bool {
    let Contributions { plugins, target_queue } = &mut state.contributions;
    let mut any = false;
    for (plugin, book) in plugins {
        for (key, target) in book.targets.iter_mut().filter(|(key, _)| *key.kind == *kind) {
            let refused = target
                .claims
                .values_mut()
                .filter_map(|wanted| wanted.refused.take())
                .count();
            if refused > 0 {
                target_queue.mark((plugin.clone(), key.clone()));
                any = true;
            }
        }
    }
    any
}

/// A primary is gone, or is reconciled no more: its claims go.
pub fn withdraw(state: &mut HostState, lane: &Lane, primary_ref: &PrimaryRef) {
    let books = &mut state.contributions;
    if let Some(book) = books.plugins.get_mut(&lane.plugin) {
        let keys = book.by_primary.remove(primary_ref).unwrap_or_default();
        for key in &keys {
            if let Some(target) = book.targets.get_mut(key) {
                target.claims.remove(primary_ref);
            }
        }
        for key in keys {
            books.target_queue.mark((lane.plugin.clone(), key));
        }
    }
    answered(state, lane, primary_ref);
}

/// What became of a look at a target is told: to those who wait, and to those for whom it is news.
pub fn tell(
    state: &mut HostState,
    id: &TargetId,
    results: &BTreeMap<PrimaryRef, ClaimOutcome>,
    waiters: Vec<(PrimaryRef, oneshot::Sender<ClaimOutcome>)>,
) {
    let HostState {
        contributions,
        queue,
        store,
        ..
    } = state;
    let Some((target, _)) = contributions.target(id) else {
        return;
    };
    let waiting: HashSet<PrimaryRef> = waiters.iter().map(|(primary_ref, _)| primary_ref.clone()).collect();
    let unseen = target.newest.as_ref().filter(|newest| {
        let cached = store.get(&id.1.kind, &id.1.name);
        is_older(cached.map(|cached| &**cached), newest) && store.is_followed(&id.1.kind, &id.1.name)
    });
    let version = unseen.map(|newest| newest.resource_version.clone());
    for (primary_ref, outcome) in results {
        let Some(wanted) = target.claims.get_mut(primary_ref) else {
            continue;
        };
        let is_news = wanted.told.as_ref() != Some(&outcome.result);
        wanted.told = Some(outcome.result.clone());
        let waits = waiting.contains(primary_ref);
        if let Some(version) = version.as_ref().filter(|_| waits || is_news) {
            queue.hold(primary_ref.lane, &primary_ref.name);
            target.unseen.push((version.clone(), primary_ref.clone()));
        }
        if is_news && !waits {
            queue.push(primary_ref.lane, &primary_ref.name, Priority::Change);
        }
    }
    for (primary_ref, tell) in waiters {
        let outcome = results.get(&primary_ref).cloned().unwrap_or(ClaimOutcome {
            result: Ok(()),
            wrote: false,
        });
        // Whoever has stopped waiting does not need to know.
        let _ = tell.send(outcome);
    }
}
