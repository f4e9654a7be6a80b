//! Owns the first stage: what is known of the object before the plugin is asked. Reads the cache, makes no request.

use std::sync::Arc;

use pilothouse_cluster::object::Stored;
use pilothouse_core::contract::Request;
use pilothouse_core::depth::MAX_DEPTH;
use pilothouse_core::failure::reason;
use pilothouse_core::ownership::Owner;
use pilothouse_core::{Failure, Kind};

use crate::hub::Hub;
use crate::lane::{Lane, Mode};
use crate::queue::Job;

/// What the queue's job is about.
pub enum Found {
    /// An object that the lane steers; one that is being deleted waits for the plugin's finalizer.
    Steered(Gathered),
    /// An object that is there and not steered (any more).
    Left(Left),
    /// An object in a namespace that the Plugin does not select (any more).
    Unselected(Left),
    /// Nothing, or an object that is being deleted without our finalizer: its children are collected once it is gone.
    Gone,
    /// An object whose plugin ends; it stays as it is.
    Spared,
}

/// An object to reconcile, or to finalize.
pub struct Gathered {
    /// The object as the cache has it.
    pub object: Arc<Stored>,
    /// The owner of its children.
    pub owner: Owner,
    /// What the plugin is asked.
    pub request: Request,
    /// Why it is not asked.
    pub unreadable: Option<Failure>,
}

/// An object outside the lane's filter or selection.
pub struct Left {
    /// The object as the cache has it.
    pub object: Arc<Stored>,
    /// The owner of the children that it may still have.
    pub owner: Owner,
}

/// Looks the object up.
pub fn gather(hub: &Hub, lane: &Lane, job: &Job) -> Found {
    let primary = lane.grants.primary();
    let Some(object) = hub.state.read().store.get(primary, &job.name).cloned() else {
        return Found::Gone;
    };
    let owner = Owner {
        kind: primary.clone(),
        name: object.name.clone(),
        uid: object.uid.to_string(),
    };
    if !lane.selects(&object.name) {
        return Found::Unselected(Left { object, owner });
    }
    if object.deleting && !lane.has_finalized(&object) {
        return Found::Gone;
    }
    if lane.mode == Mode::Finishing && !object.deleting {
        return Found::Spared;
    }
    if !lane.steers(&object) {
        return Found::Left(Left { object, owner });
    }
    let shown = lane.show_primary(&object);
    let unreadable = shown.is_none().then(|| too_deep(primary, &object));
    let request = Request {
        object: shown.unwrap_or_default(),
        config: lane.config.clone(),
        attempt: job.failures,
    };
    Found::Steered(Gathered {
        object,
        owner,
        request,
        unreadable,
    })
}

fn too_deep(kind: &Kind, object: &Stored) -> Failure {
    let problem = format!(
        "{} {} nests deeper than {MAX_DEPTH} levels in a field that the plugin reads, and the plugin is not called for it: make the object shallower",
        kind.kind, object.name
    );
    Failure::user(reason::TOO_DEEP, problem)
}
