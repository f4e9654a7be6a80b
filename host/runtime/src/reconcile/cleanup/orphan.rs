//! Releases the children of a primary that is deleted with orphan propagation (`--cascade=orphan`): owner reference,
//! label and the host's annotations are removed, nothing else changes. Makes requests.
//!
//! The garbage collector removes the owner references before it removes the finalizer `orphan` from the primary.
//! Meanwhile the host writes no child that has one, because a reference that is restored then lets the child be deleted
//! once the primary is gone.

use std::sync::Arc;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::ownership::{self, Owner};
use pilothouse_core::{Failure, Retry};

use crate::context::HostContext;
use crate::lanes::custody::{is_orphaning, is_ours};
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::reconcile::contribute::contribute;
use crate::reconcile::diff::key;
use crate::reconcile::finalize;
use crate::reconcile::write::requests::{Requests, version};
use crate::state::{LeftChild, LeftChildren};

/// Number of times that a child that changes meanwhile is read again.
const LOOKS: u32 = 3;

/// The most children that are read to find out how their owner was deleted.
const WITNESSES: usize = 3;

/// Releases the children that belong to a primary by label, and the primary. The plugin is not called: what it would
/// clean up has to stay. Children with an owner reference keep the host's annotations until the primary is gone: a host
/// that starts meanwhile recognizes the kind of deletion by them. Returns `true` if anything was written.
pub async fn release_orphaned(
    host: &Arc<HostContext>,
    lane: &Arc<Lane>,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
    owner: &Owner,
) -> Result<bool, Failure> {
    host.state.orphan(&object.uid);
    let is_held = lane.has_finalized(object);
    let mut wrote = false;
    if is_held {
        let contributed = contribute(host, lane, primary_ref, object, Vec::new()).await;
        wrote = contributed.wrote;
        if let Some(failure) = contributed.failures.into_iter().next() {
            return Err(failure);
        }
    } else {
        host.state.forget_primary(lane, primary_ref);
    }
    let requests = Requests::new(host, lane, primary_ref);
    let LeftChildren {
        labelled, referring, ..
    } = host.state.left_by(lane, owner);
    wrote |= release_all(&requests, lane, owner, labelled, Ties::All).await?;
    if is_orphaning(object) || !is_held {
        // The primary runs again when the garbage collector has removed `orphan`, and is collected when it is gone.
        return Ok(wrote);
    }
    // A child may have been created after the garbage collector listed them.
    release_all(&requests, lane, owner, referring, Ties::Reference).await?;
    finalize::release_unconditionally(host, lane, primary_ref, object).await?;
    tracing::info!(
        lane = lane.title(), object = %object.name, finalizer = lane.finalizer,
        "released without a call of the plugin; its children stay, because it is deleted with `orphan`"
    );
    Ok(true)
}

/// Returns `true` if a primary is deleted with orphan propagation though no watch has shown that. It is checked once
/// for each deletion, if there are children that would be lost. An API server that does not answer is no reason to
/// wait.
pub async fn was_missed(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
    owner: &Owner,
) -> bool {
    if !object.deleting || host.state.is_known_not_orphaned(lane, &object.uid) {
        return false;
    }
    let left = host.state.left_by(lane, owner);
    if left.labelled.is_empty() || left.referring.is_empty() {
        return false;
    }
    let was_let_go = was_let_go(&Requests::new(host, lane, primary_ref), &left.referring).await;
    if matches!(was_let_go, Ok(false)) {
        host.state.exclude_orphaned(lane, &object.uid);
    }
    matches!(was_let_go, Ok(true))
}

/// Returns `true` if children that the cache shows with an owner reference have none any more: a deletion with `orphan`
/// that no watch has shown.
pub async fn was_let_go(requests: &Requests<'_>, referring: &[LeftChild]) -> Result<bool, Failure> {
    for (served, child) in referring.iter().take(WITNESSES) {
        let title = format!("{} {}", served.kind.kind, child.name);
        let live = requests.live(served, &child.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &title))?;
        if let Some(live) = live.filter(|live| live.object.uid == child.uid) {
            return Ok(live.object.controller.is_none());
        }
    }
    Ok(false)
}

/// Ties of a child to its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// The owner reference.
    Reference,
    /// The owner reference, the label and the host's annotations.
    All,
}

/// Removes the ties of children to their owner. Returns `true` if anything was written. A child that cannot be changed
/// does not delay the others.
pub async fn release_all(
    requests: &Requests<'_>,
    lane: &Lane,
    owner: &Owner,
    left: impl IntoIterator<Item = LeftChild>,
    ties: Ties,
) -> Result<bool, Failure> {
    let mut all = Ok(false);
    for (served, child) in left {
        let released = release(requests, lane, owner, (&served, &child), ties).await;
        all = match (all, released) {
            (Err(failure), _) | (Ok(_), Err(failure)) => Err(failure),
            (Ok(before), Ok(now)) => Ok(before || now),
        };
    }
    all
}

/// Removes the ties of a child to its owner. Returns `false` if there are none, or if the child belongs to another
/// owner meanwhile.
async fn release(
    requests: &Requests<'_>,
    lane: &Lane,
    owner: &Owner,
    (served, child): (&ServedKind, &CachedObject),
    ties: Ties,
) -> Result<bool, Failure> {
    let title = format!("{} {}", served.kind.kind, child.name);
    let mut looks = 0;
    loop {
        let live = requests.live(served, &child.name).await;
        let live = live.map_err(|error| error.into_failure("look at", &title))?;
        let is_left = |object: &CachedObject| {
            let is_free = object.controller.is_none() || object.is_controlled_by(&owner.uid);
            object.uid == child.uid && is_ours(lane, object) && is_free
        };
        let Some(object) = live.map(|live| live.object).filter(is_left) else {
            return Ok(false);
        };
        let mut members = ownership::unbind(&object.value()["metadata"], &owner.uid);
        members.retain(|(name, _)| ties == Ties::All || *name == "ownerReferences");
        if members.is_empty() {
            return Ok(false);
        }
        let request = lane.writer.set_metadata(served, &object, &members);
        match requests.tracked(key(served, &child.name), request, version).await {
            Ok(_) => {
                tracing::info!(
                    lane = lane.title(), owner = %owner.name, object = title,
                    "left behind, since its owner is deleted with `orphan`"
                );
                return Ok(true);
            }
            Err(error) if error.is_object_not_found() => return Ok(false),
            Err(error) if has_changed(&error) && looks < LOOKS => looks += 1,
            Err(error) => {
                let failure = error.into_failure("take the owner off", &title);
                return Err(failure.retry(Retry::Backoff));
            }
        }
    }
}

/// Returns `true` if the child has changed since the patch was made. A failed test in a JSON patch is a 422.
fn has_changed(error: &RequestError) -> bool {
    matches!(error.code(), Some(409 | 422))
}
