//! Owns the books of contributions: who wants what of which object, and what became of it. Changed under the hub's lock,
//! together with the cache and the queue. Makes no request.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_core::ledger::{Age, Claim, Leaves};
use pilothouse_core::{Failure, Key, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::agenda::{Agenda, Fights};
use super::answered::answered;
use super::seen::is_older;
use crate::hub::{Reader, State};
use crate::lane::Lane;
use crate::queue::Priority;

/// An object that a plugin contributes to: the plugin's name and the object.
pub type TargetId = (Arc<str>, Key);

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Whether it is held, and why not.
    pub result: Result<(), Failure>,
    /// Whether something was written for it.
    pub wrote: bool,
}

/// The books of all plugins.
#[derive(Default)]
pub struct Contributions {
    pub(super) plugins: HashMap<Arc<str>, Book>,
    /// Which targets are to be looked at.
    pub agenda: Agenda,
}

/// One plugin's book.
#[derive(Default)]
pub(super) struct Book {
    pub targets: HashMap<Key, Target>,
    pub by_primary: HashMap<Reader, BTreeSet<Key>>,
    /// Primaries that were there when their lane opened and have not answered since. What is held without a claim may
    /// be theirs.
    pub waited_for: BTreeSet<Reader>,
    /// Whether all of them have answered, so that what nobody claims is nobody's.
    pub settled: bool,
}

/// One object that a plugin contributes to.
#[derive(Default)]
pub struct Target {
    /// Who wants what.
    pub claims: BTreeMap<Reader, Wanted>,
    /// The object as our last request showed it, until the cache is as new.
    pub newest: Option<Arc<Stored>>,
    /// What was sent and what the server made of it, where that is not the same.
    pub odd: Option<Odd>,
    /// Looks in a row that ended in trouble with the cluster.
    pub troubles: u32,
    /// What nobody asked for.
    pub fights: Fights,
    /// When something was last written.
    pub written: Option<Instant>,
    /// Those who wait for the next look to end.
    pub waiters: Vec<(Reader, oneshot::Sender<Outcome>)>,
    /// Primaries that do not run before the cache shows this version.
    pub unseen: Vec<(Box<str>, Reader)>,
}

/// Fingerprints of what was sent and of what was held afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Odd {
    /// What was sent.
    pub sent: u64,
    /// What is held since.
    pub left: u64,
}

/// What one primary wants of a target.
pub struct Wanted {
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
pub enum Registered {
    /// The primary is not there any more.
    Gone,
    /// What is known already, and what is still to come.
    Known(Vec<Outcome>, Vec<oneshot::Receiver<Outcome>>),
}

impl Contributions {
    /// The primaries of a plugin that have to answer before fields that nobody claims are given up.
    pub fn waited_for(&self, plugin: &str) -> impl Iterator<Item = &Reader> {
        self.plugins.get(plugin).into_iter().flat_map(|book| &book.waited_for)
    }

    /// Whether a primary has claims.
    pub fn has_claims(&self, lane: &Lane, reader: &Reader) -> bool {
        let book = self.plugins.get(&lane.plugin);
        book.is_some_and(|book| book.by_primary.contains_key(reader))
    }

    /// A target and what is known of its plugin: whether everybody has answered.
    pub fn target(&mut self, id: &TargetId) -> Option<(&mut Target, bool)> {
        let book = self.plugins.get_mut(&id.0)?;
        Some((book.targets.get_mut(&id.1)?, book.settled))
    }

    /// Who waits for the cache to show which version of a target.
    pub fn unseen(&self) -> impl Iterator<Item = (TargetId, &str, &Reader)> {
        self.targets().flat_map(|(plugin, key, target)| {
            let unseen = target.unseen.iter();
            unseen.map(|(version, reader)| ((plugin.clone(), key.clone()), &**version, reader))
        })
    }

    /// The targets whose next look somebody waits for.
    pub fn waited_for_looks(&self) -> impl Iterator<Item = TargetId> {
        let waited_for = self.targets().filter(|(_, _, target)| !target.waiters.is_empty());
        waited_for.map(|(plugin, key, _)| (plugin.clone(), key.clone()))
    }

    fn targets(&self) -> impl Iterator<Item = (&Arc<str>, &Key, &Target)> {
        let books = self.plugins.iter();
        books.flat_map(|(plugin, book)| book.targets.iter().map(move |(key, target)| (plugin, key, target)))
    }

    /// A target has been looked at.
    pub fn done(&mut self, id: &TargetId) {
        self.agenda.done(id);
        self.tidy(id);
    }

    /// Forgets a target of which nothing is wanted and nothing is to come.
    pub(super) fn tidy(&mut self, id: &TargetId) {
        if self.agenda.has(id) {
            return;
        }
        let Some(book) = self.plugins.get_mut(&id.0) else {
            return;
        };
        let is_empty = |target: &Target| {
            target.claims.is_empty() && target.unseen.is_empty() && target.waiters.is_empty() && target.newest.is_none()
        };
        if book.targets.get(&id.1).is_some_and(is_empty) {
            book.targets.remove(&id.1);
        }
    }
}

impl Target {
    /// Those who wait for the next look to end.
    pub fn take_waiters(&mut self) -> Vec<(Reader, oneshot::Sender<Outcome>)> {
        std::mem::take(&mut self.waiters)
    }
}

/// Makes the claims of a primary: all that it wants, by target. What it wanted before and does not want now goes.
pub fn register(
    state: &mut State,
    lane: &Lane,
    reader: &Reader,
    uid: &str,
    age: &Age,
    wanted: BTreeMap<Key, Leaves>,
) -> Registered {
    let primary = state.store.get(lane.grants.primary(), &reader.name);
    if primary.is_none_or(|primary| &*primary.uid != uid) {
        return Registered::Gone;
    }
    let books = &mut state.contributions;
    let book = books.plugins.entry(lane.plugin.clone()).or_default();
    let keys: BTreeSet<Key> = wanted.keys().cloned().collect();
    let before = if keys.is_empty() {
        book.by_primary.remove(reader)
    } else {
        book.by_primary.insert(reader.clone(), keys.clone())
    };
    let mut marked = Vec::new();
    for gone in before.unwrap_or_default().difference(&keys) {
        if let Some(target) = book.targets.get_mut(gone) {
            target.claims.remove(reader);
            marked.push((lane.plugin.clone(), gone.clone()));
        }
    }
    let (mut known, mut coming) = (Vec::new(), Vec::new());
    for (key, leaves) in wanted {
        let id = (lane.plugin.clone(), key);
        let target = book.targets.entry(id.1.clone()).or_default();
        let is_looked_at = books.agenda.has_now(&id);
        match target.claims.get_mut(reader) {
            Some(before) if *before.claim.leaves == leaves && before.claim.age == *age => {
                if let (false, Some(told)) = (is_looked_at, &before.told) {
                    known.push(Outcome {
                        result: told.clone(),
                        wrote: false,
                    });
                    continue;
                }
            }
            _ => {
                let wanted = Wanted {
                    claim: Claim {
                        age: age.clone(),
                        leaves: Arc::new(leaves),
                    },
                    title: format!("{} {}", lane.grants.primary().kind, reader.name).into(),
                    told: None,
                    refused: None,
                };
                target.claims.insert(reader.clone(), wanted);
            }
        }
        let (tell, told) = oneshot::channel();
        target.waiters.push((reader.clone(), tell));
        coming.push(told);
        marked.push(id);
    }
    for id in marked {
        books.agenda.mark(id);
    }
    Registered::Known(known, coming)
}

/// What refused claims on objects of a kind is another than it was: they have another chance. Says whether there were any.
pub fn forget_refusals(state: &mut State, kind: &Kind) -> bool {
    let Contributions { plugins, agenda } = &mut state.contributions;
    let mut any = false;
    for (plugin, book) in plugins {
        for (key, target) in book.targets.iter_mut().filter(|(key, _)| *key.kind == *kind) {
            let refused = target
                .claims
                .values_mut()
                .filter_map(|wanted| wanted.refused.take())
                .count();
            if refused > 0 {
                agenda.mark((plugin.clone(), key.clone()));
                any = true;
            }
        }
    }
    any
}

/// A primary is gone, or is steered no more: its claims go.
pub fn withdraw(state: &mut State, lane: &Lane, reader: &Reader) {
    let books = &mut state.contributions;
    if let Some(book) = books.plugins.get_mut(&lane.plugin) {
        let keys = book.by_primary.remove(reader).unwrap_or_default();
        for key in &keys {
            if let Some(target) = book.targets.get_mut(key) {
                target.claims.remove(reader);
            }
        }
        for key in keys {
            books.agenda.mark((lane.plugin.clone(), key));
        }
    }
    answered(state, lane, reader);
}

/// What became of a look at a target is told: to those who wait, and to those for whom it is news.
pub fn tell(
    state: &mut State,
    id: &TargetId,
    results: &BTreeMap<Reader, Outcome>,
    waiters: Vec<(Reader, oneshot::Sender<Outcome>)>,
) {
    let State {
        contributions,
        queue,
        store,
        ..
    } = state;
    let Some((target, _)) = contributions.target(id) else {
        return;
    };
    let waiting: HashSet<Reader> = waiters.iter().map(|(reader, _)| reader.clone()).collect();
    let unseen = target.newest.as_ref().filter(|newest| {
        let cached = store.get(&id.1.kind, &id.1.name);
        is_older(cached.map(|cached| &**cached), newest) && store.is_followed(&id.1.kind, &id.1.name)
    });
    let version = unseen.map(|newest| newest.resource_version.clone());
    for (reader, outcome) in results {
        let Some(wanted) = target.claims.get_mut(reader) else {
            continue;
        };
        let is_news = wanted.told.as_ref() != Some(&outcome.result);
        wanted.told = Some(outcome.result.clone());
        let waits = waiting.contains(reader);
        if let Some(version) = version.as_ref().filter(|_| waits || is_news) {
            queue.hold(reader.lane, &reader.name);
            target.unseen.push((version.clone(), reader.clone()));
        }
        if is_news && !waits {
            queue.push(reader.lane, &reader.name, Priority::Change);
        }
    }
    for (reader, tell) in waiters {
        let outcome = results.get(&reader).cloned().unwrap_or(Outcome {
            result: Ok(()),
            wrote: false,
        });
        // Whoever has stopped waiting does not need to know.
        let _ = tell.send(outcome);
    }
}
