//! Decides whose a child is: which primary of a lane it was made for, and whether that primary is still there.

use std::sync::Arc;

use pilothouse_cluster::cache::store::Store;
use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::object::{CachedObject, ControllerRef};
use pilothouse_core::Name;
use pilothouse_core::ownership::{ORPHAN_FINALIZER, OwnerLink};

use crate::lanes::lane::Lane;

/// Whether a lane's plugin has applied this object.
pub fn is_ours(lane: &Lane, object: &CachedObject) -> bool {
    object.entry(lane.writer.manager(), false).is_some()
}

/// Whether an object is to stay when its owner does not want it any more.
pub fn is_kept(object: &CachedObject) -> bool {
    object.controller.as_ref().is_some_and(|it| it.bond == OwnerLink::Kept)
}

/// Whether the host, and no garbage collector, has to delete an object when its owner is gone.
pub fn is_labelled(object: &CachedObject) -> bool {
    object.controller.as_ref().is_some_and(|it| it.bond == OwnerLink::Label)
}

/// Tells whether something strips the owner reference of an object, so that no garbage collector deletes it.
pub fn is_stripped(object: &CachedObject) -> bool {
    object
        .controller
        .as_ref()
        .is_some_and(|it| it.bond == OwnerLink::Stripped)
}

/// Tells whether the deletion of an object leaves what it owns, and the garbage collector is at it.
pub fn is_orphaning(object: &CachedObject) -> bool {
    object.deleting && object.finalizers().iter().any(|it| **it == *ORPHAN_FINALIZER)
}

/// Tells whether a lane's plugin has applied an object that names no owner any more.
pub fn is_unbound(lane: &Lane, object: &CachedObject) -> bool {
    object.controller.is_none() && object.digest.is_some() && !object.deleting && is_ours(lane, object)
}

/// Whose a child of a lane is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Custody {
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
        OwnerLink::Reference | OwnerLink::Stripped => child.name.namespace.as_ref(),
        OwnerLink::Label | OwnerLink::Kept => controller.namespace.as_ref(),
    };
    let owner = Name {
        namespace: namespace.cloned(),
        name: controller.name.clone(),
    };
    is_ours(lane, child) && !lane.selects(&owner)
}

/// Whose a child is; none if it is not the lane's matter.
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
    // A reference does not say where the owner is: in the child's namespace, or in none.
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
    // What became of the children of others is not this Plugin's to decide.
    lane.selects(&owner)
        .then(|| Custody::Orphaned(owner, controller.uid.clone()))
}

/// The objects that a lane's plugin applied for a primary and that go with it, those too that are being deleted.
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
