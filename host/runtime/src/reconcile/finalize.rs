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

/// Change of an object's finalizers.
#[derive(Clone, Copy)]
struct FinalizerChange<'a> {
    add: Option<&'a str>,
    remove: &'a [&'a str],
}

/// Adds the finalizer, if the lane has one and the object lacks it, and removes those of earlier versions that the host
/// has set. Returns `true` if the object was changed: it runs again when the cache shows it.
pub async fn set(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<bool, Failure> {
    let own = lane.finalizer.as_deref();
    let add = own.filter(|own| !object.finalizers().iter().any(|it| **it == **own));
    let changed = async {
        let former = former_finalizers(host, lane, primary_ref, object).await?;
        let change = FinalizerChange { add, remove: &former };
        rewrite(host, lane, primary_ref, object, change).await?;
        Ok::<_, Failure>(add.is_some() || !former.is_empty())
    };
    match changed.await {
        // The version may have no right to change its primaries any more: the finalizer of an earlier one stays then.
        Err(failure) if add.is_none() => {
            if host.failure_log.take_news(lane, primary_ref, &failure) {
                tracing::warn!(
                    lane = lane.title(), object = %object.name, %failure,
                    "cannot remove the finalizer of an earlier version; retrying at the next reconcile"
                );
            }
            Ok(false)
        }
        changed => changed,
    }
}

/// Removes the finalizers once all owned objects are gone, and waits for those that are left.
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
    if remove_finalizers(host, lane, primary_ref, object).await? {
        tracing::info!(lane = lane.title(), object = %object.name, finalizer = lane.finalizer, "released");
    }
    Ok(())
}

/// Removes the finalizers from an object, whatever it owns.
pub async fn release_unconditionally(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<(), Failure> {
    remove_finalizers(host, lane, primary_ref, object).await.map(drop)
}

/// Removes the finalizer that the plugin declares, independent of its writer (a backup, a GitOps tool, an earlier
/// operator), and those of earlier versions that the host has set. Returns `true` if any was removed.
async fn remove_finalizers(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<bool, Failure> {
    let mut remove = former_finalizers(host, lane, primary_ref, object).await?;
    remove.extend(lane.finalizers_of(object).filter(|it| lane.declares(it)));
    let change = FinalizerChange {
        add: None,
        remove: &remove,
    };
    rewrite(host, lane, primary_ref, object, change).await?;
    Ok(!remove.is_empty())
}

/// Finalizers of an object that only the Plugin's status lists and that the host has set itself. Any other may belong to
/// another controller, because anybody may have written the status: it stays, and the Plugin's warnings name it.
pub async fn former_finalizers<'a>(
    host: &HostContext,
    lane: &'a Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<Vec<&'a str>, Failure> {
    let listed: Vec<&str> = lane.finalizers_of(object).filter(|it| !lane.declares(it)).collect();
    let ours = set_by_host(host, lane, primary_ref, object, &listed).await?;
    for finalizer in listed.iter().filter(|it| !ours.contains(it)) {
        let title = title(lane, object);
        let about = format!("the finalizer {finalizer} of {}", lane.grants.primary());
        let problem = format!(
            "{about} is among status.finalizers, and stays on {title} and others where the host has not set it; if it is the \
             plugin's, take it off with `pilothouse release`, and if not, remove the entry from the status"
        );
        if !lane.health.has_warning(&about) && lane.health.warn(&about, &problem) {
            tracing::warn!(lane = lane.title(), "{problem}");
        }
    }
    Ok(ours)
}

/// Those of these finalizers that the live object's managedFields list under the host's own manager of finalizers.
async fn set_by_host<'a>(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
    finalizers: &[&'a str],
) -> Result<Vec<&'a str>, Failure> {
    let served = lane.served(lane.grants.primary()).filter(|_| !finalizers.is_empty());
    let Some(served) = served else {
        return Ok(Vec::new());
    };
    let live = Requests::new(host, lane, primary_ref).live(&served, &object.name).await;
    let live = live.map_err(|error| error.into_failure("look at", &title(lane, object)))?;
    let live = live.filter(|live| live.object.uid == object.uid);
    let manager = lane.writer.finalizer_manager();
    let managers = live.iter().flat_map(|live| &live.managers);
    let own: Vec<_> = managers.filter(|entry| entry["manager"] == *manager).collect();
    let is_own = |finalizer: &&str| {
        let element = format!("v:{}", serde_json::Value::from(*finalizer));
        let mut entries = own.iter();
        entries.any(|entry| !entry["fieldsV1"]["f:metadata"]["f:finalizers"][&*element].is_null())
    };
    Ok(finalizers.iter().copied().filter(is_own).collect())
}

/// Removes the finalizers from an object that the Plugin no longer selects, if this host has set them: another Plugin
/// with the same component, in another host, may have set them.
pub async fn unselect(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    object: &CachedObject,
) -> Result<(), Failure> {
    let present: Vec<&str> = lane.finalizers_of(object).collect();
    let remove = set_by_host(host, lane, primary_ref, object, &present).await?;
    if remove.is_empty() {
        return Ok(());
    }
    let change = FinalizerChange {
        add: None,
        remove: &remove,
    };
    rewrite(host, lane, primary_ref, object, change).await?;
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
            remove_finalizers(host, lane, &primary_ref, object).await
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

/// Writes the changed list of finalizers. An object that has changed meanwhile is read again.
async fn rewrite(
    host: &HostContext,
    lane: &Lane,
    primary_ref: &PrimaryRef,
    cached: &CachedObject,
    change: FinalizerChange<'_>,
) -> Result<(), Failure> {
    let Some(served) = lane.served(lane.grants.primary()) else {
        return Ok(());
    };
    let title = title(lane, cached);
    let requests = Requests::new(host, lane, primary_ref);
    let mut object = Cow::Borrowed(cached);
    let (mut looks, mut tries) = (0, Tries::default());
    loop {
        let Some(wanted) = change.of(&object) else {
            return Ok(());
        };
        match write(&requests, lane, &served, &object, &wanted).await {
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

impl FinalizerChange<'_> {
    /// The finalizers of an object after the change; `None` if nothing changes.
    fn of(self, object: &CachedObject) -> Option<Vec<String>> {
        let present = object.finalizers();
        let stays = present.iter().filter(|present| !self.remove.contains(&&***present));
        let mut wanted: Vec<String> = stays.map(ToString::to_string).collect();
        // No finalizer can be added to an object that is being deleted.
        let add = self
            .add
            .filter(|add| !object.deleting && !wanted.iter().any(|it| it == add));
        wanted.extend(add.map(str::to_owned));
        (wanted.len() != present.len() || add.is_some()).then_some(wanted)
    }
}

async fn write(
    requests: &Requests<'_>,
    lane: &Lane,
    served: &ServedKind,
    object: &CachedObject,
    wanted: &[String],
) -> Result<(), RequestError> {
    let request = lane.writer.set_finalizers(served, object, wanted);
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
