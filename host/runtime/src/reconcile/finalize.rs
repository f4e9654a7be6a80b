//! Adds the plugin's finalizer to a primary before anything is created for it, and removes it when all owned objects
//! are gone. Makes requests.

use std::borrow::Cow;

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_core::status::reason::Reason;
use pilothouse_core::text::printable::first_few;
use pilothouse_core::{Failure, Retry};

use super::apply::waiting;
use super::diff::key;
use crate::context::HostContext;
use crate::context::competing_plugins::is_reconciled_by_another;
use crate::lanes::lane::Lane;
use crate::lanes::primary::PrimaryRef;
use crate::reconcile::write::requests::{Requests, Tries, version};
use crate::state::tables::echo::AwaitedEcho;

/// Number of times that an object that changes meanwhile is read again.
const LOOKS: u32 = 3;

/// Desired presence of the finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FinalizerChange {
    There,
    Gone,
}

/// Adds the finalizer, if the lane has one and the object lacks it. Returns `true` if it was added: the object runs
/// again when the cache shows it.
pub async fn set(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<bool, Failure> {
    match &lane.finalizer {
        Some(finalizer) if !object.finalizers().iter().any(|it| **it == **finalizer) => {
            rewrite(host, lane, primary_ref, object, FinalizerChange::There).await?;
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Removes the finalizer once all owned objects are gone, and waits for those that are left.
pub async fn release(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<(), Failure> {
    if !lane.has_finalized(object) {
        return Ok(());
    }
    wait_for_children(host, lane, primary_ref, object)?;
    if remove_finalizer(host, lane, primary_ref, object).await? {
        tracing::info!(lane = lane.title(), object = %object.name, finalizer = lane.finalizer, "released");
    }
    Ok(())
}

/// Removes the finalizer from an object, whatever it owns.
pub async fn release_unconditionally(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<(), Failure> {
    remove_finalizer(host, lane, primary_ref, object).await.map(drop)
}

/// Removes the finalizer. Returns `true` if it was removed.
///
/// The finalizer that the plugin declares is removed independent of its writer: a backup, a GitOps tool, an earlier
/// operator. One that only the Plugin's status lists may belong to another controller, because anybody may have written
/// the status: it is removed only if the host has set it itself; otherwise it stays, and the Plugin's warnings name it.
async fn remove_finalizer(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<bool, Failure> {
    if lane.is_former && !is_set_by_host(host, lane, primary_ref, object).await? {
        let (finalizer, title) = (lane.finalizer.as_deref().unwrap_or_default(), title(lane, object));
        let about = format!("the finalizer {finalizer} of {}", lane.grants.primary());
        let problem = format!(
            "{about} is among status.finalizers, and stays on {title} and others where the host has not set it; if it is the \
             plugin's, take it off with `pilothouse release`, and if not, remove the entry from the status"
        );
        if !lane.health.has_warning(&about) && lane.health.warn(&about, &problem) {
            tracing::warn!(lane = lane.title(), "{problem}");
        }
        return Ok(false);
    }
    rewrite(host, lane, primary_ref, object, FinalizerChange::Gone).await?;
    Ok(true)
}

/// Returns `true` if the live object's managedFields list the finalizer under the host's own manager of finalizers.
async fn is_set_by_host(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<bool, Failure> {
    let (Some(served), Some(finalizer)) = (lane.served(lane.grants.primary()), &lane.finalizer) else {
        return Ok(false);
    };
    let live = Requests::new(host, lane, primary_ref).live(&served, &object.name).await;
    let live = live.map_err(|error| error.into_failure("look at", &title(lane, object)))?;
    let live = live.filter(|live| live.object.uid == object.uid);
    let manager = lane.writer.finalizer_manager();
    let element = format!("v:{}", serde_json::Value::from(finalizer.as_str()));
    let mut managers = live.iter().flat_map(|live| &live.managers);
    Ok(managers.any(|entry| {
        entry["manager"] == *manager && !entry["fieldsV1"]["f:metadata"]["f:finalizers"][&*element].is_null()
    }))
}

/// Removes the finalizer from an object that the Plugin no longer selects, if this host has set it: another Plugin with
/// the same component, in another host, may have set it.
pub async fn unselect(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<(), Failure> {
    if !lane.has_finalized(object) || !is_set_by_host(host, lane, primary_ref, object).await? {
        return Ok(());
    }
    rewrite(host, lane, primary_ref, object, FinalizerChange::Gone).await?;
    tracing::info!(
        lane = lane.title(), object = %object.name, finalizer = lane.finalizer,
        "took the finalizer off an object outside of spec.namespaces"
    );
    Ok(())
}

/// Removes the finalizer from every primary that a lane of a removed plugin selects, whatever they own: nothing would
/// ever finalize them. Returns the primaries that still have it, with the reasons. If replicas divide the work, each
/// handles its own part.
pub async fn release_all(host: &HostContext, lane: &Lane) -> Vec<(String, Failure)> {
    let lanes = host.state.lanes();
    let mut held = host.state.primaries_of(lane);
    held.retain(|object| lane.has_finalized(object) && !is_reconciled_by_another(&lanes, lane, object));
    let mut left = Vec::new();
    for object in &held {
        let released = if host.state.owns(lane, &object.name) {
            let primary_ref = PrimaryRef {
                lane: lane.id,
                name: object.name.clone(),
            };
            remove_finalizer(host, lane, &primary_ref, object).await
        } else {
            let problem = "another replica has yet to take the finalizer off".to_owned();
            Err(Failure::cluster(Reason::ClusterUnavailable, problem))
        };
        if let Err(failure) = released {
            left.push((title(lane, object), failure));
        }
    }
    left
}

/// Writes the list of finalizers, with or without ours. An object that has changed meanwhile is read again.
async fn rewrite(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    cached: &CachedObject,
    wanted: FinalizerChange,
) -> Result<(), Failure> {
    let Some((finalizer, served)) = lane.finalizer.as_deref().zip(lane.served(lane.grants.primary())) else {
        return Ok(());
    };
    let title = title(lane, cached);
    let requests = Requests::new(host, lane, primary_ref);
    let mut object = Cow::Borrowed(cached);
    let (mut looks, mut tries) = (0, Tries::default());
    loop {
        let present: Vec<String> = object.finalizers().iter().map(ToString::to_string).collect();
        let is_there = present.iter().any(|it| it == finalizer);
        // No finalizer can be added to an object that is being deleted.
        if is_there == (wanted == FinalizerChange::There) || (wanted == FinalizerChange::There && object.deleting) {
            return Ok(());
        }
        match write(&requests, lane, &served, &object, &present, wanted).await {
            Ok(()) => return Ok(()),
            Err(error) if error.is_object_not_found() => return Ok(()),
            Err(error) if has_changed(&error) && looks < LOOKS => {
                looks += 1;
                let live = requests.live(&served, &cached.name).await;
                match live.map_err(|error| error.into_failure("look at", &title))? {
                    Some(live) if live.object.uid == cached.uid => object = Cow::Owned(live.object),
                    _ => return Ok(()),
                }
            }
            Err(error) if has_changed(&error) => {
                return Err(Failure::cluster(
                    Reason::ClusterUnavailable,
                    format!("cannot write the finalizers of {title}: it changes all the time; retrying"),
                ));
            }
            Err(error) if requests.pause_if_transient(&mut tries, &error).await => {}
            Err(error) => {
                let failure = error.into_failure("write the finalizers of", &title);
                return Err(failure.retry(Retry::Backoff));
            }
        }
    }
}

async fn write(
    requests: &Requests<'_>,
    lane: &Lane,
    served: &ServedKind,
    object: &CachedObject,
    present: &[String],
    wanted: FinalizerChange,
) -> Result<(), RequestError> {
    let finalizer = lane.finalizer.as_deref().unwrap_or_default();
    let request = async {
        match wanted {
            FinalizerChange::There => lane.writer.add_finalizer(served, object, present, finalizer).await,
            FinalizerChange::Gone => lane.writer.remove_finalizer(served, object, present, finalizer).await,
        }
    };
    // An object that is being deleted is gone with its last finalizer: there is no version to wait for.
    let awaited = |left: &CachedObject| {
        if left.deleting {
            AwaitedEcho::Deletion(left.uid.clone())
        } else {
            version(left)
        }
    };
    requests
        .tracked(key(served, &object.name), request, awaited)
        .await
        .map(drop)
}

/// Returns `true` if the object has changed since the patch was made. A failed test in a JSON patch is a 422.
fn has_changed(error: &RequestError) -> bool {
    matches!(error.code(), Some(409 | 422))
}

fn wait_for_children(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<(), Failure> {
    let left = host.state.children_of(lane, &object.uid);
    if left.is_empty() {
        return Ok(());
    }
    for (served, child) in &left {
        host.state
            .depend_on_obstacle(primary_ref, served, &child.name, Some(child));
    }
    let named = left
        .iter()
        .map(|(served, child)| format!("{} {}", served.kind.kind, child.name));
    Err(waiting(format!(
        "{} is released once what it owned is gone: {}",
        title(lane, object),
        first_few(named)
    )))
}

fn title(lane: &Lane, object: &CachedObject) -> String {
    format!("{} {}", lane.grants.primary().kind, object.name)
}
