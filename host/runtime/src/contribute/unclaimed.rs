//! Decides which contributed fields are given up: those that nobody claims once every primary that might claim them has
//! been reconciled. Makes no request.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::store::Store;
use pilothouse_core::manifest::Access;
use pilothouse_core::reach::Reach;
use pilothouse_core::{Key, Kind, Name};

use crate::hub::{HostState, PrimaryRef};
use crate::lane::{Lane, RunMode};
use crate::lanes::Lanes;
use crate::leftovers::GivenUp;

/// A primary has answered, or there is nothing to wait for any more.
pub fn answered(state: &mut HostState, lane: &Lane, primary_ref: &PrimaryRef) {
    let Some(book) = state.contributions.plugins.get_mut(&lane.plugin) else {
        return;
    };
    if book.waited_for.remove(primary_ref) && book.waited_for.is_empty() {
        settle(state, &lane.plugin);
    }
}

/// A lane opens: each of its primaries may have claims that we do not know of. Of a plugin that ends they will not be
/// asked; what is not known stays.
pub fn lane_opens(state: &mut HostState, lane: &Lane) {
    if lane.mode == RunMode::Finishing {
        return;
    }
    give_up(state, lane, &mut GivenUp::new());
    if !contributes(lane) {
        return;
    }
    let HostState {
        store, contributions, ..
    } = state;
    let book = contributions.plugins.entry(lane.plugin.clone()).or_default();
    book.settled = false;
    // Who went while it was closed was not seen going.
    let primary = lane.grants.primary();
    let is_gone =
        |primary_ref: &PrimaryRef| primary_ref.lane == lane.id && store.get(primary, &primary_ref.name).is_none();
    book.by_primary.retain(|primary_ref, _| !is_gone(primary_ref));
    for target in book.targets.values_mut() {
        target.claims.retain(|primary_ref, _| !is_gone(primary_ref));
    }
    let primaries = store.iter(primary, None);
    let steered = primaries.filter(|primary| !primary.deleting && lane.reconciles(primary));
    book.waited_for.extend(steered.map(|primary| PrimaryRef {
        lane: lane.id,
        name: primary.name.clone(),
    }));
    settle(state, &lane.plugin);
}

/// A lane goes for good. What its primaries hold stays as it is: for as long as lanes of its plugin are there, whose it
/// is will be known once they have all answered again.
pub fn lane_goes(state: &mut HostState, lane: &Lane) {
    let HostState {
        contributions,
        lanes,
        queue,
        ..
    } = state;
    let Some(book) = contributions.plugins.get_mut(&lane.plugin) else {
        return;
    };
    let of_lane = |primary_ref: &PrimaryRef| primary_ref.lane == lane.id;
    book.settled = false;
    book.waited_for.retain(|primary_ref| !of_lane(primary_ref));
    book.by_primary.retain(|primary_ref, _| !of_lane(primary_ref));
    for target in book.targets.values_mut() {
        target.claims.retain(|primary_ref, _| !of_lane(primary_ref));
        target.waiters.retain(|(primary_ref, _)| !of_lane(primary_ref));
        for (_, primary_ref) in target.unseen.extract_if(.., |(_, primary_ref)| of_lane(primary_ref)) {
            queue.release(primary_ref.lane, &primary_ref.name);
        }
    }
    if !lanes
        .iter()
        .any(|other| other.plugin == lane.plugin && other.id != lane.id)
    {
        contributions.plugins.remove(&lane.plugin);
    }
}

/// Marks what earlier versions of a plugin contributed to kinds that a lane does not contribute to any more: nobody can
/// claim that, so nobody is waited for. What was asked for already is marked again when it has changed.
pub fn give_up(state: &mut HostState, lane: &Lane, asked: &mut GivenUp) {
    if lane.mode == RunMode::Preview {
        return;
    }
    let HostState {
        store, contributions, ..
    } = state;
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
            let book = contributions.plugins.entry(lane.plugin.clone()).or_default();
            book.targets.entry(key.clone()).or_default();
            contributions.target_queue.mark((lane.plugin.clone(), key));
        }
    }
}

/// Whether no controller of a plugin may contribute to an object, whatever its primaries say.
pub fn is_given_up(lanes: &Lanes, plugin: &str, kind: &Kind, name: &Name) -> bool {
    let of_plugin = |lane: &&Arc<Lane>| *lane.plugin == *plugin;
    let reaches = |lane: &Arc<Lane>| {
        let grant = lane.grants.get(kind).filter(|grant| grant.allows(Access::Contributed));
        // Whatever the labels: they change.
        grant.is_some_and(|grant| Reach::within(&grant.touch.namespaces, &grant.touch.names, None).holds(name))
    };
    !lanes.of_kind(kind).filter(of_plugin).any(reaches)
}

/// Once everybody has answered, what nobody claims is looked for in the whole cache.
fn settle(state: &mut HostState, plugin: &Arc<str>) {
    let HostState {
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
    for (served, object) in own.into_iter().flat_map(|lane| contributed_to(store, lane)) {
        let key = Key::new(served.kind, object.name.clone());
        book.targets.entry(key.clone()).or_default();
        contributions.target_queue.mark((plugin.clone(), key));
    }
}

/// A lane of a plugin that may contribute to a kind, or else one that gives up what is left there; none of a plugin that is
/// in preview.
pub fn lane_for<'a>(lanes: &'a Lanes, plugin: &str, kind: &Kind) -> Option<&'a Arc<Lane>> {
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

/// Whether a lane may contribute anything.
pub fn contributes(lane: &Lane) -> bool {
    lane.grants.touched().any(|grant| grant.allows(Access::Contributed))
}

/// The objects that have fields which a lane's plugin contributes, of the kinds that the lane may contribute to, or its
/// earlier versions did.
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

/// The objects of a kind that have fields which a lane's plugin contributes.
fn objects_with_contributions<'a>(
    store: &'a Store,
    lane: &'a Lane,
    kind: &Kind,
) -> impl Iterator<Item = &'a Arc<CachedObject>> {
    let is_ours = |object: &&Arc<CachedObject>| object.entry(lane.contributor.manager(), false).is_some();
    store.iter(kind, None).filter(is_ours)
}
