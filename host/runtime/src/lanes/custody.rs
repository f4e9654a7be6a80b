//! Decides which primary of a lane a child belongs to, and whether that primary still exists.

use std::sync::Arc;

use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::{CachedObject, ControllerRef};
use pilothouse_core::Name;
use pilothouse_core::ownership::{ORPHAN_FINALIZER, OwnerLink};

use crate::lanes::lane::Lane;

/// Returns `true` if the lane's plugin has applied this object.
pub fn is_ours(lane: &Lane, object: &CachedObject) -> bool {
    object.entry(lane.writer.manager(), false).is_some()
}

/// Returns `true` if an object stays when its owner no longer desires it.
pub fn is_kept(object: &CachedObject) -> bool {
    object.controller.as_ref().is_some_and(|it| it.bond == OwnerLink::Kept)
}

/// Returns `true` if the host, not the garbage collector, has to delete an object when its owner is gone.
pub fn is_labelled(object: &CachedObject) -> bool {
    object.controller.as_ref().is_some_and(|it| it.bond == OwnerLink::Label)
}

/// Returns `true` if the owner reference of an object is being stripped, so that the garbage collector does not delete
/// it.
pub fn is_stripped(object: &CachedObject) -> bool {
    object
        .controller
        .as_ref()
        .is_some_and(|it| it.bond == OwnerLink::Stripped)
}

/// Returns `true` if the object is being deleted with orphan propagation, and the garbage collector has not finished
/// yet.
pub fn is_orphaning(object: &CachedObject) -> bool {
    object.deleting && object.finalizers().iter().any(|it| **it == *ORPHAN_FINALIZER)
}

/// Returns `true` if the lane's plugin has applied an object that no longer names an owner.
pub fn is_unbound(lane: &Lane, object: &CachedObject) -> bool {
    object.controller.is_none() && object.digest.is_some() && !object.deleting && is_ours(lane, object)
}

/// Owner of a lane's child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Custody {
    /// A primary in the cache. A child of a deleted primary counts as a child of the one that now has its name.
    Living(Name),
    /// A primary that is not in the cache. The host has to collect the child. Holds the owner's name and UID.
    Orphaned(Name, Arc<str>),
}

/// Returns `true` if a controller is of the lane's primary kind.
pub fn is_primary_of(lane: &Lane, controller: &ControllerRef) -> bool {
    let primary = lane.grants.primary();
    *controller.group == *primary.group && *controller.kind == *primary.kind
}

/// Returns `true` if a child was applied for a primary that the lane does not select.
pub fn is_unselected_child(lane: &Lane, child: &CachedObject) -> bool {
    let Some(controller) = child.controller.as_ref().filter(|it| is_primary_of(lane, it)) else {
        return false;
    };
    let namespace = match controller.bond {
        OwnerLink::Reference | OwnerLink::Stripped => child.name.namespace.as_ref(),
        OwnerLink::Label | OwnerLink::Kept => controller.namespace.as_ref(),
    };
    let owner = Name {
        namespace: namespace.cloned(),
        name: controller.name.clone(),
    };
    is_ours(lane, child) && !lane.selects(&owner)
}

/// Returns the owner of a child; `None` if the lane is not responsible for the child.
pub fn custody(store: &Store, lane: &Lane, child: &CachedObject) -> Option<Custody> {
    let primary = lane.grants.primary();
    if is_stripped(child) {
        let controller = child.controller.as_ref()?;
        let owner = store
            .iter(primary, None)
            .find(|primary| primary.uid == controller.uid)?;
        return Some(Custody::Living(owner.name.clone()));
    }
    let controller = child.controller.as_ref().filter(|it| is_primary_of(lane, it))?;
    let place = |namespace: Option<&Arc<str>>| Name {
        namespace: namespace.cloned(),
        name: controller.name.clone(),
    };
    // An owner reference does not give the owner's namespace: it is the child's, or the owner is cluster-scoped.
    let places = match controller.bond {
        OwnerLink::Reference | OwnerLink::Stripped => vec![place(child.name.namespace.as_ref()), place(None)],
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
    // Children of primaries that this Plugin does not select are left to others.
    lane.selects(&owner)
        .then(|| Custody::Orphaned(owner, controller.uid.clone()))
}

/// Objects that a lane's plugin applied for a primary and that are deleted with it, including those already being
/// deleted.
pub fn children_of<'a>(
    store: &'a Store,
    lane: &'a Lane,
    owner: &'a str,
) -> impl Iterator<Item = (ServedKind, &'a Arc<CachedObject>)> {
    let served = lane.owned_kinds().filter_map(|kind| lane.served(kind));
    served.flat_map(move |served| {
        let children = store.children(&served.kind, owner);
        children
            .filter(move |child| is_ours(lane, child) && !is_kept(child))
            .map(move |child| (served.clone(), child))
    })
}
