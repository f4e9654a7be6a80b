//! Owns what may be given up: a plugin's fields that nobody claims, once every primary that might claim them has answered.
//! Makes no request.

use std::sync::Arc;

use pilothouse_cluster::discovery::Served;
use pilothouse_cluster::object::Stored;
use pilothouse_cluster::store::Store;
use pilothouse_core::manifest::Access;
use pilothouse_core::{Key, Kind};

use crate::hub::{Reader, State};
use crate::lane::{Lane, Mode};
use crate::lanes::Lanes;

/// A primary has answered, or there is nothing to wait for any more.
pub fn answered(state: &mut State, lane: &Lane, reader: &Reader) {
    let Some(book) = state.contributions.plugins.get_mut(&lane.plugin) else {
        return;
    };
    if book.waited_for.remove(reader) && book.waited_for.is_empty() {
        settle(state, &lane.plugin);
    }
}

/// A lane opens: each of its primaries may have claims that we do not know of. Of a plugin that ends they will not be
/// asked; what is not known stays.
pub fn lane_opens(state: &mut State, lane: &Lane) {
    if !contributes(lane) || lane.mode == Mode::Finishing {
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

/// A lane goes for good. What its primaries hold stays as it is: for as long as lanes of its plugin are there, whose it
/// is will be known once they have all answered again.
pub fn lane_goes(state: &mut State, lane: &Lane) {
    let State {
        contributions,
        lanes,
        queue,
        ..
    } = state;
    let Some(book) = contributions.plugins.get_mut(&lane.plugin) else {
        return;
    };
    let of_lane = |reader: &Reader| reader.lane == lane.id;
    book.settled = false;
    book.waited_for.retain(|reader| !of_lane(reader));
    book.by_primary.retain(|reader, _| !of_lane(reader));
    for target in book.targets.values_mut() {
        target.claims.retain(|reader, _| !of_lane(reader));
        target.waiters.retain(|(reader, _)| !of_lane(reader));
        for (_, reader) in target.unseen.extract_if(.., |(_, reader)| of_lane(reader)) {
            queue.release(reader.lane, &reader.name);
        }
    }
    if !lanes
        .iter()
        .any(|other| other.plugin == lane.plugin && other.id != lane.id)
    {
        contributions.plugins.remove(&lane.plugin);
    }
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
    for (served, object) in own.into_iter().flat_map(|lane| contributed_to(store, lane)) {
        let key = Key::new(served.kind, object.name.clone());
        book.targets.entry(key.clone()).or_default();
        contributions.agenda.mark((plugin.clone(), key));
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
    of_kind.find(|lane| *lane.plugin == *plugin && lane.mode != Mode::Preview && allows(lane))
}

/// Whether a lane may contribute anything.
pub fn contributes(lane: &Lane) -> bool {
    lane.grants.touched().any(|grant| grant.allows(Access::Contributed))
}

/// The objects that have fields which a lane's plugin contributes, of the kinds that the lane may contribute to.
pub fn contributed_to<'a>(store: &'a Store, lane: &'a Lane) -> impl Iterator<Item = (Served, &'a Arc<Stored>)> {
    let grants = lane.grants.touched().filter(|grant| grant.allows(Access::Contributed));
    let served = grants.filter_map(|grant| lane.served(&grant.touch.kind));
    served.flat_map(move |served| {
        let is_ours = |object: &&Arc<Stored>| object.entry(lane.contributor.manager(), false).is_some();
        let objects = store.iter(&served.kind, None).filter(is_ours);
        objects.map(move |object| (served.clone(), object))
    })
}
