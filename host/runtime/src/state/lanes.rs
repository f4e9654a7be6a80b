//! Opens, replaces and closes lanes. A lane opens, queues all of its primaries and begins to wait for all of their
//! claims in one step, so that no change in between is missed.

use std::sync::Arc;

use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::plugin::manifest::Access;
use pilothouse_core::reads::dependencies::budget::GROUP_BYTES;
use pilothouse_core::{Key, Kind, Name};
use tokio::time::Instant;

use super::{SharedState, Tables};
use crate::lanes::custody::{Custody, custody, is_orphaning, is_ours, is_unbound};
use crate::lanes::lane::Lane;
use crate::lanes::primary::{LaneId, PrimaryRef};
use crate::lanes::snapshot::Lanes;
use crate::queue::{Depth, Priority, TriggerReason};
use crate::state::tables::orphans::Witness;

/// Readiness of the kinds that a lane needs.
pub trait KindsOfLane {
    /// Returns `true` if a lane has all that it needs to open.
    fn are_ready(&self, lane: &Lane, store: &Store) -> bool;
    /// Returns the reason why the lane cannot run, if there is one.
    fn obstacle(&self, lane: &Lane) -> Option<LaneObstacle>;
}

/// Reason why a lane cannot run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneObstacle {
    /// The cluster no longer serves a kind.
    NotServed(Kind),
    /// The account of its plugin lacks rights that the lane needs.
    NotGranted,
}

/// A lane that has opened, or has been replaced while it was open.
pub struct OpenedLane {
    /// The lane.
    pub lane: Arc<Lane>,
    /// Number of objects of its primary kind.
    pub objects: usize,
    /// Objects that it reads and that nest too deep, so that they may have to be hidden from it.
    pub too_deep: Vec<(Arc<Kind>, Arc<CachedObject>)>,
}

/// Change of a lane after its kinds were checked.
pub enum LaneChange {
    /// The lane has opened.
    Opened(OpenedLane),
    /// The lane is closed until the obstacle is gone.
    Closed(Arc<Lane>, LaneObstacle),
}

impl SharedState {
    /// Snapshot of the lanes.
    pub fn lanes(&self) -> Lanes {
        self.tables.read().lanes.clone()
    }

    /// Reserves the number of a future lane.
    pub fn reserve_lane(&self) -> LaneId {
        self.tables.write().lanes.reserve()
    }

    /// Inserts a lane. If it replaces an open lane, it is opened in its place, and every primary of both is queued,
    /// after a running reconcile of it. Returns the replaced lane and the opened one.
    pub fn put_lane(&self, lane: &Arc<Lane>) -> (Option<Arc<Lane>>, Option<OpenedLane>) {
        let mut tables = self.tables.write();
        let replaced = tables.lanes.put(lane.clone());
        tables.share_reads(&lane.plugin);
        if !tables.queue.is_open(lane.id) {
            return (replaced, None);
        }
        let opened = tables.open_claims(lane);
        tables.forget_previews_of(lane.id);
        if let Some(replaced) = &replaced {
            if replaced.former_managers != lane.former_managers {
                // Objects of other managers may now be taken over.
                for kind in lane.owned_kinds() {
                    tables.refusals.forget_kind(kind);
                }
            }
            tables.enqueue_all(replaced, TriggerReason::NewVersion);
        }
        tables.dependencies.begin_anew(&lane.id);
        tables.enqueue_all(lane, TriggerReason::NewVersion);
        (replaced, Some(opened))
    }

    /// Replaces a lane by one that only differs in the kinds of earlier versions.
    pub fn exchange_lane(&self, lane: &Arc<Lane>) {
        self.tables.write().lanes.put(lane.clone());
    }

    /// Opens each selected lane whose kinds have all been listed, and closes each one that needs a kind which is no
    /// longer served, or lacks rights. Lanes that are leaving stay as they are.
    pub fn settle_lanes(&self, select: impl Fn(&Lanes) -> Vec<Arc<Lane>>, kinds: &impl KindsOfLane) -> Vec<LaneChange> {
        let mut tables = self.tables.write();
        let mut changes = Vec::new();
        for lane in select(&tables.lanes) {
            if tables.leaving.contains(&lane.id) {
                continue;
            }
            if tables.queue.is_open(lane.id) {
                if let Some(obstacle) = kinds.obstacle(&lane) {
                    tables.queue.close(lane.id);
                    changes.push(LaneChange::Closed(lane, obstacle));
                } else if tables.queue.covered(lane.id) != lane.cached_namespaces().as_ref()
                    && kinds.are_ready(&lane, &tables.store)
                {
                    tables.cover(&lane);
                }
            } else if kinds.are_ready(&lane, &tables.store) {
                let opened = tables.open_claims(&lane);
                tables.enqueue_all(&lane, TriggerReason::Started);
                changes.push(LaneChange::Opened(opened));
            }
        }
        drop(tables);
        self.work.notify_one();
        self.claims.notify_one();
        changes
    }

    /// Closes a lane for good: none of its objects is queued or handed out any more; running jobs continue.
    pub fn close_lane(&self, id: LaneId) {
        let mut tables = self.tables.write();
        tables.queue.close(id);
        tables.leaving.insert(id);
    }

    /// Waits until no job of a lane is running.
    pub async fn drain_lane(&self, id: LaneId) {
        loop {
            let ended = self.ended.notified();
            if self.tables.read().queue.depth(id, Instant::now()).running == 0 {
                return;
            }
            ended.await;
        }
    }

    /// Removes a closed lane without running jobs. Returns it.
    pub fn remove_lane(&self, id: LaneId) -> Option<Arc<Lane>> {
        let mut tables = self.tables.write();
        let tables = &mut *tables;
        tables.queue.remove(id);
        let removed = tables.lanes.remove(id);
        if let Some(lane) = &removed {
            tables.contributions.remove_lane(&tables.lanes, &mut tables.queue, lane);
        }
        tables.leaving.remove(&id);
        tables.selected.remove(&id);
        tables.forget_previews_of(id);
        tables.orphans.remove_lane(id);
        tables.paused.remove_lane(id);
        tables.earlier_desires.remove_lane(id);
        for (kind, path) in tables.dependencies.remove_group(&id) {
            tables.store.drop_index(&kind, &path);
        }
        tables.own_writes.remove_lane(id);
        tables.history.remove_lane(id);
        removed
    }

    /// Returns `true` if a lane is open.
    pub fn is_open(&self, id: LaneId) -> bool {
        self.tables.read().queue.is_open(id)
    }

    /// Returns `true` if every lane is open, unless it waits for an optional kind, and no object is queued, running or
    /// waiting for the cache.
    pub fn is_idle(&self) -> bool {
        let tables = self.tables.read();
        let mut lanes = tables.lanes.iter();
        lanes.all(|lane| tables.queue.is_open(lane.id) || lane.lacks_primary())
            && tables.queue.is_idle()
            && tables.contributions.is_idle()
    }

    /// Returns the number of primaries that a lane reconciles, and the depth of its queue.
    pub fn count(&self, lane: &Lane) -> (usize, Depth) {
        let tables = self.tables.read();
        let depth = tables.queue.depth(lane.id, Instant::now());
        if !lane.is_filtered() {
            return (tables.store.len(lane.grants.primary()), depth);
        }
        let counted = || {
            let primaries = tables.store.iter(lane.grants.primary(), None);
            primaries.filter(|object| lane.reconciles(object)).count()
        };
        // A closed lane gets no events, and a replaced one may have another filter.
        let current = tables.lanes.get(lane.id);
        let is_current = current.is_some_and(|it| std::ptr::eq(Arc::as_ptr(it), lane));
        let is_counted = is_current && tables.queue.is_open(lane.id);
        let Some(&selected) = tables.selected.get(&lane.id).filter(|_| is_counted) else {
            return (counted(), depth);
        };
        debug_assert_eq!(selected, counted(), "the primaries of {}", lane.title());
        (selected, depth)
    }

    /// Depth of each lane's queue.
    pub fn depths(&self) -> Vec<(Arc<Lane>, Depth)> {
        let (tables, now) = (self.tables.read(), Instant::now());
        let lanes = tables.lanes.iter();
        lanes
            .map(|lane| (lane.clone(), tables.queue.depth(lane.id, now)))
            .collect()
    }

    /// Queues every primary of a lane.
    pub fn push_all(&self, lane: &Lane) {
        let mut tables = self.tables.write();
        tables.dependencies.begin_anew(&lane.id);
        tables.enqueue_all(lane, TriggerReason::Resync);
        drop(tables);
        self.work.notify_one();
    }

    /// Queues the failing primaries of a lane, before their back-off ends.
    pub fn push_failing(&self, lane: &Lane) {
        self.tables.write().queue.push_failing(lane.id);
        self.work.notify_one();
    }

    /// Queues the primaries that wait for a plugin that was removed, or that now selects other primaries.
    pub fn competing_plugin_left(&self, plugin: &str) {
        let mut tables = self.tables.write();
        for primary_ref in tables.competing_waits.take(plugin) {
            tables.queue.push(
                primary_ref.lane,
                &primary_ref.name,
                Priority::Change,
                TriggerReason::PluginLeft,
            );
        }
        drop(tables);
        self.work.notify_one();
    }
}

impl Tables {
    /// Opens a lane in the queue, and begins to wait for the claims of its primaries.
    fn open_claims(&mut self, lane: &Arc<Lane>) -> OpenedLane {
        let Self {
            store,
            queue,
            lanes,
            contributions,
            paused,
            ..
        } = self;
        queue.open(lane.id, &lane.plugin, lane.title(), lane.concurrency);
        queue.cover(lane.id, lane.cached_namespaces());
        // All primaries are queued, and those that are paused are found anew.
        paused.remove_lane(lane.id);
        contributions.open_lane(store, lanes, queue, lane);
        let read = lane.grants.touched().filter(|grant| grant.allows(Access::Read));
        let read = read.filter_map(|grant| lane.served(&grant.touch.kind));
        let too_deep = read.flat_map(|served| {
            let objects = store.iter(&served.kind, None).filter(|object| object.is_too_deep());
            objects.map(move |object| (served.kind.clone(), object.clone()))
        });
        OpenedLane {
            lane: lane.clone(),
            objects: store.len(lane.grants.primary()),
            too_deep: too_deep.collect(),
        }
    }

    /// Divides the limit for recorded reads (in bytes) among the lanes of a plugin.
    fn share_reads(&mut self, plugin: &str) {
        let of_plugin = self.lanes.iter().filter(|lane| *lane.plugin == *plugin);
        let lanes: Vec<LaneId> = of_plugin.map(|lane| lane.id).collect();
        for lane in &lanes {
            self.dependencies.allow(lane, GROUP_BYTES / lanes.len());
        }
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

    /// Queues every primary of a lane, and counts those that it reconciles.
    pub(super) fn enqueue_all(&mut self, lane: &Lane, trigger: TriggerReason) {
        self.enqueue(lane, trigger, |_| true);
    }

    /// Queues the primaries that `is_meant` selects; all are counted.
    pub(super) fn enqueue(&mut self, lane: &Lane, trigger: TriggerReason, is_meant: impl Fn(&Name) -> bool) {
        let Self {
            store,
            queue,
            orphans,
            selected,
            ..
        } = self;
        let has_filter = lane.has_filter();
        let is_unwatched = trigger == TriggerReason::Started;
        let mut count = 0;
        for object in store.iter(lane.grants.primary(), None) {
            let is_selected = lane.reconciles(object);
            count += usize::from(is_selected);
            if is_orphaning(object) {
                orphans.orphan(&object.uid);
            }
            if object.deleting && is_unwatched {
                orphans.leaves_unseen(lane.id, &object.uid);
            }
            if !is_meant(&object.name) {
                continue;
            }
            // Objects that left the filter while no host watched may still have our finalizer.
            if is_selected || ((has_filter || !lane.selects(&object.name)) && lane.has_finalized(object)) {
                queue.push(lane.id, &object.name, urgency(lane, object), trigger);
            }
        }
        selected.insert(lane.id, count);
        for kind in lane.owned_kinds() {
            for child in store.iter(kind, None).filter(|child| is_ours(lane, child)) {
                match custody(store, lane, child) {
                    // These primaries may still have children of ours, too.
                    Some(Custody::Living(owner)) if is_meant(&owner) && (has_filter || is_to_prune(lane, &owner)) => {
                        queue.push(lane.id, &owner, Priority::Resync, trigger);
                    }
                    Some(Custody::Orphaned(owner, uid)) if is_meant(&owner) => {
                        queue.push(lane.id, &owner, Priority::Resync, trigger);
                        orphans.add(PrimaryRef::new(lane.id, owner), uid, Witness::Unseen);
                    }
                    None if is_unwatched && is_unbound(lane, child) => {
                        orphans.stray(lane.id, Key::new(Arc::new(kind.clone()), child.name.clone()));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Returns `true` if the children of a primary are pruned because the primary is outside of the Plugin's namespaces.
fn is_to_prune(lane: &Lane, owner: &Name) -> bool {
    lane.prunes_unselected && !lane.selects(owner)
}

/// Priority of a primary with an unknown past. After a start, one that has no status yet does not wait behind thousands
/// that were reconciled before.
fn urgency(lane: &Lane, object: &CachedObject) -> Priority {
    if lane.brings_crd && object.entry(lane.writer.manager(), true).is_none() {
        Priority::New
    } else {
        Priority::Resync
    }
}
