//! The first stage: collects the object, its owner data and the configuration before the plugin is called. Reads the
//! cache, makes no request.

use std::sync::Arc;

use pilothouse_cluster::object::CachedObject;
use pilothouse_core::ownership::Owner;
use pilothouse_core::plugin::contract::Request;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::depth::MAX_DEPTH;
use pilothouse_core::{Failure, Kind};

use crate::context::HostContext;
use crate::lanes::lane::{Lane, RunMode};
use crate::lanes::pause::is_paused;
use crate::queue::Job;
use crate::view::not_granted;

/// Subject of the queue's job.
pub enum GatherResult {
    /// An object that the lane reconciles; one that is being deleted waits for the plugin's finalizer.
    Selected(Gathered),
    /// An object that is paused, whether the lane reconciles it or it has left the filter.
    Paused(Gathered),
    /// An object that exists and is not, or no longer, reconciled.
    Filtered(ExcludedPrimary),
    /// An object that is deleted with orphan propagation.
    Orphaning(ExcludedPrimary),
    /// An object in a namespace that the Plugin does not, or no longer, select.
    Unselected(ExcludedPrimary),
    /// No object, or one that is being deleted without our finalizer: its children are collected once it is gone.
    Gone,
    /// An object whose plugin is finishing; it stays as it is.
    Kept,
}

/// An object to reconcile, or to finalize.
pub struct Gathered {
    /// The object as cached.
    pub object: Arc<CachedObject>,
    /// Owner of its children.
    pub owner: Owner,
    /// Request to the plugin.
    pub request: Request,
    /// Reason why the plugin is not called.
    pub unreadable: Option<Failure>,
}

/// An object for which the plugin is not called.
pub struct ExcludedPrimary {
    /// The object as cached.
    pub object: Arc<CachedObject>,
    /// Owner of the children that it may still have.
    pub owner: Owner,
}

/// Looks up the object.
pub fn gather(host: &HostContext, lane: &Lane, job: &Job) -> GatherResult {
    let primary = lane.grants.primary();
    let Some(object) = host.state.get(primary, &job.name) else {
        return GatherResult::Gone;
    };
    let owner = Owner {
        kind: primary.clone(),
        name: object.name.clone(),
        uid: object.uid.to_string(),
    };
    if !lane.selects(&object.name) {
        return GatherResult::Unselected(ExcludedPrimary { object, owner });
    }
    if object.deleting && host.state.is_orphaning(lane, &object, &owner) {
        return GatherResult::Orphaning(ExcludedPrimary { object, owner });
    }
    if object.deleting && !lane.has_finalized(&object) {
        return GatherResult::Gone;
    }
    if lane.mode == RunMode::Finishing && !object.deleting {
        return GatherResult::Kept;
    }
    if is_paused(&object) {
        return GatherResult::Paused(Gathered::unasked(lane, object, None));
    }
    if !lane.reconciles(&object) {
        return GatherResult::Filtered(ExcludedPrimary { object, owner });
    }
    let shown = lane.show_primary(&object);
    let unreadable = if lane.access.allows(object.name.namespace.as_deref()) {
        shown.is_none().then(|| too_deep(primary, &object))
    } else {
        Some(not_granted(&format!(
            "{} {} is not reconciled",
            primary.kind, object.name
        )))
    };
    let request = Request {
        object: shown.unwrap_or_default(),
        configuration: lane.config.clone(),
        attempt: job.failures,
    };
    GatherResult::Selected(Gathered {
        object,
        owner,
        request,
        unreadable,
    })
}

impl Gathered {
    /// Makes the input of a report for an object for which the plugin is not called, because of a failure if there is one.
    pub fn unasked(lane: &Lane, object: Arc<CachedObject>, why: Option<Failure>) -> Self {
        Self {
            owner: Owner {
                kind: lane.grants.primary().clone(),
                name: object.name.clone(),
                uid: object.uid.to_string(),
            },
            object,
            request: Request {
                object: String::new(),
                configuration: String::new(),
                attempt: 0,
            },
            unreadable: why,
        }
    }
}

fn too_deep(kind: &Kind, object: &CachedObject) -> Failure {
    let problem = format!(
        "{} {} nests deeper than {MAX_DEPTH} levels in a field that the plugin reads, so the plugin is not called for it; reduce the nesting of the object",
        kind.kind, object.name
    );
    Failure::user(Reason::TooDeep, problem)
}
