//! Owns the shared state: the cache, the lanes, who depends on what, and the queue, changed together under one lock. What
//! a watch sees is routed here to the primaries that it concerns.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pilothouse_cluster::Client;
use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::object::Stored;
use pilothouse_cluster::openapi::Schemas;
use pilothouse_cluster::store::{Change, Source, Store};
use pilothouse_cluster::watch::Sink;
use pilothouse_core::dependencies::{Dependencies, Read};
use pilothouse_core::preview::Previews;
use pilothouse_core::{Key, Kind, Name};
use tokio::sync::Notify;

use crate::clock::WallClock;
use crate::contribute::{self, Contributions, Waiters};
use crate::echo::Awaited;
use crate::lane::{Lane, LaneId};
use crate::lanes::Lanes;
use crate::queue::{Capacity, Queue};
use crate::refusals::Refusals;
use crate::route::{push_all, route};
use crate::watches::{Need, ServedKinds};

/// A primary of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reader {
    /// The lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
}

/// What the server made of an apply of ours and does not hold as it was sent; remembered so that it costs one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Odd {
    /// The digest of what was applied.
    pub digest: Box<str>,
    /// What the server has since: the field set of our entry, or the status.
    pub left: Box<str>,
}

/// Everything that one lock guards.
pub struct State {
    /// The cache.
    pub store: Store,
    /// Who has read what.
    pub dependencies: Dependencies<Reader>,
    /// What is to be done.
    pub queue: Queue,
    /// Whose work it is. A lane that is replaced keeps its number, and with it what is queued and what was read.
    pub lanes: Lanes,
    /// Writes that the cache has not seen yet.
    pub awaited: HashMap<Key, (Awaited, Reader)>,
    /// Objects with a write of ours under way, and the last version that a watch showed meanwhile: whether that was our
    /// write is known only once the answer is there.
    pub writing: HashMap<Key, Option<Box<str>>>,
    /// Children and statuses that the server does not hold as they were applied.
    pub odd: HashMap<Key, Odd>,
    /// Who contributes what to which object.
    pub contributions: Contributions,
    /// Bodies that the server refuses for good.
    pub refusals: Refusals,
    /// Uids of primaries that are gone, or out of sight, and whose children are the host's to collect.
    pub orphaned: HashMap<Reader, BTreeSet<Arc<str>>>,
    /// What plugins that are in preview would do.
    pub previews: Previews<Reader>,
}

/// The shared state, and what never changes beside it.
pub struct Hub {
    /// The cache, the lanes, the dependencies and the queue.
    pub state: RwLock<State>,
    /// How the cluster serves the kinds that are watched.
    pub served: Arc<ServedKinds>,
    /// The time of day.
    pub clock: WallClock,
    /// The plugins whose webhooks an API server asks.
    webhooks: RwLock<BTreeSet<Arc<str>>>,
    /// Told whenever the queue may have something to do.
    pub work: Notify,
    /// Told whenever more is known of a kind, or less.
    settled: Notify,
    /// Told whenever there may be something to contribute.
    pub claims: Notify,
    /// How values are merged.
    pub schemas: Schemas,
    /// The primaries that wait for what becomes of their claims.
    pub waiters: Waiters,
    /// The last trouble of each kind's watch, so that a message comes when the cause changes and not at each try.
    trouble: Mutex<HashMap<Arc<Kind>, String>>,
    /// Who was told that a kind is not served: the plugins' names by kind.
    waiting: Mutex<HashMap<Arc<Kind>, BTreeSet<Arc<str>>>>,
}

impl Hub {
    /// An empty hub.
    pub fn new(client: Client, clock: WallClock, capacity: Capacity) -> Self {
        Self {
            state: RwLock::new(State {
                store: Store::default(),
                dependencies: Dependencies::default(),
                queue: Queue::new(capacity),
                lanes: Lanes::default(),
                awaited: HashMap::new(),
                writing: HashMap::new(),
                odd: HashMap::new(),
                contributions: Contributions::default(),
                refusals: Refusals::default(),
                orphaned: HashMap::new(),
                previews: Previews::default(),
            }),
            served: Arc::default(),
            clock,
            webhooks: RwLock::default(),
            work: Notify::new(),
            settled: Notify::new(),
            claims: Notify::new(),
            schemas: Schemas::new(client),
            waiters: Waiters::default(),
            trouble: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    /// Whether an API server asks this plugin before it stores an object.
    pub fn has_webhooks(&self, plugin: &str) -> bool {
        self.webhooks.read().contains(plugin)
    }

    /// The lanes as they are now.
    pub fn lanes(&self) -> Lanes {
        self.state.read().lanes.clone()
    }

    /// Puts a lane in its place. One that is new is closed until all its kinds are listed; one that replaces another goes
    /// on where that one was, and has every primary of both reconciled, each after what of it is under way.
    pub fn put_lane(&self, lane: &Arc<Lane>) {
        let mut state = self.state.write();
        let replaced = state.lanes.put(lane.clone());
        if state.queue.is_open(lane.id) {
            if let Some(replaced) = replaced {
                push_all(&mut state, &replaced);
            }
            push_all(&mut state, lane);
        }
        drop(state);
        self.settle_lanes();
    }

    /// Asks for a reconcile of every primary of a lane.
    pub fn push_all(&self, lane: &Lane) {
        let mut state = self.state.write();
        push_all(&mut state, lane);
        drop(state);
        self.work.notify_one();
    }

    /// Opens the lanes whose kinds have all been listed, and closes those that need a kind which is not served any more.
    pub fn settle_lanes(&self) {
        let mut state = self.state.write();
        for lane in state.lanes.clone().iter() {
            if !state.queue.is_open(lane.id) {
                if !self.is_ready_in(lane, &state.store) {
                    continue;
                }
                tracing::info!(
                    lane = lane.title(),
                    objects = state.store.len(lane.grants.primary()),
                    "lane opens"
                );
                state.queue.open(lane.id, &lane.plugin, lane.concurrency);
                contribute::lane_opens(&mut state, lane);
                push_all(&mut state, lane);
            } else if let Some((kind, _)) = lane
                .kinds()
                .find(|(kind, optional)| !optional && self.served.is_missing(kind))
            {
                tracing::warn!(lane = lane.title(), %kind, "lane closes: the cluster does not serve the kind any more");
                state.queue.close(lane.id);
            }
        }
        drop(state);
        self.settled.notify_waiters();
        self.work.notify_one();
        self.claims.notify_one();
    }

    /// Whether all that a lane needs is served and listed.
    pub fn is_ready(&self, lane: &Lane) -> bool {
        self.is_ready_in(lane, &self.state.read().store)
    }

    /// Waits for all that a lane needs to be served and listed.
    #[allow(dead_code, reason = "no plugin takes over from another yet")]
    pub async fn ready(&self, lane: &Lane) {
        loop {
            let settled = self.settled.notified();
            if self.is_ready(lane) {
                return;
            }
            settled.await;
        }
    }

    fn is_ready_in(&self, lane: &Lane, store: &Store) -> bool {
        lane.kinds().all(|(kind, optional)| {
            if self.served.get(&kind).is_none() {
                return optional && self.served.is_missing(&kind);
            }
            let Need { projection, reach, .. } = lane.need(&kind);
            store.has(&kind, &projection, &reach)
        })
    }

    /// The cluster serves a kind, in this way from now on.
    pub fn kind_is_served(&self, served: &Served) {
        self.served.set(&served.kind, Some(served.clone()));
        self.schemas.forget(&served.kind);
        let waiting = self.waiting.lock().remove(&served.kind).unwrap_or_default();
        for plugin in waiting {
            tracing::info!(plugin = &*plugin, kind = %served.kind, "what was missing is there");
        }
        self.settle_lanes();
    }

    /// The cluster does not serve a kind (any more). Those who cannot do without it are closed before what the cache had
    /// of it goes, so that nobody takes its objects for deleted one by one.
    pub fn kind_is_missing(&self, kind: &Arc<Kind>) {
        self.say_who_waits(kind);
        if !self.served.set(kind, None) {
            return;
        }
        self.settle_lanes();
        let mut state = self.state.write();
        let changes = state.store.empty(kind);
        self.changed(changes, &mut state);
    }

    /// Nobody needs a kind any more.
    #[allow(dead_code, reason = "plugins do not go yet")]
    pub fn forget_kind(&self, kind: &Kind) {
        self.state.write().store.close(kind);
        self.served.forget(kind);
        self.trouble.lock().remove(kind);
        self.waiting.lock().remove(kind);
    }

    fn say_who_waits(&self, kind: &Arc<Kind>) {
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

    fn changed(&self, changes: Vec<Change>, state: &mut State) {
        if changes.is_empty() {
            return;
        }
        let lanes = state.lanes.clone();
        for change in changes {
            route(&lanes, state, &change);
        }
        self.work.notify_one();
        self.claims.notify_one();
    }
}

impl State {
    /// Replaces what a primary depends on.
    pub fn depend(&mut self, reader: &Reader, reads: BTreeSet<Read>) {
        for (kind, path) in self.dependencies.replace(reader, reads) {
            self.store.drop_index(&kind, &path);
        }
    }

    /// A primary depends on nothing any more.
    pub fn forget_reader(&mut self, reader: &Reader) {
        self.depend(reader, BTreeSet::new());
    }
}

impl Sink for Hub {
    fn list_begins(&self, source: &Source) {
        self.state.write().store.begin_list(source);
    }

    fn observed(&self, source: &Source, object: Stored) {
        let mut state = self.state.write();
        let changes = state.store.upsert(source, object);
        self.changed(changes, &mut state);
    }

    fn deleted(&self, source: &Source, name: &Name) {
        let mut state = self.state.write();
        let change = state.store.remove(source, name);
        self.changed(change.into_iter().collect(), &mut state);
    }

    fn list_ends(&self, source: &Source, version: &str) {
        let mut state = self.state.write();
        let changes = state.store.end_list(source);
        self.changed(changes, &mut state);
        state.forget_awaited(source, version);
        drop(state);
        self.settle_lanes();
    }

    fn works(&self, kind: &Arc<Kind>) {
        if self.trouble.lock().remove(kind).is_some() {
            tracing::info!(%kind, "the watch works again");
        }
    }

    fn trouble(&self, kind: &Arc<Kind>, trouble: &str) {
        let before = self.trouble.lock().insert(kind.clone(), trouble.to_owned());
        if before.as_deref() != Some(trouble) {
            tracing::warn!(%kind, trouble, "the watch has trouble; it is tried again");
        }
    }

    fn unreadable(&self, kind: &Arc<Kind>, problem: &str) {
        tracing::error!(%kind, problem, "an object cannot be read; what was known of it stays");
    }
}
