//! Owns the books of contributions: who wants what of which object, and what became of it. Changed under the hub's lock,
//! together with the cache and the queue. Makes no request.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::object::Stored;
use pilothouse_cluster::store::{Change, Store};
use pilothouse_cluster::watch::is_before;
use pilothouse_core::canonical::DESIRED_ANNOTATION;
use pilothouse_core::ledger::{Age, Claim, Leaves};
use pilothouse_core::manifest::Access;
use pilothouse_core::ownership::OWNER_LABEL;
use pilothouse_core::{Failure, Key, Kind};
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::hub::{Reader, State};
use crate::lane::{Lane, Mode};
use crate::lanes::Lanes;
use crate::queue::Priority;

/// Writes in a row that nobody asked for before a target is looked at less often.
const FREE_REVERTS: u32 = 10;

/// After so long without one, what comes next is not the same story.
const CALM: Duration = Duration::from_secs(10);

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
    plugins: HashMap<Arc<str>, Book>,
    /// Targets to look at, since when, and those that are looked at now.
    dirty: BTreeMap<TargetId, Instant>,
    busy: HashSet<TargetId>,
    /// Targets to look at again when it is time.
    later: BTreeSet<(Instant, TargetId)>,
}

/// One plugin's book.
#[derive(Default)]
struct Book {
    targets: HashMap<Key, Target>,
    by_primary: HashMap<Reader, BTreeSet<Key>>,
    /// Primaries that were there when their lane opened and have not answered since. What is held without a claim may
    /// be theirs.
    waited_for: BTreeSet<Reader>,
    /// Whether all of them have answered, so that what nobody claims is nobody's.
    settled: bool,
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
    fights: Fights,
    /// When something was last written.
    written: Option<Instant>,
    waiters: Vec<(Reader, oneshot::Sender<Outcome>)>,
    /// Primaries that do not run before the cache shows this version.
    unseen: Vec<(Box<str>, Reader)>,
}

/// Writes in a row that no primary had asked for: somebody takes back what is ours.
#[derive(Default)]
struct Fights {
    count: u32,
    last: Option<Instant>,
    calm_at: Option<Instant>,
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
    /// Whether nothing is to be looked at before something changes or a time comes.
    pub fn is_idle(&self) -> bool {
        self.dirty.is_empty() && self.busy.is_empty()
    }

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

    /// Whether a target waits for more claims.
    pub fn is_lingering(&self) -> bool {
        self.dirty.keys().any(|id| !self.busy.contains(id))
    }

    /// When the next target is to be looked at that only waits for its time.
    pub fn next_due(&self) -> Option<Instant> {
        self.later.first().map(|(due, _)| *due)
    }

    /// A target has been looked at.
    pub fn done(&mut self, id: &TargetId) {
        self.busy.remove(id);
        self.tidy(id);
    }

    /// Looks at a target again at a time, unless something makes it worth it before.
    pub fn look_again(&mut self, id: &TargetId, due: Instant) {
        self.later.insert((due, id.clone()));
    }

    fn mark(&mut self, id: TargetId) {
        self.later.retain(|(_, later)| *later != id);
        self.dirty.entry(id).or_insert_with(Instant::now);
    }

    /// Forgets a target of which nothing is wanted and nothing is to come.
    fn tidy(&mut self, id: &TargetId) {
        if self.dirty.contains_key(id) || self.busy.contains(id) || self.later.iter().any(|(_, later)| later == id) {
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
    /// Notes that a look has written, and whether a primary had asked for it; when that was nobody again and again, looks
    /// become rare.
    pub fn note_write(&mut self, asked: bool, now: Instant, brake: impl Fn(u32) -> Duration) {
        self.written = Some(now);
        if asked {
            return;
        }
        let Fights { count, last, calm_at } = &mut self.fights;
        if last.is_some_and(|last| now.duration_since(last) > CALM)
            && calm_at.is_none_or(|calm_at| calm_at + CALM < now)
        {
            *count = 0;
        }
        *count += 1;
        *last = Some(now);
        *calm_at = count.checked_sub(FREE_REVERTS).map(|over| now + brake(over));
    }

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
        let is_looked_at = books.dirty.contains_key(&id) || books.busy.contains(&id);
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
        books.mark(id);
    }
    Registered::Known(known, coming)
}

/// A primary has answered, or there is nothing to wait for any more.
pub fn answered(state: &mut State, lane: &Lane, reader: &Reader) {
    let Some(book) = state.contributions.plugins.get_mut(&lane.plugin) else {
        return;
    };
    if book.waited_for.remove(reader) && book.waited_for.is_empty() {
        settle(state, &lane.plugin);
    }
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
            books.mark((lane.plugin.clone(), key));
        }
    }
    answered(state, lane, reader);
}

/// A lane opens: each of its primaries may have claims that we do not know of.
pub fn lane_opens(state: &mut State, lane: &Lane) {
    if !contributes(lane) {
        return;
    }
    let State {
        store, contributions, ..
    } = state;
    let book = contributions.plugins.entry(lane.plugin.clone()).or_default();
    book.settled = false;
    // Who went while it was closed was not seen going.
    let primary = lane.grants.primary();
    let is_gone = |reader: &Reader| reader.lane == lane.id && store.get(primary, &reader.name).is_none();
    book.by_primary.retain(|reader, _| !is_gone(reader));
    for target in book.targets.values_mut() {
        target.claims.retain(|reader, _| !is_gone(reader));
    }
    let primaries = store.iter(primary, None);
    let steered = primaries.filter(|primary| !primary.deleting && lane.steers(primary));
    book.waited_for.extend(steered.map(|primary| Reader {
        lane: lane.id,
        name: primary.name.clone(),
    }));
    settle(state, &lane.plugin);
}

/// Once everybody has answered, what nobody claims is looked for in the whole cache.
fn settle(state: &mut State, plugin: &Arc<str>) {
    let State {
        store,
        contributions,
        queue,
        lanes,
        ..
    } = state;
    let own: Vec<_> = lanes
        .iter()
        .filter(|lane| lane.plugin == *plugin && contributes(lane))
        .collect();
    let Some(book) = contributions.plugins.get_mut(plugin) else {
        return;
    };
    if book.settled || !book.waited_for.is_empty() || !own.iter().all(|lane| queue.is_open(lane.id)) {
        return;
    }
    book.settled = true;
    tracing::debug!(
        plugin = &**plugin,
        "every primary has answered; what nobody claims goes"
    );
    let mut found = Vec::new();
    for lane in own {
        let contributed = lane.grants.touched().filter(|grant| grant.allows(Access::Contributed));
        for served in contributed.filter_map(|grant| lane.served(&grant.touch.kind)) {
            for object in store
                .iter(&served.kind, None)
                .filter(|object| has_fields_of(lane, object))
            {
                let key = Key::new(served.kind.clone(), object.name.clone());
                book.targets.entry(key.clone()).or_default();
                found.push((plugin.clone(), key));
            }
        }
    }
    for id in found {
        contributions.mark(id);
    }
}

/// A lane of a plugin that may contribute to a kind; none of a plugin that is in preview.
pub fn lane_for<'a>(lanes: &'a Lanes, plugin: &str, kind: &Kind) -> Option<&'a Arc<Lane>> {
    let allows = |lane: &Lane| {
        lane.grants
            .get(kind)
            .is_some_and(|grant| grant.allows(Access::Contributed))
    };
    let mut of_kind = lanes.of_kind(kind);
    of_kind.find(|lane| *lane.plugin == *plugin && lane.mode == Mode::Active && allows(lane))
}

/// Whether a lane may contribute anything.
pub fn contributes(lane: &Lane) -> bool {
    lane.grants.touched().any(|grant| grant.allows(Access::Contributed))
}

/// Whether an object has fields of the lane's plugin without being its own.
fn has_fields_of(lane: &Lane, object: &Stored) -> bool {
    object.entry(lane.writer.manager(), false).is_some() && !is_own(lane, object)
}

/// Whether an object is owned by the lane's plugin: then it has put the owner or the digest there, which no claim can.
pub fn is_own(lane: &Lane, object: &Stored) -> bool {
    let Some(entry) = object.entry(lane.writer.manager(), false) else {
        return false;
    };
    let fields = entry.field_set();
    let Some(metadata) = fields.below("metadata") else {
        return false;
    };
    let has = |below: &str, name: &str| metadata.below(below).is_some_and(|it| it.below(name).is_some());
    metadata.below("ownerReferences").is_some() || has("labels", OWNER_LABEL) || has("annotations", DESIRED_ANNOTATION)
}

/// An object has changed: whoever waits to see it is released, and plugins that contribute to it look at it again,
/// unless the change is what they know already.
pub fn target_changed(state: &mut State, change: &Change) {
    let key = Key::new(change.kind.clone(), change.name().clone());
    let State {
        contributions, queue, ..
    } = state;
    let mut touched = Vec::new();
    for (plugin, book) in &mut contributions.plugins {
        let Some(target) = book.targets.get_mut(&key) else {
            continue;
        };
        target.unseen.retain(|(version, reader)| {
            let seen = change
                .new
                .as_ref()
                .is_none_or(|new| is_as_new(&new.resource_version, version));
            if seen {
                queue.release(reader.lane, &reader.name);
            }
            !seen
        });
        let known = match (&change.new, &target.newest) {
            (Some(new), Some(newest)) => is_as_new(&newest.resource_version, &new.resource_version),
            _ => false,
        };
        let newest = target.newest.as_ref();
        if !newest.is_some_and(|newest| is_older(change.new.as_deref(), newest)) {
            target.newest = None;
        }
        touched.push(((plugin.clone(), key.clone()), !known && !is_same(change)));
    }
    for (id, is_marked) in touched {
        if is_marked {
            contributions.mark(id);
        } else {
            contributions.tidy(&id);
        }
    }
}

fn is_older(seen: Option<&Stored>, newest: &Stored) -> bool {
    seen.is_some_and(|seen| seen.uid == newest.uid && !is_as_new(&seen.resource_version, &newest.resource_version))
}

/// Whether nothing has changed that matters to a claim.
fn is_same(change: &Change) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.is_held_like(new) && old.has_text_of(new),
        _ => false,
    }
}

/// Whether a resourceVersion is this one or a later one.
fn is_as_new(have: &str, want: &str) -> bool {
    have == want || is_before(want, have)
}

/// The object as it is best known: the cache, or our own last request where that is newer.
pub fn best_known(store: &Store, id: &TargetId, target: &Target) -> Option<Arc<Stored>> {
    let cached = store.get(&id.1.kind, &id.1.name)?;
    match &target.newest {
        Some(newest) if is_older(Some(cached), newest) => Some(newest.clone()),
        _ => Some(cached.clone()),
    }
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
        is_older(cached.map(|cached| &**cached), newest)
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

/// The targets to look at now, at most so many; they count as busy until [`Contributions::done`]. A target waits, for as
/// long as `linger`, while primaries of its plugin are about to make claims.
pub fn take_dirty(state: &mut State, now: Instant, room: usize, linger: Duration) -> Vec<TargetId> {
    let State {
        contributions,
        queue,
        lanes,
        ..
    } = state;
    let Contributions {
        plugins,
        dirty,
        busy,
        later,
    } = contributions;
    while let Some((due, _)) = later.first()
        && *due <= now
        && let Some((due, id)) = later.pop_first()
    {
        dirty.entry(id).or_insert(due);
    }
    let mut more: HashMap<Arc<str>, bool> = HashMap::new();
    let mut more_to_come = |plugin: &Arc<str>| {
        *more.entry(plugin.clone()).or_insert_with(|| {
            let mut own = lanes.iter().filter(|lane| lane.plugin == *plugin && contributes(lane));
            own.any(|lane| queue.is_busy(lane.id))
        })
    };
    let (mut taken, mut resting) = (Vec::new(), Vec::new());
    for (id, since) in dirty.iter().filter(|(id, _)| !busy.contains(*id)) {
        if taken.len() == room {
            break;
        }
        let target = plugins.get(&id.0).and_then(|book| book.targets.get(&id.1));
        let calm_at = target
            .filter(|target| target.waiters.is_empty())
            .and_then(|target| target.fights.calm_at)
            .filter(|calm_at| *calm_at > now);
        let written = target.and_then(|target| target.written);
        if let Some(calm_at) = calm_at {
            resting.push((calm_at, id.clone()));
        } else if written.is_none_or(|written| written + linger <= now)
            && (*since + linger <= now || !more_to_come(&id.0))
        {
            taken.push(id.clone());
        }
    }
    for (due, id) in resting {
        dirty.remove(&id);
        later.insert((due, id));
    }
    for id in &taken {
        dirty.remove(id);
        busy.insert(id.clone());
    }
    taken
}
