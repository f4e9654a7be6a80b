//! Decides which contributed fields are released: those without a claim once every primary that might claim them has
//! been reconciled.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::plugin::manifest::Access;
use pilothouse_core::reads::reach::Reach;
use pilothouse_core::{Key, Kind, Name};

use super::registry::Contributions;
use super::target::RegisteredClaim;
use crate::lanes::lane::{Lane, RunMode};
use crate::lanes::pause::is_paused;
use crate::lanes::primary::PrimaryRef;
use crate::lanes::snapshot::Lanes;
use crate::queue::WorkQueue;

/// Objects that were marked for release, with their version then: if one still holds fields in that version, its server
/// does not release them.
pub type GivenUp = HashMap<Key, Box<str>>;

/// An object with fields that a plugin contributes.
pub struct Contribution {
    /// A lane of the plugin.
    pub lane: Arc<Lane>,
    /// Served kind of the object.
    pub served: ServedKind,
    /// The object as cached.
    pub object: Arc<CachedObject>,
}

impl Contributions {
    /// Records that a primary has answered, or need not be waited for any more.
    pub fn answered(
        &mut self,
        store: &Store,
        lanes: &Lanes,
        queue: &WorkQueue,
        plugin: &Arc<str>,
        primary_ref: &PrimaryRef,
    ) {
        let Some(claims) = self.plugins.get_mut(plugin) else {
            return;
        };
        if claims.waited_for.remove(primary_ref) && claims.waited_for.is_empty() {
            self.settle(store, lanes, queue, plugin);
        }
    }

    /// Withdraws the claims of a primary that was deleted or is no longer reconciled, and stops waiting for its answer.
    pub fn withdraw(&mut self, store: &Store, lanes: &Lanes, queue: &WorkQueue, lane: &Lane, primary_ref: &PrimaryRef) {
        self.drop_claims(lane, primary_ref);
        self.answered(store, lanes, queue, &lane.plugin, primary_ref);
    }

    /// Treats the claims of a paused primary as unknown, as after a start: the fields that it holds keep their live values until it
    /// is reconciled again.
    pub fn suspend(&mut self, lane: &Lane, primary_ref: &PrimaryRef) {
        if !contributes(lane) {
            return;
        }
        let claims = self.plugins.entry(lane.plugin.clone()).or_default();
        claims.settled = false;
        claims.waited_for.insert(primary_ref.clone());
        for key in claims.by_primary.remove(primary_ref).unwrap_or_default() {
            if let Some(target) = claims.targets.get_mut(&key)
                && let Some(RegisteredClaim { claim, .. }) = target.claims.remove(primary_ref)
            {
                target.released.retain(|path, _| !claim.leaves.contains_key(path));
            }
        }
    }

    /// Waits for all primaries of a lane that opens: each may have unknown claims. Primaries of a finishing plugin are
    /// not called, so the fields that they hold stay.
    pub fn open_lane(&mut self, store: &Store, lanes: &Lanes, queue: &WorkQueue, lane: &Lane) {
        if lane.mode == RunMode::Finishing {
            return;
        }
        self.give_up(store, lane, &mut GivenUp::new());
        if !contributes(lane) {
            return;
        }
        let claims = self.plugins.entry(lane.plugin.clone()).or_default();
        claims.settled = false;
        // Deletions and pauses of primaries while it was closed were not observed.
        let primary = lane.grants.primary();
        let has_claims = |primary_ref: &PrimaryRef| {
            let object = store.get(primary, &primary_ref.name);
            object.is_some_and(|object| !is_paused(object))
        };
        let is_gone = |primary_ref: &PrimaryRef| primary_ref.lane == lane.id && !has_claims(primary_ref);
        claims.by_primary.retain(|primary_ref, _| !is_gone(primary_ref));
        for target in claims.targets.values_mut() {
            target.claims.retain(|primary_ref, _| !is_gone(primary_ref));
            target.released.clear();
        }
        let primaries = store.iter(primary, None);
        // A paused object that has left the filter has not given its fields up.
        let may_claim =
            |object: &CachedObject| lane.reconciles(object) || lane.selects(&object.name) && is_paused(object);
        let selected = primaries.filter(|primary| !primary.deleting && may_claim(primary));
        let selected = selected.map(|primary| PrimaryRef::new(lane.id, primary.name.clone()));
        claims.waited_for.extend(selected);
        self.settle(store, lanes, queue, &lane.plugin);
    }

    /// Removes a lane. Fields that its primaries hold stay: while the plugin has other lanes, their holders are known
    /// once all primaries have answered again.
    pub fn remove_lane(&mut self, lanes: &Lanes, queue: &mut WorkQueue, lane: &Lane) {
        let Some(claims) = self.plugins.get_mut(&lane.plugin) else {
            return;
        };
        let of_lane = |primary_ref: &PrimaryRef| primary_ref.lane == lane.id;
        claims.settled = false;
        claims.waited_for.retain(|primary_ref| !of_lane(primary_ref));
        claims.by_primary.retain(|primary_ref, _| !of_lane(primary_ref));
        for target in claims.targets.values_mut() {
            target.released.clear();
            target.claims.retain(|primary_ref, _| !of_lane(primary_ref));
            target.waiters.retain(|(primary_ref, _)| !of_lane(primary_ref));
            for (_, primary_ref) in target.unseen.extract_if(.., |(_, primary_ref)| of_lane(primary_ref)) {
                queue.release(primary_ref.lane, &primary_ref.name);
            }
        }
        let mut others = lanes.iter();
        if !others.any(|other| other.plugin == lane.plugin && other.id != lane.id) {
            self.plugins.remove(&lane.plugin);
        }
    }

    /// Marks contributions of earlier versions to kinds that a lane no longer contributes to: nobody can claim them, so
    /// no primary is waited for. An object is marked again only after it has changed.
    pub fn give_up(&mut self, store: &Store, lane: &Lane, asked: &mut GivenUp) {
        if lane.mode == RunMode::Preview {
            return;
        }
        for former in lane.former.iter().filter(|former| former.contributed.is_some()) {
            let Some(served) = lane.served(&former.kind) else {
                continue;
            };
            for object in objects_with_contributions(store, lane, &served.kind) {
                let key = Key::new(served.kind.clone(), object.name.clone());
                if asked.get(&key) == Some(&object.resource_version) {
                    continue;
                }
                asked.insert(key.clone(), object.resource_version.clone());
                let claims = self.plugins.entry(lane.plugin.clone()).or_default();
                claims.targets.entry(key.clone()).or_default();
                self.target_queue.mark((lane.plugin.clone(), key));
            }
        }
    }

    /// Marks all objects with unclaimed fields in the cache, once all primaries have answered.
    fn settle(&mut self, store: &Store, lanes: &Lanes, queue: &WorkQueue, plugin: &Arc<str>) {
        let own: Vec<_> = lanes
            .iter()
            .filter(|lane| lane.plugin == *plugin && contributes(lane))
            .collect();
        let Some(claims) = self.plugins.get_mut(plugin) else {
            return;
        };
        if claims.settled || !claims.waited_for.is_empty() || !own.iter().all(|lane| queue.is_open(lane.id)) {
            return;
        }
        claims.settled = true;
        claims.targets.values_mut().for_each(|target| target.released.clear());
        for (served, object) in own.into_iter().flat_map(|lane| contributed_to(store, lane)) {
            let key = Key::new(served.kind, object.name.clone());
            claims.targets.entry(key.clone()).or_default();
            self.target_queue.mark((plugin.clone(), key));
        }
    }
}

/// Returns `true` if no controller of a plugin may contribute to an object, whatever its primaries claim.
pub(super) fn is_given_up(lanes: &Lanes, plugin: &str, kind: &Kind, name: &Name) -> bool {
    let of_plugin = |lane: &&Arc<Lane>| *lane.plugin == *plugin;
    let reaches = |lane: &Arc<Lane>| {
        let grant = lane.grants.get(kind).filter(|grant| grant.allows(Access::Contributed));
        // Labels are ignored: they change.
        grant.is_some_and(|grant| Reach::within(&grant.touch.namespaces, &grant.touch.names, None).holds(name))
    };
    !lanes.of_kind(kind).filter(of_plugin).any(reaches)
}

/// A lane of a plugin that may contribute to a kind, or else one that releases leftovers there; `None` if the plugin is
/// in preview.
pub(super) fn lane_for<'a>(lanes: &'a Lanes, plugin: &str, kind: &Kind) -> Option<&'a Arc<Lane>> {
    let allows = |lane: &&Arc<Lane>| {
        let grant = lane.grants.get(kind);
        grant.is_some_and(|grant| grant.allows(Access::Contributed))
    };
    let acts = |lane: &&Arc<Lane>| *lane.plugin == *plugin && lane.mode != RunMode::Preview;
    let acting = || lanes.of_kind(kind).filter(acts);
    acting()
        .find(allows)
        .or_else(|| acting().find(|lane| lane.gives_up(kind)))
}

/// Returns `true` if primaries of a plugin are about to make claims.
pub(super) fn has_more_to_come(lanes: &Lanes, queue: &WorkQueue, plugin: &str) -> bool {
    let mut own = lanes.iter().filter(|lane| *lane.plugin == *plugin && contributes(lane));
    own.any(|lane| queue.is_busy(lane.id))
}

/// Returns `true` if primaries of a plugin are about to make claims, or are not known yet.
pub(super) fn may_claim_soon(lanes: &Lanes, queue: &WorkQueue, plugin: &str) -> bool {
    let mut own = lanes.iter().filter(|lane| *lane.plugin == *plugin && contributes(lane));
    own.any(|lane| queue.is_busy(lane.id) || !queue.is_open(lane.id))
}

/// Returns `true` if a lane may contribute anything.
pub fn contributes(lane: &Lane) -> bool {
    lane.grants.touched().any(|grant| grant.allows(Access::Contributed))
}

/// Objects with fields that a lane's plugin contributes, of the kinds that the lane may contribute to, or its earlier
/// versions could.
pub fn contributed_to<'a>(
    store: &'a Store,
    lane: &'a Lane,
) -> impl Iterator<Item = (ServedKind, &'a Arc<CachedObject>)> {
    let grants = lane.grants.touched().filter(|grant| grant.allows(Access::Contributed));
    let granted: BTreeSet<&Kind> = grants.map(|grant| &grant.touch.kind).collect();
    let former = lane.former.iter().filter(|former| former.contributed.is_some());
    let kinds: BTreeSet<&Kind> = former.map(|former| &former.kind).chain(granted).collect();
    let served = kinds.into_iter().filter_map(|kind| lane.served(kind));
    served.flat_map(move |served| {
        let objects: Vec<_> = objects_with_contributions(store, lane, &served.kind).collect();
        objects.into_iter().map(move |object| (served.clone(), object))
    })
}

/// Objects of a kind with fields that a lane's plugin contributes.
fn objects_with_contributions<'a>(
    store: &'a Store,
    lane: &'a Lane,
    kind: &Kind,
) -> impl Iterator<Item = &'a Arc<CachedObject>> {
    let is_ours = |object: &&Arc<CachedObject>| object.entry(lane.contributor.manager(), false).is_some();
    store.iter(kind, None).filter(is_ours)
}
