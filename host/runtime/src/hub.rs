//! Owns the shared state: the cache, the lanes, who depends on what, and the queue, changed together under one lock. What
//! a watch sees is routed here to the primaries that it concerns.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use pilothouse_cluster::Client;
use pilothouse_cluster::codec::ObjectCodec;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::{WatchError, WatchErrorKind};
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::openapi::Schemas;
use pilothouse_cluster::reflector::Sink;
use pilothouse_cluster::store::{ObjectChange, Store, WatchSource};
use pilothouse_core::crash::Census;
use pilothouse_core::dependencies::budget::GROUP_BYTES;
use pilothouse_core::dependencies::{Dependencies, Grouped, Read, Woken};
use pilothouse_core::preview::{Preview, Previews};
use pilothouse_core::reach::Reach;
use pilothouse_core::{Key, Kind, Name, Tenant};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::blocking::Blocking;
use crate::clock::WallClock;
use crate::competing_plugins::{CompetingPluginWaits, KnownPlugins};
use crate::contribute::{self, Contributions, Waiters};
use crate::definitions::Changes;
use crate::echo::{AwaitedEcho, WritesInFlight};
use crate::informers::{CacheNeed, ServedKinds};
use crate::lane::{Lane, LaneId};
use crate::lanes::Lanes;
use crate::plugins::health::{FinishedCall, PluginPause};
use crate::queue::{Capacity, Cause, Depth, Job, JobResult, Priority, WorkQueue};
use crate::refusals::Refusals;
use crate::reread;
use crate::route::{enqueue_all, is_unselected_child, route};
use crate::state_lock::StateLock;
use crate::too_deep::TooDeepReporter;
use crate::visibility::ChangeVisibility;

/// A primary of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PrimaryRef {
    /// The lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
}

impl Grouped for PrimaryRef {
    type Group = LaneId;

    fn group(&self) -> LaneId {
        self.lane
    }
}

/// What the server made of an apply of ours and does not hold as it was sent; remembered so that it costs one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpersistedApply {
    /// The digest of what was applied.
    pub digest: Box<str>,
    /// What the server has since: the field set of our entry, or the status.
    pub left: Box<str>,
}

/// Everything that one lock guards.
pub struct HostState {
    /// The cache.
    pub store: Store,
    /// Who has read what.
    pub dependencies: Dependencies<PrimaryRef>,
    /// What is to be done.
    pub queue: WorkQueue,
    /// Whose work it is. A lane that is replaced keeps its number, and with it what is queued and what was read.
    pub lanes: Lanes,
    /// Lanes that will not open again.
    leaving: HashSet<LaneId>,
    /// How many primaries each open lane reconciles: counted when it opens, and kept by `route`.
    pub selected: HashMap<LaneId, usize>,
    /// Writes that the cache has not seen yet.
    pub awaited: HashMap<Key, (AwaitedEcho, PrimaryRef)>,
    /// Writes of ours that are under way.
    pub writing: WritesInFlight,
    /// Children and statuses that the server does not hold as they were applied.
    pub unpersisted: HashMap<Key, UnpersistedApply>,
    /// Who contributes what to which object.
    pub contributions: Contributions,
    /// Bodies that the server refuses for good.
    pub refusals: Refusals,
    /// Who waits because another plugin applies what is desired.
    pub competing_waits: CompetingPluginWaits,
    /// Uids of primaries that are gone, or out of sight, and whose children are the host's to collect.
    pub orphaned: HashMap<PrimaryRef, BTreeSet<Arc<str>>>,
    /// Primaries that have lost a child, which somebody else has deleted: perhaps because the primary is gone, too.
    pub lost_child: HashSet<PrimaryRef>,
    /// What plugins that are in preview would do.
    pub previews: Previews<PrimaryRef>,
}

/// The shared state, and what never changes beside it.
pub struct Hub {
    /// The cache, the lanes, the dependencies and the queue.
    pub state: StateLock<HostState>,
    /// How the cluster serves the kinds that are watched.
    pub served: Arc<ServedKinds>,
    /// The time of day.
    pub clock: WallClock,
    /// Where the calls of guests run.
    pub blocking: Blocking,
    /// The plugins that there are.
    pub plugins: KnownPlugins,
    /// Told whenever the queue may have something to do.
    pub work: Notify,
    /// Told whenever a job has ended.
    ended: Notify,
    /// Told whenever more is known of a kind, or less.
    pub settled: Notify,
    /// Told whenever there may be something to contribute.
    pub claims: Notify,
    /// How often the definitions of each group have changed.
    pub definitions: Changes,
    /// How values are merged.
    pub schemas: Schemas,
    /// The primaries that wait for what becomes of their claims.
    pub waiters: Waiters,
    /// The last trouble of each kind's watch, so that a message comes when the cause changes and not at each try.
    trouble: Mutex<HashMap<Arc<Kind>, WatchError>>,
    /// Who was told that a kind is not served: the plugins' names by kind.
    waiting: Mutex<HashMap<Arc<Kind>, BTreeSet<Arc<str>>>>,
    /// Mistakes of the host that it has noticed and got over: waits that nothing would have ended, panics of watches.
    pub stuck: AtomicU64,
    /// Objects that nest too deep for the plugins that read them, to be told of.
    pub too_deep: TooDeepReporter,
}

impl Hub {
    /// An empty hub.
    pub fn new(client: Client, clock: WallClock, capacity: Capacity) -> Self {
        Self {
            state: StateLock::new(HostState {
                store: Store::default(),
                dependencies: Dependencies::default(),
                queue: WorkQueue::new(capacity),
                lanes: Lanes::default(),
                leaving: HashSet::new(),
                selected: HashMap::new(),
                awaited: HashMap::new(),
                writing: WritesInFlight::default(),
                unpersisted: HashMap::new(),
                contributions: Contributions::default(),
                refusals: Refusals::default(),
                competing_waits: CompetingPluginWaits::default(),
                orphaned: HashMap::new(),
                lost_child: HashSet::new(),
                previews: Previews::default(),
            }),
            served: Arc::default(),
            clock,
            blocking: Blocking::Threads,
            plugins: KnownPlugins::default(),
            work: Notify::new(),
            ended: Notify::new(),
            settled: Notify::new(),
            claims: Notify::new(),
            definitions: Changes::default(),
            schemas: Schemas::new(client),
            waiters: Waiters::default(),
            trouble: Mutex::default(),
            waiting: Mutex::default(),
            stuck: AtomicU64::new(0),
            too_deep: TooDeepReporter::default(),
        }
    }

    /// The lanes as they are now.
    pub fn lanes(&self) -> Lanes {
        self.state.read().lanes.clone()
    }

    /// Puts a lane in its place. One that is new is closed until all its kinds are listed; one that replaces another goes
    /// on where that one was, and has every primary of both reconciled, each after what of it is under way.
    pub fn register_lane(&self, lane: &Arc<Lane>) {
        reread::learn_facts(self, lane);
        let mut state = self.state.write();
        let replaced = state.lanes.put(lane.clone());
        state.share_reads(&lane.plugin);
        if state.queue.is_open(lane.id) {
            state.queue.open(lane.id, &lane.plugin, lane.concurrency);
            contribute::lane_opens(&mut state, lane);
            self.too_deep.lane_opens(&state, lane);
            state.forget_previews_of(lane.id);
            if let Some(replaced) = &replaced {
                enqueue_all(&mut state, replaced);
            }
            state.dependencies.begin_anew(&lane.id);
            enqueue_all(&mut state, lane);
        }
        drop(state);
        self.open_if_synced(lane);
        if let Some(replaced) = replaced.filter(|replaced| replaced.namespaces != lane.namespaces) {
            self.competing_plugin_left(&replaced.plugin);
        }
    }

    /// Stops a lane for good: nothing of it is woken or handed out any more; what runs, runs to its end.
    pub fn close_lane(&self, id: LaneId) {
        let mut state = self.state.write();
        state.queue.close(id);
        state.leaving.insert(id);
    }

    /// Waits until nothing of a lane runs.
    pub async fn nothing_runs_in(&self, id: LaneId) {
        loop {
            let ended = self.ended.notified();
            if self.state.read().queue.depth(id, Instant::now()).running == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Forgets a lane that is closed and of which nothing runs.
    pub fn remove_lane(&self, id: LaneId) {
        let mut state = self.state.write();
        state.queue.remove(id);
        let removed = state.lanes.remove(id);
        if let Some(lane) = &removed {
            contribute::lane_goes(&mut state, lane);
        }
        state.leaving.remove(&id);
        state.selected.remove(&id);
        state.forget_previews_of(id);
        state.forget_readers_of(id);
        state.awaited.retain(|_, (_, primary_ref)| primary_ref.lane != id);
        drop(state);
        if let Some(lane) = removed {
            self.competing_plugin_left(&lane.plugin);
        }
    }

    /// A job has ended, for the queue and for its plugin's health.
    pub fn ended(&self, lane: &Lane, job: &Job, ended: &JobResult) {
        let now = Instant::now();
        let mut state = self.state.write();
        state.queue.done(job, ended, now);
        state.writing.abandon(&PrimaryRef {
            lane: job.lane,
            name: job.name.clone(),
        });
        let call = FinishedCall {
            lane: job.lane,
            object: &job.name,
            is_there: state.store.get(lane.grants.primary(), &job.name).is_some(),
            was_called: !ended.used.is_zero(),
            failure: ended.failure.as_ref(),
        };
        let measure = lane.health.ended(&call, &self.clock, || state.census(&lane.plugin));
        if let Some(PluginPause { wait, tenants }) = measure {
            state.queue.pause(&lane.plugin, tenants, now + wait);
        }
        drop(state);
        self.ended.notify_waiters();
    }

    /// Hands out everything of a plugin again of which some had to wait.
    pub fn resume(&self, plugin: &str) {
        self.state.write().queue.resume(plugin);
        self.work.notify_one();
    }

    /// How many primaries a lane reconciles, and what it has to do.
    pub fn count(&self, lane: &Lane) -> (usize, Depth) {
        let state = self.state.read();
        let depth = state.queue.depth(lane.id, Instant::now());
        if !lane.is_filtered() {
            return (state.store.len(lane.grants.primary()), depth);
        }
        let counted = || {
            let primaries = state.store.iter(lane.grants.primary(), None);
            primaries.filter(|object| lane.reconciles(object)).count()
        };
        // A lane that is closed is not routed to, and one that was replaced may have another filter.
        let is_current = state
            .lanes
            .get(lane.id)
            .is_some_and(|it| std::ptr::eq(Arc::as_ptr(it), lane));
        let is_counted = is_current && state.queue.is_open(lane.id);
        let Some(&selected) = state.selected.get(&lane.id).filter(|_| is_counted) else {
            return (counted(), depth);
        };
        debug_assert_eq!(selected, counted(), "the primaries of {}", lane.title());
        (selected, depth)
    }

    /// At most so many primaries that a lane reconciles and that are not on their way out.
    pub fn sample_primaries(&self, lane: &Lane, most: usize) -> Vec<Name> {
        let state = self.state.read();
        let primaries = state.store.iter(lane.grants.primary(), None);
        primaries
            .filter(|object| !object.deleting && lane.reconciles(object))
            .take(most)
            .map(|object| object.name.clone())
            .collect()
    }

    /// What a lane's plugin applied for its primaries and what goes with them.
    pub fn children_of(&self, lane: &Lane) -> Vec<(ServedKind, Arc<CachedObject>)> {
        let state = self.state.read();
        let primaries = state.store.iter(lane.grants.primary(), None);
        let selected = primaries.filter(|primary| lane.selects(&primary.name));
        let children = selected.flat_map(|primary| {
            let children = state.children_of(lane, &primary.uid);
            children
                .map(|(served, child)| (served, child.clone()))
                .collect::<Vec<_>>()
        });
        children.collect()
    }

    /// How many objects a lane's plugin applied for primaries that it does not select.
    pub fn unselected_children(&self, lane: &Lane) -> usize {
        let state = self.state.read();
        let kinds = lane.owned_kinds();
        let of_kind = |kind| {
            let children = state.store.iter(kind, None);
            children.filter(|child| is_unselected_child(lane, child)).count()
        };
        kinds.map(of_kind).sum()
    }

    /// The primaries of a lane that are being deleted and wait for its finalizer to go.
    pub fn unfinished(&self, lane: &Lane) -> Vec<Name> {
        let state = self.state.read();
        let primaries = state.store.iter(lane.grants.primary(), None);
        primaries
            .filter(|object| lane.selects(&object.name) && lane.has_to_finish(object))
            .map(|object| object.name.clone())
            .collect()
    }

    /// The primaries of a plugin that have to answer before fields that nobody claims are given up, by controller.
    pub fn waited_for(&self, plugin: &str) -> Vec<(String, Name)> {
        let state = self.state.read();
        let readers = state.contributions.waited_for(plugin);
        readers
            .filter_map(|primary_ref| {
                let lane = state.lanes.get(primary_ref.lane)?;
                Some((lane.controller.clone(), primary_ref.name.clone()))
            })
            .collect()
    }

    /// What primaries of a plugin in preview would have done.
    pub fn previews(&self, lane: &Lane) -> Vec<(Name, Preview)> {
        let state = self.state.read();
        let of_lane = state
            .previews
            .iter()
            .filter(|(primary_ref, _)| primary_ref.lane == lane.id);
        of_lane
            .map(|(primary_ref, preview)| (primary_ref.name.clone(), preview.clone()))
            .collect()
    }

    /// The kinds that lanes wait for, for people; empty when all are served and listed.
    pub fn missing(&self, lanes: &[Arc<Lane>]) -> String {
        let state = self.state.read();
        let waiting = lanes.iter().flat_map(|lane| {
            let kinds = lane
                .kinds()
                .filter(|(kind, optional)| !self.has(lane, kind, *optional, &state.store));
            kinds.map(|(kind, _)| kind.to_string())
        });
        waiting
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// Whether the server does not let the host list or watch a kind that lanes need.
    pub fn is_forbidden(&self, lanes: &[Arc<Lane>]) -> bool {
        let trouble = self.trouble.lock();
        let kinds = lanes.iter().flat_map(|lane| lane.kinds());
        let troubles = kinds.into_iter().filter_map(|(kind, _)| trouble.get(&kind));
        troubles
            .into_iter()
            .any(|trouble| trouble.kind == WatchErrorKind::Forbidden)
    }

    /// Asks for a reconcile of every primary of a lane.
    pub fn push_all(&self, lane: &Lane) {
        let mut state = self.state.write();
        state.dependencies.begin_anew(&lane.id);
        enqueue_all(&mut state, lane);
        drop(state);
        self.work.notify_one();
    }

    /// Opens a lane, if it has been put in its place and all its kinds are listed.
    pub fn open_if_synced(&self, lane: &Lane) {
        let mut state = self.state.write();
        let lane = state.lanes.get(lane.id).cloned();
        self.settle(&mut state, lane);
        drop(state);
        self.work.notify_one();
        self.claims.notify_one();
    }

    /// More is known of a kind, or less: opens the lanes whose kinds have all been listed, and closes those that need a
    /// kind which is not served any more.
    fn open_synced_lanes_of(&self, kind: &Kind) {
        let mut state = self.state.write();
        let lanes: Vec<_> = state.lanes.of_kind(kind).cloned().collect();
        self.settle(&mut state, lanes);
        drop(state);
        self.settled.notify_waiters();
        self.work.notify_one();
        self.claims.notify_one();
    }

    fn settle(&self, state: &mut HostState, lanes: impl IntoIterator<Item = Arc<Lane>>) {
        for lane in lanes {
            if state.leaving.contains(&lane.id) {
                continue;
            }
            if !state.queue.is_open(lane.id) {
                if !self.is_ready_in(&lane, &state.store) {
                    continue;
                }
                tracing::info!(
                    lane = lane.title(),
                    objects = state.store.len(lane.grants.primary()),
                    "plugin ready: all kinds of the controller are served and listed"
                );
                state.queue.open(lane.id, &lane.plugin, lane.concurrency);
                contribute::lane_opens(state, &lane);
                self.too_deep.lane_opens(state, &lane);
                enqueue_all(state, &lane);
            } else if let Some((kind, _)) = lane
                .kinds()
                .find(|(kind, optional)| !optional && self.served.is_missing(kind))
            {
                tracing::warn!(lane = lane.title(), %kind, "the controller stops: the cluster does not serve the kind any more");
                state.queue.close(lane.id);
            }
        }
    }

    fn is_ready_in(&self, lane: &Lane, store: &Store) -> bool {
        lane.kinds()
            .all(|(kind, optional)| self.has(lane, &kind, optional, store))
    }

    fn has(&self, lane: &Lane, kind: &Kind, optional: bool, store: &Store) -> bool {
        // The rights to see what an earlier version made may have gone with that version.
        if lane.is_only_former(kind) && self.trouble.lock().contains_key(kind) {
            return true;
        }
        if self.served.get(kind).is_none() {
            return optional && self.served.is_missing(kind);
        }
        let CacheNeed { projection, reach, .. } = lane.need(kind);
        store.has(kind, &projection, &reach)
    }

    /// The cluster serves a kind, in this way from now on.
    pub fn kind_is_served(&self, served: &ServedKind) {
        self.served.set(&served.kind, Some(served.clone()));
        self.schemas.forget(&served.kind);
        let waiting = self.waiting.lock().remove(&served.kind).unwrap_or_default();
        for plugin in waiting {
            tracing::info!(plugin = &*plugin, kind = %served.kind, "the missing kind is served now");
        }
        for lane in self.lanes().of_kind(&served.kind) {
            lane.health.clear(&about_kind(&served.kind));
        }
        self.open_synced_lanes_of(&served.kind);
    }

    /// The cluster does not serve a kind (any more). Those who cannot do without it are closed before what the cache had
    /// of it goes, so that nobody takes its objects for deleted one by one.
    pub fn kind_is_missing(&self, kind: &Arc<Kind>) {
        self.report_waiting_lanes(kind);
        let was_served = self.served.get(kind).is_some();
        if was_served {
            self.report_lost_kind(kind);
        }
        if !self.served.set(kind, None) {
            return;
        }
        self.open_synced_lanes_of(kind);
        let mut state = self.state.write();
        let changes = state.store.empty(kind);
        state.forget_unfollowed(kind);
        self.changed(changes, None, &mut state);
    }

    /// Nobody needs a kind any more.
    pub fn forget_kind(&self, kind: &Kind) {
        let mut state = self.state.write();
        state.store.close(kind);
        state.forget_unfollowed(kind);
        drop(state);
        self.served.forget(kind);
        self.work.notify_one();
        self.trouble.lock().remove(kind);
        self.waiting.lock().remove(kind);
    }

    /// The watches of a kind begin, for the first time or in another form.
    pub fn kind_is_followed(&self, codec: &Arc<ObjectCodec>, reach: &Reach, namespaced: bool) -> Vec<WatchSource> {
        let mut state = self.state.write();
        let sources = state.store.open(codec.clone(), reach.clone(), namespaced);
        state.forget_unfollowed(codec.kind());
        drop(state);
        self.work.notify_one();
        sources
    }

    /// A kind was there while lanes needed it, and is not any more.
    fn report_lost_kind(&self, kind: &Arc<Kind>) {
        let warning = format!(
            "the cluster does not serve {kind} any more: its CustomResourceDefinition was deleted, or its version, while the \
             host ran, and its objects are not seen; install the definition again if that was not meant"
        );
        for lane in self.lanes().of_kind(kind) {
            if lane.health.warn(&about_kind(kind), &warning) {
                tracing::warn!(plugin = &*lane.plugin, %kind, "{warning}");
            }
        }
    }

    fn report_waiting_lanes(&self, kind: &Arc<Kind>) {
        let lanes = self.lanes();
        let mut waiting = self.waiting.lock();
        let waiting = waiting.entry(kind.clone()).or_default();
        for lane in lanes.of_kind(kind) {
            let needs = lane.kinds().any(|(needed, optional)| needed == **kind && !optional);
            if needs && waiting.insert(lane.plugin.clone()) {
                tracing::warn!(
                    plugin = &*lane.plugin,
                    "waiting: the cluster does not serve {kind}; install what brings it (--install-crds does so for the CRDs of the plugins)"
                );
            }
        }
    }

    /// Whether the watch of a kind has trouble, which the log has told of.
    pub fn has_trouble(&self, kind: &Kind) -> bool {
        self.trouble.lock().contains_key(kind)
    }

    /// Takes in what a look past the cache has shown; none: the object is gone. Says nothing where the cache is as new.
    pub fn correct(&self, key: &Key, before: Option<&CachedObject>, live: Option<&CachedObject>) {
        let mut state = self.state.write();
        let changes = state.store.correct(key, before, live);
        self.changed(changes, None, &mut state);
    }

    /// A change that is about to be taken in, with what is seen of it decoded. None where there is none.
    fn foresee(&self, kind: &Arc<Kind>, name: &Name, new: Option<&Arc<CachedObject>>) -> Option<ChangeVisibility> {
        let state = self.state.read();
        let old = state.store.get(kind, name).cloned();
        let lanes = state.lanes.clone();
        let interest = state.dependencies.interest(kind, name);
        drop(state);
        let version = |object: &Arc<CachedObject>| (object.uid.clone(), object.resource_version.clone());
        if old.as_ref().map(version) == new.map(version) {
            return None;
        }
        let (kind, new) = (kind.clone(), new.cloned());
        let foreseen = ChangeVisibility::new(&lanes, &ObjectChange { kind, old, new });
        foreseen.decode(interest);
        Some(foreseen)
    }

    fn changed(&self, changes: Vec<ObjectChange>, foreseen: Option<ChangeVisibility>, state: &mut HostState) {
        if changes.is_empty() {
            return;
        }
        let lanes = state.lanes.clone();
        let mut foreseen = foreseen;
        for change in changes {
            let seen = foreseen.take().filter(|seen| seen.is_of(&lanes, &change));
            let seen = seen.unwrap_or_else(|| ChangeVisibility::new(&lanes, &change));
            route(&lanes, state, &change, &seen);
        }
        // Most changes are echoes of our own writes and give nobody anything to do: whoever slept is left asleep.
        if state.queue.take_ready_signal() {
            self.work.notify_one();
        }
        if !state.contributions.target_queue.is_idle() {
            self.claims.notify_one();
        }
    }
}

impl HostState {
    /// Replaces what a primary depends on.
    pub fn depend(&mut self, primary_ref: &PrimaryRef, reads: BTreeSet<Read>) {
        for (kind, path) in self.dependencies.replace(primary_ref, reads) {
            self.store.drop_index(&kind, &path);
        }
    }

    /// The lanes of a plugin share the bytes that its recorded reads may take.
    fn share_reads(&mut self, plugin: &str) {
        let of_plugin = self.lanes.iter().filter(|lane| *lane.plugin == *plugin);
        let lanes: Vec<LaneId> = of_plugin.map(|lane| lane.id).collect();
        for lane in &lanes {
            self.dependencies.allow(lane, GROUP_BYTES / lanes.len());
        }
    }

    /// Takes a change to everybody who has read what changed.
    pub fn wake_readers(&mut self, change: &ObjectChange, seen: &ChangeVisibility, cause: Cause) {
        let Woken { readers, groups } = self.dependencies.woken(&change.kind, change.name(), seen);
        for primary_ref in readers {
            self.queue
                .push_for(primary_ref.lane, &primary_ref.name, Priority::Wake, cause);
        }
        for lane in groups.iter().filter_map(|id| self.lanes.get(*id)) {
            let primaries = self.store.iter(lane.grants.primary(), None);
            for primary in primaries.filter(|primary| lane.reconciles(primary)) {
                self.queue.push_for(lane.id, &primary.name, Priority::Wake, cause);
            }
        }
    }

    /// How many objects a plugin has to serve, by whose they are.
    fn census(&self, plugin: &str) -> Census {
        let mut census = Census::new();
        for lane in self.lanes.iter().filter(|lane| *lane.plugin == *plugin) {
            let is_filtered = lane.is_filtered();
            let primaries = self.store.iter(lane.grants.primary(), None);
            for object in primaries.filter(|object| !is_filtered || lane.reconciles(object)) {
                *census.entry(Tenant::of(&object.name)).or_default() += 1;
            }
        }
        census
    }

    fn forget_previews_of(&mut self, lane: LaneId) {
        let of_lane = self.previews.iter().map(|(primary_ref, _)| primary_ref);
        let gone: Vec<_> = of_lane
            .filter(|primary_ref| primary_ref.lane == lane)
            .cloned()
            .collect();
        for primary_ref in gone {
            self.previews.forget(&primary_ref);
        }
    }

    /// The primaries of a lane depend on nothing any more.
    fn forget_readers_of(&mut self, lane: LaneId) {
        self.lost_child.retain(|primary_ref| primary_ref.lane != lane);
        for (kind, path) in self.dependencies.remove_group(&lane) {
            self.store.drop_index(&kind, &path);
        }
    }

    /// A primary depends on nothing any more.
    pub fn forget_reader(&mut self, primary_ref: &PrimaryRef) {
        self.depend(primary_ref, BTreeSet::new());
        self.lost_child.remove(primary_ref);
    }
}

/// What a warning is about that says that a kind is gone.
fn about_kind(kind: &Kind) -> String {
    format!("kind {kind}")
}

impl Sink for Hub {
    fn list_begins(&self, source: &WatchSource) {
        self.state.write().store.begin_list(source);
    }

    fn observed(&self, source: &WatchSource, object: CachedObject) {
        let object = Arc::new(object);
        let foreseen = self.foresee(&source.kind, &object.name, Some(&object));
        let mut state = self.state.write();
        let is_known = |old: &Arc<CachedObject>| old.uid == object.uid && old.is_too_deep();
        let known = |store: &Store| store.get(&source.kind, &object.name).is_some_and(is_known);
        let hidden = (object.is_too_deep() && !known(&state.store)).then(|| object.name.clone());
        let changes = state.store.upsert(source, object);
        self.changed(changes, foreseen, &mut state);
        if let Some(name) = hidden {
            self.too_deep.seen(&state, &source.kind, &name);
        }
    }

    fn deleted(&self, source: &WatchSource, name: &Name) {
        let foreseen = self.foresee(&source.kind, name, None);
        let mut state = self.state.write();
        let change = state.store.remove(source, name);
        self.changed(change.into_iter().collect(), foreseen, &mut state);
    }

    fn list_ends(&self, source: &WatchSource, version: &str) {
        let mut state = self.state.write();
        let changes = state.store.end_list(source);
        self.changed(changes, None, &mut state);
        state.forget_awaited(source, version);
        drop(state);
        self.open_synced_lanes_of(&source.kind);
    }

    fn works(&self, kind: &Arc<Kind>) {
        if let Some(trouble) = self.trouble.lock().remove(kind) {
            if trouble.is_about_connection() {
                tracing::debug!(%kind, "the watch has recovered");
            } else {
                tracing::info!(%kind, "the watch has recovered");
            }
        }
    }

    fn trouble(&self, kind: &Arc<Kind>, trouble: WatchError) {
        let before = self.trouble.lock().insert(kind.clone(), trouble.clone());
        if before.as_ref() != Some(&trouble) {
            let message = &trouble.message;
            if trouble.is_about_connection() {
                // The client's log has a line for all watches.
                tracing::debug!(%kind, trouble = message, "the watch failed; retrying with back-off");
            } else {
                tracing::warn!(%kind, trouble = message, "the watch failed; retrying with back-off");
            }
            self.open_synced_lanes_of(kind);
        }
    }

    fn unreadable(&self, source: &WatchSource, name: Option<&Name>, problem: &str) {
        tracing::warn!(kind = %source.kind, problem, "an object cannot be parsed and is skipped; its cached state stays");
        let Some(name) = name else { return };
        let mut state = self.state.write();
        state.store.keep(source, name);
        state.forget_unreadable(&Key::new(source.kind.clone(), name.clone()));
        drop(state);
        self.work.notify_one();
    }

    fn panicked(&self, kind: &Arc<Kind>, panic: &str) {
        self.stuck.fetch_add(1, Ordering::Relaxed);
        tracing::error!(%kind, panic, "the watch panicked; this is a bug of the host: report it; the kind is listed again");
    }
}
