//! Holds the claims of all primaries: the fields that each wants of an object, and the outcome.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::cache::store::Store;
use pilothouse_core::contribution::{Claim, ClaimAge, Leaves};
use pilothouse_core::{Key, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::target::{ClaimOutcome, ContributionTarget, RegisteredClaim, TargetId};
use super::target_queue::TargetQueue;
use crate::lanes::lane::Lane;
use crate::lanes::pause::is_paused;
use crate::lanes::primary::PrimaryRef;

/// The claims of all plugins.
#[derive(Default)]
pub struct Contributions {
    pub(super) plugins: HashMap<Arc<str>, PluginClaims>,
    /// Targets to settle.
    pub(super) target_queue: TargetQueue,
}

/// The claims of one plugin.
#[derive(Default)]
pub(super) struct PluginClaims {
    pub targets: HashMap<Key, ContributionTarget>,
    pub by_primary: HashMap<PrimaryRef, BTreeSet<Key>>,
    /// Primaries that existed when their lane opened and have not been reconciled since. Fields held without a claim
    /// may be theirs.
    pub waited_for: BTreeSet<PrimaryRef>,
    /// Set if all of them have been reconciled, so that unclaimed fields belong to nobody.
    pub settled: bool,
}

/// All claims of a primary.
pub struct ClaimRequest<'a> {
    /// The primary.
    pub primary_ref: &'a PrimaryRef,
    /// UID of the object that was reconciled.
    pub uid: &'a str,
    /// The primary, for messages: `StreamIngress a/b`.
    pub title: Arc<str>,
    /// Age, which decides between two conflicting claims.
    pub age: ClaimAge,
    /// Wanted fields of each object.
    pub wanted: BTreeMap<Key, Leaves>,
}

/// Outcomes of claims that were made.
pub enum PendingClaims {
    /// The primary no longer exists, or is paused.
    Gone,
    /// Outcomes that are known, and receivers of those that are pending.
    Known(Vec<ClaimOutcome>, Vec<oneshot::Receiver<ClaimOutcome>>),
}

impl Contributions {
    /// Primaries of a plugin that must be reconciled before unclaimed fields are released.
    pub fn waited_for(&self, plugin: &str) -> impl Iterator<Item = &PrimaryRef> {
        let claims = self.plugins.get(plugin).into_iter();
        claims.flat_map(|claims| &claims.waited_for)
    }

    /// Returns `true` if a primary has claims.
    pub fn has_claims(&self, lane: &Lane, primary_ref: &PrimaryRef) -> bool {
        let claims = self.plugins.get(&lane.plugin);
        claims.is_some_and(|claims| claims.by_primary.contains_key(primary_ref))
    }

    /// Objects that a primary contributes to.
    pub fn targets_of(&self, plugin: &str, primary_ref: &PrimaryRef) -> impl Iterator<Item = &Key> {
        let claims = self.plugins.get(plugin);
        let targets = claims.and_then(|claims| claims.by_primary.get(primary_ref));
        targets.into_iter().flatten()
    }

    /// Versions of targets that the cache does not show yet, each with the primary that waits for it.
    pub fn unseen(&self) -> impl Iterator<Item = (TargetId, &str, &PrimaryRef)> {
        self.targets().flat_map(|(plugin, key, target)| {
            let unseen = target.unseen.iter();
            unseen.map(|(version, primary_ref)| ((plugin.clone(), key.clone()), &**version, primary_ref))
        })
    }

    /// Targets whose settlement a primary waits for.
    pub fn awaited_settlements(&self) -> impl Iterator<Item = TargetId> {
        let waited_for = self.targets().filter(|(_, _, target)| !target.waiters.is_empty());
        waited_for.map(|(plugin, key, _)| (plugin.clone(), key.clone()))
    }

    fn targets(&self) -> impl Iterator<Item = (&Arc<str>, &Key, &ContributionTarget)> {
        let plugins = self.plugins.iter();
        plugins.flat_map(|(plugin, claims)| claims.targets.iter().map(move |(key, target)| (plugin, key, target)))
    }

    pub(super) fn target_mut(&mut self, id: &TargetId) -> Option<&mut ContributionTarget> {
        self.plugins.get_mut(&id.0)?.targets.get_mut(&id.1)
    }

    /// Returns `true` if no target has to be settled before a change or a time.
    pub fn is_idle(&self) -> bool {
        self.target_queue.is_idle()
    }

    /// The earliest time at which a target is due; `None` if only a change makes one due. `step` is the interval at
    /// which a target that waits for more claims is considered.
    pub fn next_due(&self, step: Option<Duration>) -> Option<Instant> {
        let step = step.filter(|_| self.target_queue.is_lingering());
        let step = step.map(|step| Instant::now() + step);
        step.into_iter().chain(self.target_queue.next_due()).min()
    }

    /// Marks a target to be settled.
    pub fn mark(&mut self, id: TargetId) {
        self.target_queue.mark(id);
    }

    /// Ends the settlement of a target.
    pub fn done(&mut self, id: &TargetId) {
        self.target_queue.done(id);
        self.tidy(id);
    }

    /// Closes the claims of a plugin. Fields that become unclaimed stay as they are. Returns `true` if no target of it
    /// is being written.
    pub fn close(&mut self, plugin: &str) -> bool {
        self.plugins.remove(plugin);
        !self.target_queue.is_busy_with(plugin)
    }

    /// Forgets a target without claims and waits.
    pub(super) fn tidy(&mut self, id: &TargetId) {
        if self.target_queue.has(id) {
            return;
        }
        let Some(claims) = self.plugins.get_mut(&id.0) else {
            return;
        };
        if claims
            .targets
            .get(&id.1)
            .is_some_and(ContributionTarget::is_forgettable)
        {
            claims.targets.remove(&id.1);
        }
    }

    /// Registers all claims of a primary, by target. Earlier claims that are not repeated are dropped.
    pub fn register(&mut self, store: &Store, lane: &Lane, request: ClaimRequest<'_>) -> PendingClaims {
        let ClaimRequest {
            primary_ref,
            uid,
            title,
            age,
            wanted,
        } = request;
        let primary = store.get(lane.grants.primary(), &primary_ref.name);
        let Some(primary) = primary.filter(|primary| &*primary.uid == uid && !is_paused(primary)) else {
            return PendingClaims::Gone;
        };
        let claims = self.plugins.entry(lane.plugin.clone()).or_default();
        let keys: BTreeSet<Key> = wanted.keys().cloned().collect();
        let before = if keys.is_empty() {
            claims.by_primary.remove(primary_ref)
        } else {
            claims.by_primary.insert(primary_ref.clone(), keys.clone())
        };
        let mut marked = Vec::new();
        for gone in before.unwrap_or_default().difference(&keys) {
            if let Some(target) = claims.targets.get_mut(gone) {
                target.drop_claim(primary_ref, claims.settled);
                marked.push((lane.plugin.clone(), gone.clone()));
            }
        }
        let (mut known, mut coming) = (Vec::new(), Vec::new());
        for (key, leaves) in wanted {
            let id = (lane.plugin.clone(), key);
            let target = claims.targets.entry(id.1.clone()).or_default();
            let is_looked_at = self.target_queue.has_now(&id);
            match target.claims.get_mut(primary_ref) {
                Some(before) if *before.claim.leaves == leaves && before.claim.age == age => {
                    if let (false, Some(told)) = (is_looked_at, &before.told) {
                        known.push(ClaimOutcome {
                            result: told.clone(),
                            wrote: false,
                        });
                        continue;
                    }
                }
                _ => {
                    let (held, before) = match target.drop_claim(primary_ref, claims.settled) {
                        Some(dropped) => (dropped.claim.held, dropped.before),
                        None => (None, Some(primary.clone())),
                    };
                    let claim = RegisteredClaim {
                        claim: Claim {
                            age: age.clone(),
                            leaves: Arc::new(leaves),
                            held,
                        },
                        title: title.clone(),
                        before,
                        told: None,
                        refused: None,
                    };
                    target.claims.insert(primary_ref.clone(), claim);
                }
            }
            let (tell, told) = oneshot::channel();
            target.waiters.push((primary_ref.clone(), tell));
            coming.push(told);
            marked.push(id);
        }
        for id in marked {
            self.target_queue.mark(id);
        }
        PendingClaims::Known(known, coming)
    }

    /// Drops the claims of a primary. [`Contributions::answered`] records separately that it was reconciled.
    pub(super) fn drop_claims(&mut self, lane: &Lane, primary_ref: &PrimaryRef) {
        let Some(claims) = self.plugins.get_mut(&lane.plugin) else {
            return;
        };
        let keys = claims.by_primary.remove(primary_ref).unwrap_or_default();
        for key in &keys {
            if let Some(target) = claims.targets.get_mut(key) {
                target.drop_claim(primary_ref, claims.settled);
            }
        }
        for key in keys {
            self.target_queue.mark((lane.plugin.clone(), key));
        }
    }

    /// Forgets the rejections of claims on objects of a kind, after their cause changed. Returns `true` if there were
    /// any.
    pub fn forget_refusals(&mut self, kind: &Kind) -> bool {
        let Self { plugins, target_queue } = self;
        let mut any = false;
        for (plugin, claims) in plugins {
            for (key, target) in claims.targets.iter_mut().filter(|(key, _)| *key.kind == *kind) {
                let refused = target
                    .claims
                    .values_mut()
                    .filter_map(|claim| claim.refused.take())
                    .count();
                if refused > 0 {
                    target_queue.mark((plugin.clone(), key.clone()));
                    any = true;
                }
            }
        }
        any
    }
}
