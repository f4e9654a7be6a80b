//! Decides which primaries a watch event requeues: the primary itself, the owner of a child, and the primaries that
//! have read the object.

use std::collections::BTreeSet;
use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::{CachedObject, ControllerRef};
use pilothouse_cluster::store::{ObjectChange, Store};
use pilothouse_core::ownership::OwnerLink;
use pilothouse_core::{Key, Name};

use crate::contribute;
use crate::hub::{HostState, PrimaryRef};
use crate::lane::Lane;
use crate::lanes::Lanes;
use crate::queue::{Cause, Priority};
use crate::refusals::RefusedPart;
use crate::visibility::ChangeVisibility;

/// Asks for a reconcile of every primary of a lane, and counts those that it reconciles.
pub fn enqueue_all(state: &mut HostState, lane: &Lane) {
    let HostState {
        store,
        queue,
        orphaned,
        selected,
        ..
    } = state;
    let has_filter = lane.has_filter();
    let mut count = 0;
    for object in store.iter(lane.grants.primary(), None) {
        let is_selected = lane.reconciles(object);
        count += usize::from(is_selected);
        // Objects that left the filter while nobody watched may still have our finalizer.
        if is_selected || ((has_filter || !lane.selects(&object.name)) && lane.has_finalized(object)) {
            queue.push(lane.id, &object.name, urgency(lane, object));
        }
    }
    selected.insert(lane.id, count);
    for kind in lane.owned_kinds() {
        for child in store.iter(kind, None).filter(|child| is_ours(lane, child)) {
            match custody(store, lane, child) {
                // They may still have children of ours, too.
                Some(Custody::Living(owner)) if has_filter || is_to_prune(lane, &owner) => {
                    queue.push(lane.id, &owner, Priority::Resync);
                }
                Some(Custody::Orphaned(owner, uid)) => {
                    queue.push(lane.id, &owner, Priority::Resync);
                    let primary_ref = PrimaryRef {
                        lane: lane.id,
                        name: owner,
                    };
                    orphaned.entry(primary_ref).or_default().insert(uid);
                }
                _ => {}
            }
        }
    }
}

/// Whether what the plugin made for a primary is pruned because the primary is outside of the Plugin's namespaces.
fn is_to_prune(lane: &Lane, owner: &Name) -> bool {
    lane.prunes_unselected && !lane.selects(owner)
}

/// How urgent a primary is of which nobody knows what has happened to it. At a start, one that has no status yet does not
/// wait behind thousands that have been looked at before.
fn urgency(lane: &Lane, object: &CachedObject) -> Priority {
    if lane.brings_crd && object.entry(lane.writer.manager(), true).is_none() {
        Priority::New
    } else {
        Priority::Resync
    }
}

/// Whether a lane's plugin has applied this object.
pub fn is_ours(lane: &Lane, object: &CachedObject) -> bool {
    object.entry(lane.writer.manager(), false).is_some()
}

/// Whether an object is to stay when its owner does not want it any more.
pub fn is_kept(object: &CachedObject) -> bool {
    object.controller.as_ref().is_some_and(|it| it.bond == OwnerLink::Kept)
}

/// Whose a child of a lane is.
enum Custody {
    /// A primary's that the cache has. A child of a predecessor counts as that of the primary that has its name now.
    Living(Name),
    /// One's that the cache has not, or not any more, and the child is the host's to collect.
    Orphaned(Name, Arc<str>),
}

/// Whether a controller is of a lane's primary kind.
pub fn is_primary_of(lane: &Lane, controller: &ControllerRef) -> bool {
    let primary = lane.grants.primary();
    *controller.group == *primary.group && *controller.kind == *primary.kind
}

/// Whether a child was applied for a primary that the lane does not select.
pub fn is_unselected_child(lane: &Lane, child: &CachedObject) -> bool {
    let Some(controller) = child.controller.as_ref().filter(|it| is_primary_of(lane, it)) else {
        return false;
    };
    let namespace = match controller.bond {
        OwnerLink::Reference => child.name.namespace.as_ref(),
        OwnerLink::Label | OwnerLink::Kept => controller.namespace.as_ref(),
    };
    let owner = Name {
        namespace: namespace.cloned(),
        name: controller.name.clone(),
    };
    is_ours(lane, child) && !lane.selects(&owner)
}

/// Whose a child is; none if it is not the lane's matter.
fn custody(store: &Store, lane: &Lane, child: &CachedObject) -> Option<Custody> {
    let primary = lane.grants.primary();
    let controller = child.controller.as_ref().filter(|it| is_primary_of(lane, it))?;
    let place = |namespace: Option<&Arc<str>>| Name {
        namespace: namespace.cloned(),
        name: controller.name.clone(),
    };
    // A reference does not say where the owner is: in the child's namespace, or in none.
    let places = match controller.bond {
        OwnerLink::Reference => vec![place(child.name.namespace.as_ref()), place(None)],
        OwnerLink::Label | OwnerLink::Kept => vec![place(controller.namespace.as_ref())],
    };
    let is_owner = |name: &&Name| store.get(primary, name).is_some_and(|it| it.uid == controller.uid);
    if let Some(owner) = places.iter().find(is_owner) {
        return Some(Custody::Living(owner.clone()));
    }
    if controller.bond != OwnerLink::Label || !is_ours(lane, child) || child.deleting {
        return None;
    }
    let owner = place(controller.namespace.as_ref());
    if store.get(primary, &owner).is_some() {
        return Some(Custody::Living(owner));
    }
    // What became of the children of others is not this Plugin's to decide.
    lane.selects(&owner)
        .then(|| Custody::Orphaned(owner, controller.uid.clone()))
}

/// Enqueues every primary that a change concerns.
pub fn route(lanes: &Lanes, state: &mut HostState, change: &ObjectChange, seen: &ChangeVisibility) {
    let name = change.name().clone();
    let echo = state.take_echo(change);
    let by_us = echo.is_some() || state.writing.note(change);
    for lane in lanes.of_kind(&change.kind) {
        if !state.queue.is_open(lane.id) {
            continue;
        }
        if *lane.grants.primary() == *change.kind {
            route_primary(lane, state, change, seen, by_us);
        }
        if is_touched(lane, change) && !is_held_alike(lane, change) {
            route_child(lane, state, change, by_us);
        }
    }
    contribute::target_changed(state, change);
    let cause = if by_us { Cause::Ours } else { Cause::Others };
    state.wake_readers(change, seen, cause);
    if change.new.is_none() {
        let key = Key::new(change.kind.clone(), name);
        for part in RefusedPart::OF_STATUS {
            state.refusals.forget(key.clone(), part);
        }
        state.unpersisted.remove(&key);
    }
}

/// The owner of a child is woken, but not by its own write; a child whose owner is gone is to be collected, whoever wrote
/// it: the owner may have gone while it was being made.
fn route_child(lane: &Lane, state: &mut HostState, change: &ObjectChange, by_us: bool) {
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
        if change.new.is_none() {
            state.lost_child.insert(PrimaryRef {
                lane: lane.id,
                name: owner.clone(),
            });
        }
        state.queue.push(lane.id, &owner, Priority::Change);
    }
}

fn route_primary(lane: &Lane, state: &mut HostState, change: &ObjectChange, seen: &ChangeVisibility, by_us: bool) {
    let name = change.name();
    let [was_selected, is_selected] =
        [&change.old, &change.new].map(|object| object.as_ref().is_some_and(|object| lane.reconciles(object)));
    if let Some(count) = state.selected.get_mut(&lane.id) {
        *count = *count + usize::from(is_selected) - usize::from(was_selected);
    }
    let Some(new) = &change.new else {
        let primary_ref = PrimaryRef {
            lane: lane.id,
            name: name.clone(),
        };
        state.forget_primary(lane, &primary_ref);
        state.queue.forget(lane.id, name);
        lane.health.gone(lane.id, name);
        if let Some(old) = &change.old
            && lane.selects(name)
            && state.has_labelled_children(lane, &old.uid)
        {
            state.orphan(lane, name, old.uid.clone());
            state.queue.push(lane.id, name, Priority::Change);
        }
        return;
    };
    if lane.is_former {
        if state.has_left_something(lane, new) {
            state.queue.push(lane.id, name, Priority::Resync);
        }
        return;
    }
    if !is_selected && !was_selected {
        return;
    }
    let status_drifts = || lane.brings_crd && !by_us && seen.status_differs();
    if seen.primary_differs(lane) || status_drifts() {
        state.queue.push_for(lane.id, name, Priority::Change, seen.cause(by_us));
    }
}

fn is_touched(lane: &Lane, change: &ObjectChange) -> bool {
    [&change.old, &change.new]
        .into_iter()
        .flatten()
        .any(|object| is_ours(lane, object))
}

/// What others hold of a child, or the plugin itself contributes to it, is not its owner's matter.
fn is_held_alike(lane: &Lane, change: &ObjectChange) -> bool {
    match (&change.old, &change.new) {
        (Some(old), Some(new)) => old.is_held_like(new, |manager| manager == lane.writer.manager()),
        _ => false,
    }
}

impl HostState {
    /// A primary is gone, or about to go without the plugin being asked: nothing is known on its behalf any more.
    pub fn forget_primary(&mut self, lane: &Lane, primary_ref: &PrimaryRef) {
        self.forget_reader(primary_ref);
        self.previews.forget(primary_ref);
        self.competing_waits.forget(primary_ref);
        contribute::withdraw(self, lane, primary_ref);
    }

    /// A primary is gone that had children which no garbage collector takes away.
    fn orphan(&mut self, lane: &Lane, owner: &Name, uid: Arc<str>) {
        let primary_ref = PrimaryRef {
            lane: lane.id,
            name: owner.clone(),
        };
        self.orphaned.entry(primary_ref).or_default().insert(uid);
    }

    fn has_labelled_children(&self, lane: &Lane, owner: &str) -> bool {
        self.children_of(lane, owner)
            .any(|(_, child)| child.controller.as_ref().is_some_and(|it| it.bond == OwnerLink::Label))
    }

    /// The objects that a lane's plugin applied for a primary and that go with it, those too that are being deleted.
    pub fn children_of<'a>(
        &'a self,
        lane: &'a Lane,
        owner: &'a str,
    ) -> impl Iterator<Item = (ServedKind, &'a Arc<CachedObject>)> {
        let served = lane.owned_kinds().filter_map(|kind| lane.served(kind));
        served.flat_map(move |served| {
            let children = self.store.children(&served.kind, owner);
            children
                .filter(move |child| is_ours(lane, child) && !is_kept(child))
                .map(move |child| (served.clone(), child))
        })
    }
}
