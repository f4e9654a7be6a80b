//! Owns the first stage: what is known of the object before the plugin is asked. Reads the cache, makes no request.

use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_core::contract::Request;
use pilothouse_core::diff::Owner;

use crate::hub::Hub;
use crate::lane::Lane;
use crate::queue::Job;

/// What the queue's job is about.
pub enum Found {
    /// An object that the lane steers.
    Steered(Gathered),
    /// An object that is alive and not steered (any more).
    Left(Left),
    /// Nothing, or an object that is being deleted: its children are the garbage collector's.
    Gone,
}

/// An object to reconcile.
pub struct Gathered {
    /// The object as the cache has it.
    pub object: Arc<Stored>,
    /// The owner of its children.
    pub owner: Owner,
    /// What the plugin is asked.
    pub request: Request,
}

/// An object outside the lane's filter.
pub struct Left {
    /// The owner of the children that it may still have.
    pub owner: Owner,
}

/// Looks the object up.
pub fn gather(hub: &Hub, lane: &Lane, job: &Job) -> Found {
    let primary = lane.grants.primary();
    let object = hub.state.read().store.get(primary, &job.name).cloned();
    let Some(object) = object.filter(|object| !object.deleting) else {
        return Found::Gone;
    };
    let owner = Owner {
        kind: primary.clone(),
        name: object.name.clone(),
        uid: object.uid.to_string(),
    };
    if !lane.steers(&object) {
        return Found::Left(Left { owner });
    }
    let request = Request {
        object: lane.show_primary(&object),
        config: lane.config.clone(),
        attempt: job.failures,
    };
    Found::Steered(Gathered { object, owner, request })
}
