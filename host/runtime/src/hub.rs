//! Owns the shared state: the cache, the lanes, who depends on what, and the queue, changed together under one lock. What
//! a watch sees is routed here to the primaries that it concerns.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use pilothouse_cluster::Client;
use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::object::Stored;
use pilothouse_cluster::openapi::Schemas;
use pilothouse_cluster::store::{Change, Source, Store};
use pilothouse_cluster::watch::{Sink, is_before};
use pilothouse_core::dependencies::{ChangedObject, Dependencies, Read};
use pilothouse_core::manifest::Access;
use pilothouse_core::ownership::Bond;
use pilothouse_core::path::FieldPath;
use pilothouse_core::preview::Previews;
use pilothouse_core::query::{CheckedQuery, values_at};
use pilothouse_core::{Key, Kind, Name};
use serde_json::Value;
use tokio::sync::Notify;

use crate::clock::WallClock;
use crate::contribute::{self, Contributions, Waiters};
use crate::lane::{Lane, LaneId};
use crate::lanes::Lanes;
use crate::queue::{Capacity, Priority, Queue};
use crate::refusals::{Part, Refusals};
use crate::watches::{Need, ServedKinds};

/// A primary of a lane.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Reader {
    /// The lane.
    pub lane: LaneId,
    /// The primary.
    pub name: Name,
}

/// A write of our own that the cache has not seen yet.
#[derive(Clone, Debug)]
pub enum Awaited {
    /// The object in this resourceVersion, or later.
    Version(Box<str>),
    /// The object of this uid being deleted, or gone.
    Deletion(Arc<str>),
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
    awaited: HashMap<Key, (Awaited, Reader)>,
    /// Objects with a write of ours under way, and the last version that a watch showed meanwhile: whether that was our
    /// write is known only once the answer is there.
    writing: HashMap<Key, Option<Box<str>>>,
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

fn push_all(state: &mut State, lane: &Lane) {
    let State {
        store, queue, orphaned, ..
    } = state;
    let has_filter = lane.filter.annotation.is_some() || lane.filter.labels.is_some();
    for object in store.iter(lane.grants.primary(), None) {
        // Objects that left the filter while nobody watched may still have our finalizer.
        if lane.steers(object) || (has_filter && lane.has_finalized(object)) {
            queue.push(lane.id, &object.name, Priority::Resync);
        }
    }
    for grant in lane.grants.touched().filter(|grant| grant.allows(Access::Owned)) {
        for child in store.iter(&grant.touch.kind, None).filter(|child| is_ours(lane, child)) {
            match custody(store, lane, child) {
                // They may still have children of ours, too.
                Some(Custody::Living(owner)) if has_filter => queue.push(lane.id, &owner, Priority::Resync),
                Some(Custody::Orphaned(owner, uid)) => {
                    queue.push(lane.id, &owner, Priority::Resync);
                    let reader = Reader {
                        lane: lane.id,
                        name: owner,
                    };
                    orphaned.entry(reader).or_default().insert(uid);
                }
                _ => {}
            }
        }
    }
}

/// Whether a lane's plugin has applied this object.
fn is_ours(lane: &Lane, object: &Stored) -> bool {
    object.entry(lane.writer.manager(), false).is_some()
}

/// Whose a child of a lane is.
enum Custody {
    /// A primary's that the cache has.
    Living(Name),
    /// One's that the cache has not, or not any more, and the child is the host's to collect.
    Orphaned(Name, Arc<str>),
}

/// Whose a child is; none if it is not the lane's matter.
fn custody(store: &Store, lane: &Lane, child: &Stored) -> Option<Custody> {
    let controller = child.controller.as_ref()?;
    let primary = lane.grants.primary();
    if *controller.group != *primary.group || *controller.kind != *primary.kind {
        return None;
    }
    let place = |namespace: Option<&Arc<str>>| Name {
        namespace: namespace.cloned(),
        name: controller.name.clone(),
    };
    // A reference does not say where the owner is: in the child's namespace, or in none.
    let places = match controller.bond {
        Bond::Reference => vec![place(child.name.namespace.as_ref()), place(None)],
        Bond::Label | Bond::Kept => vec![place(controller.namespace.as_ref())],
    };
    let is_owner = |name: &&Name| store.get(primary, name).is_some_and(|it| it.uid == controller.uid);
    if let Some(owner) = places.iter().find(is_owner) {
        return Some(Custody::Living(owner.clone()));
    }
    let orphaned = controller.bond == Bond::Label && is_ours(lane, child) && !child.deleting;
    orphaned.then(|| Custody::Orphaned(place(controller.namespace.as_ref()), controller.uid.clone()))
}

/// Takes one change to everybody whom it concerns.
fn route(lanes: &Lanes, state: &mut State, change: &Change) {
    let name = change.name().clone();
    let echo = state.take_echo(change);
    let by_us = echo.is_some() || state.note_while_writing(change);
    let seen = SeenChange::new(lanes, change);
    for lane in lanes.of_kind(&change.kind) {
        if !state.queue.is_open(lane.id) {
            continue;
        }
        if *lane.grants.primary() == *change.kind {
            route_primary(lane, state, change, &seen, by_us);
        }
        if is_touched(lane, change) && !is_held_alike(change) {
            route_child(lane, state, change, by_us);
        }
    }
    contribute::target_changed(state, change);
    for reader in state.dependencies.woken(&change.kind, &name, &seen) {
        state.queue.push(reader.lane, &reader.name, Priority::Wake);
    }
    if change.new.is_none() {
        let key = Key::new(change.kind.clone(), name);
        state.refusals.forget(key.clone(), Part::Status);
        state.odd.remove(&key);
    }
}

/// The owner of a child is woken, but not by its own write; a child whose owner is gone is to be collected, whoever wrote
/// it: the owner may have gone while it was being made.
fn route_child(lane: &Lane, state: &mut State, change: &Change, by_us: bool) {
    let mut woken = BTreeSet::new();
    let objects = [change.old.as_ref(), change.new.as_ref()];
    for child in objects.into_iter().flatten() {
        if let Some(Custody::Living(owner)) = custody(&state.store, lane, child)
            && !by_us
        {
            woken.insert(owner);
        }
    }
    if let Some(child) = &change.new
        && let Some(Custody::Orphaned(owner, uid)) = custody(&state.store, lane, child)
    {
        state.orphan(lane, &owner, uid);
        woken.insert(owner);
    }
    for owner in woken {
        state.queue.push(lane.id, &owner, Priority::Change);
    }
}

fn route_primary(lane: &Lane, state: &mut State, change: &Change, seen: &SeenChange<'_>, by_us: bool) {
    let name = change.name();
    let Some(new) = &change.new else {
        let reader = Reader {
            lane: lane.id,
            name: name.clone(),
        };
        state.forget_reader(&reader);
        contribute::withdraw(state, lane, &reader);
        state.queue.forget(lane.id, name);
        if let Some(old) = &change.old
            && state.has_labelled_children(lane, &old.uid)
        {
            state.orphan(lane, name, old.uid.clone());
            state.queue.push(lane.id, name, Priority::Change);
        }
        return;
    };
    let steered_before = change.old.as_ref().is_some_and(|old| lane.steers(old));
    if !lane.steers(new) && !steered_before {
        return;
    }
    let status_drifts = || lane.brings_crd && !by_us && seen.status_differs();
    if seen.primary_differs(lane) || status_drifts() {
        state.queue.push(lane.id, name, Priority::Change);
    }
}

fn is_touched(lane: &Lane, change: &Change) -> bool {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .any(|object| is_ours(lane, object))
}

fn is_held_alike(change: &Change) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.is_held_like(new),
        _ => false,
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

    /// A primary is gone that had children which no garbage collector takes away.
    fn orphan(&mut self, lane: &Lane, owner: &Name, uid: Arc<str>) {
        let reader = Reader {
            lane: lane.id,
            name: owner.clone(),
        };
        self.orphaned.entry(reader).or_default().insert(uid);
    }

    fn has_labelled_children(&self, lane: &Lane, owner: &str) -> bool {
        self.children_of(lane, owner)
            .any(|(_, child)| child.controller.as_ref().is_some_and(|it| it.bond == Bond::Label))
    }

    /// The objects that a lane's plugin applied for a primary and that go with it, those too that are being deleted.
    pub fn children_of<'a>(
        &'a self,
        lane: &'a Lane,
        owner: &'a str,
    ) -> impl Iterator<Item = (Served, &'a Arc<Stored>)> {
        let owned = lane.grants.touched().filter(|grant| grant.allows(Access::Owned));
        let served = owned.filter_map(|grant| lane.served(&grant.touch.kind));
        served.flat_map(move |served| {
            let children = self.store.children(&served.kind, owner);
            let kept = |child: &Stored| child.controller.as_ref().is_some_and(|it| it.bond == Bond::Kept);
            children
                .filter(move |child| is_ours(lane, child) && !kept(child))
                .map(move |child| (served.clone(), child))
        })
    }

    /// A write of an object begins.
    pub fn begin_write(&mut self, key: Key) {
        self.writing.insert(key, None);
    }

    /// A write of an object is over. When it had success, its primary waits for the cache to see it.
    pub fn end_write(&mut self, key: Key, awaited: Option<Awaited>, reader: &Reader) {
        let seen = self.writing.remove(&key).flatten();
        match (&awaited, seen) {
            (Some(Awaited::Version(version)), Some(seen)) if seen == *version => return,
            (_, Some(_)) => self.queue.push(reader.lane, &reader.name, Priority::Change),
            (_, None) => {}
        }
        if let Some(awaited) = awaited {
            self.await_echo(key, awaited, reader);
        }
    }

    /// Whether a write of the object is under way; whose the change is will be known when it is over.
    fn note_while_writing(&mut self, change: &Change) -> bool {
        let key = Key::new(change.kind.clone(), change.name().clone());
        let Some(seen) = self.writing.get_mut(&key) else {
            return false;
        };
        *seen = Some(
            change
                .new
                .as_ref()
                .map_or_else(Box::default, |new| new.resource_version.clone()),
        );
        true
    }

    /// Waits for the cache to see a write before its primary runs again.
    fn await_echo(&mut self, key: Key, awaited: Awaited, reader: &Reader) {
        let object = self.store.get(&key.kind, &key.name);
        if is_seen(&awaited, object.map(|object| &**object)) {
            return;
        }
        self.queue.hold(reader.lane, &reader.name);
        if let Some((_, before)) = self.awaited.insert(key, (awaited, reader.clone())) {
            self.queue.release(before.lane, &before.name);
        }
    }

    /// Whether a change shows a write of ours. Says whose, when it shows exactly that write and nothing more.
    fn take_echo(&mut self, change: &Change) -> Option<Reader> {
        let key = Key::new(change.kind.clone(), change.name().clone());
        let (awaited, _) = self.awaited.get(&key)?;
        let new = change.new.as_deref();
        if !is_seen(awaited, new) {
            return None;
        }
        let exact = match awaited {
            Awaited::Version(version) => new.is_some_and(|new| new.resource_version == *version),
            Awaited::Deletion(_) => true,
        };
        let (_, reader) = self.awaited.remove(&key)?;
        self.queue.release(reader.lane, &reader.name);
        exact.then_some(reader)
    }

    /// A complete list has come: writes from before it that it does not show were undone by somebody since.
    fn forget_awaited(&mut self, source: &Source, listed: &str) {
        let about = |key: &Key| key.kind == source.kind && source.scope.has(&key.name);
        let overtaken: Vec<_> = self
            .awaited
            .iter()
            .filter(|(key, _)| about(key))
            .filter(|(key, (awaited, _))| {
                let object = self.store.get(&key.kind, &key.name).map(|object| &**object);
                let undone = |version: &str| object.is_none() && !is_before(listed, version);
                is_seen(awaited, object) || matches!(awaited, Awaited::Version(version) if undone(version))
            })
            .map(|(key, _)| key.clone())
            .collect();
        for key in overtaken {
            if let Some((_, reader)) = self.awaited.remove(&key) {
                self.queue.release(reader.lane, &reader.name);
            }
        }
    }
}

/// Whether an object as the cache has it shows a write: in that version or a later one, where versions have an order.
fn is_seen(awaited: &Awaited, object: Option<&Stored>) -> bool {
    match (awaited, object) {
        (Awaited::Version(_), None) => false,
        (Awaited::Version(version), Some(object)) => {
            object.resource_version == *version || is_before(version, &object.resource_version)
        }
        (Awaited::Deletion(_), None) => true,
        (Awaited::Deletion(uid), Some(object)) => object.deleting || object.uid != *uid,
    }
}

/// A change as readers see it; what is compared is computed once for all readers of a lane.
struct SeenChange<'a> {
    lanes: &'a Lanes,
    change: &'a Change,
    differs: OnceCell<bool>,
    visible: RefCell<HashMap<LaneId, bool>>,
    status: OnceCell<bool>,
    values: OnceCell<[Option<Value>; 2]>,
}

impl<'a> SeenChange<'a> {
    fn new(lanes: &'a Lanes, change: &'a Change) -> Self {
        Self {
            lanes,
            change,
            differs: OnceCell::new(),
            visible: RefCell::default(),
            status: OnceCell::new(),
            values: OnceCell::new(),
        }
    }

    /// Whether anything differs that anybody may see.
    fn differs(&self) -> bool {
        *self.differs.get_or_init(|| match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => !old.has_text_of(new),
            _ => true,
        })
    }

    /// Whether a primary differs for its lane: in what the plugin sees, or because it goes.
    fn primary_differs(&self, lane: &Lane) -> bool {
        match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => {
                old.deleting != new.deleting || (self.differs() && lane.show_primary(old) != lane.show_primary(new))
            }
            _ => true,
        }
    }

    fn status_differs(&self) -> bool {
        *self.status.get_or_init(|| match (&self.change.old, &self.change.new) {
            (Some(old), Some(new)) => self.differs() && status(old) != status(new),
            _ => true,
        })
    }

    /// The object before and after, parsed.
    fn values(&self) -> &[Option<Value>; 2] {
        let Change { kind: _, old, new } = self.change;
        self.values
            .get_or_init(|| [old, new].map(|object| object.as_ref().map(|object| object.value())))
    }

    fn is_found(&self, object: Option<&Value>, query: &CheckedQuery) -> bool {
        object.is_some_and(|object| query.matches(self.change.name(), object))
    }
}

/// The status that the cache has of an object.
pub fn status(object: &Stored) -> Option<Value> {
    #[derive(serde::Deserialize)]
    struct Head {
        status: Option<Value>,
    }
    serde_json::from_str::<Head>(&object.text())
        .expect("the cache holds objects")
        .status
}

impl ChangedObject<Reader> for SeenChange<'_> {
    fn is_visible_to(&self, reader: &Reader) -> bool {
        *self.visible.borrow_mut().entry(reader.lane).or_insert_with(|| {
            let Some(lane) = self.lanes.get(reader.lane) else {
                return false;
            };
            let show = |object: &Option<Arc<Stored>>| {
                object
                    .as_ref()
                    .and_then(|object| lane.show_read(&self.change.kind, object))
            };
            self.differs() && show(&self.change.old) != show(&self.change.new)
        })
    }

    fn matched(&self, query: &CheckedQuery) -> bool {
        self.is_found(self.values()[0].as_ref(), query)
    }

    fn matches(&self, query: &CheckedQuery) -> bool {
        self.is_found(self.values()[1].as_ref(), query)
    }

    fn values(&self, path: &FieldPath) -> BTreeSet<String> {
        let objects = self.values().iter().flatten();
        objects
            .flat_map(|object| values_at(path, object).map(std::borrow::Cow::into_owned))
            .collect()
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
