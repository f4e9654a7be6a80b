//! Makes the documents about the host as a whole: its plugins, and the failing objects.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use pilothouse_cluster::write::permissions::Permission;
use pilothouse_core::{Key, Kind, Name};
use tokio::time::Instant;

use super::documents::{
    ControllerStatus, FailingObject, FailureDocument, HostStatus, KindName, ObjectName, PluginStatus, StatusDocument,
    VersionObstacle,
};
use super::next_step::next_step;
use crate::context::HostContext;
use crate::lanes::lane::Lane;
use crate::lanes::served_kinds::ServedKinds;
use crate::plugins::PluginRegistry;
use crate::process::clock::rfc3339;
use crate::queue::{ObjectState, QueuedObject};
use crate::serve::readiness;
use crate::state::FailingPrimary;
use crate::state::tables::history::LastingFailure;

/// The most failing objects that are listed.
const MOST_FAILING: usize = 100;

/// Fixed facts of the process.
#[derive(Clone, Debug)]
pub struct ProcessFacts {
    /// The version of Pilothouse.
    pub version: &'static str,
    /// Its name in events.
    pub instance: String,
    /// Start, in milliseconds since the epoch.
    pub started: u64,
}

/// Status of the process that answers.
pub fn host(process: &ProcessFacts, host: &HostContext, registry: &PluginRegistry) -> HostStatus {
    let ProcessFacts {
        version,
        instance,
        started,
    } = process;
    let (runs, bytes) = host.state.remembered_runs();
    let share = host.shards.lock().clone();
    HostStatus {
        version: (*version).to_owned(),
        instance: instance.clone(),
        is_leading: host.leadership.leads(),
        shards_held: share.as_ref().map(|share| share.held as u64),
        identity: share.as_ref().map(|share| share.identity.clone()),
        replicas: share.map(|share| share.replicas).unwrap_or_default(),
        started: rfc3339(*started),
        not_ready: readiness::missing(host, registry),
        internal_errors: host.internal_errors(),
        remembered_runs: runs as u64,
        remembered_runs_bytes: bytes as u64,
    }
}

/// The status, and for each failing object the right that it takes to see it.
pub fn status(
    process: &ProcessFacts,
    context: &HostContext,
    registry: &PluginRegistry,
) -> (StatusDocument, Vec<Option<Permission>>) {
    let (lanes, _) = context.state.figures();
    let mut controllers: BTreeMap<Arc<str>, Vec<ControllerStatus>> = BTreeMap::new();
    let mut all = 0;
    for figures in lanes {
        let (lane, depth) = (figures.lane, figures.depth);
        all += depth.failing;
        let objects = objects(context, &lane);
        controllers
            .entry(lane.plugin.clone())
            .or_default()
            .push(ControllerStatus {
                name: lane.controller.clone(),
                kind: kind_name(lane.grants.primary()),
                synced: figures.is_synced,
                lacks_kind: lane.lacks_primary(),
                objects: objects as u64,
                queued: depth.ready as u64,
                oldest_queued_seconds: depth.oldest.as_secs_f64(),
                running: depth.running as u64,
                delayed: depth.delayed as u64,
                held: depth.unseen as u64,
                failing: depth.failing as u64,
                paused: figures.paused as u64,
            });
    }
    let plugins = registry.summaries().into_iter().map(|summary| PluginStatus {
        controllers: controllers.remove(&summary.name).unwrap_or_default(),
        name: summary.name.to_string(),
        version: summary.version,
        digest: summary.digest,
        ready: summary.condition.holds,
        reason: summary.condition.reason.to_owned(),
        message: summary.condition.message,
        obstacle: summary.obstacle.map(|fact| VersionObstacle {
            is_refusal: summary.is_stalled,
            reason: fact.reason.to_owned(),
            message: fact.message,
        }),
        warnings: summary.warnings,
    });
    let plugins = plugins.collect();
    let mut failing = context.state.failing();
    failing.sort_by_cached_key(|it| (it.failure.since, it.lane.id, it.name.clone()));
    let rights = failing.iter().take(MOST_FAILING).map(|failing| {
        let kind = failing.lane.grants.primary();
        right_to_see(&context.kinds.served(), kind, &failing.name)
    });
    let rights = rights.collect();
    let listed: Vec<FailingObject> = failing.iter().take(MOST_FAILING).map(failing_object).collect();
    let document = StatusDocument {
        host: host(process, context, registry),
        plugins,
        failing_not_listed: all.saturating_sub(listed.len()) as u64,
        failing: listed,
    };
    (document, rights)
}

/// Number of a controller's objects that this replica reconciles.
pub fn objects(context: &HostContext, lane: &Lane) -> usize {
    if context.shards.lock().is_some() {
        return context.state.count_owned(lane);
    }
    let (objects, _) = context.state.count(lane);
    objects
}

fn failing_object(failing: &FailingPrimary) -> FailingObject {
    let FailingPrimary {
        lane,
        name,
        failure,
        queued,
    } = failing;
    FailingObject {
        plugin: lane.plugin.to_string(),
        controller: lane.controller.clone(),
        object: object_name(lane.grants.primary(), name),
        failure: failure_document(failure, *queued),
    }
}

/// Document about a failure.
pub fn failure_document(known: &LastingFailure, queued: QueuedObject) -> FailureDocument {
    let LastingFailure { since, times, failure } = known;
    FailureDocument {
        since: rfc3339(*since),
        times: u64::from(*times),
        blame: failure.blame.to_string(),
        reason: failure.reason.as_str().to_owned(),
        message: failure.message.clone(),
        next_step: next_step(failure).to_owned(),
        retry_in_seconds: next_run(queued),
    }
}

/// Seconds until an object runs again if nothing changes.
pub fn next_run(queued: QueuedObject) -> Option<f64> {
    match queued.state {
        ObjectState::Delayed(until) => Some(seconds_until(until)),
        ObjectState::Idle | ObjectState::Queued(_) | ObjectState::Held | ObjectState::Running(_) => None,
    }
}

fn seconds_until(time: Instant) -> f64 {
    let left = time.saturating_duration_since(Instant::now());
    // A thousandth of a second is exact enough for people, and reads better.
    Duration::from_millis(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)).as_secs_f64()
}

/// The right to get an object. With it, or with the right to list it, a client may see it here; `None` if the kind is
/// not served, so that nobody has the right.
pub fn right_to_see(served: &ServedKinds, kind: &Kind, name: &Name) -> Option<Permission> {
    let served = served.get(kind)?;
    Some(Permission {
        group: kind.group.clone(),
        resource: served.plural,
        namespace: name.namespace.as_deref().map(str::to_owned),
        name: Some(name.name.to_string()),
        verb: "get",
    })
}

/// Document about a kind.
pub fn kind_name(kind: &Kind) -> KindName {
    KindName {
        api_version: kind.api_version(),
        kind: kind.kind.clone(),
    }
}

/// Document about an object's name.
pub fn object_name(kind: &Kind, name: &Name) -> ObjectName {
    ObjectName {
        kind: kind_name(kind),
        namespace: name.namespace.as_deref().map(str::to_owned),
        name: name.name.to_string(),
    }
}

/// Document about a key.
pub fn key_name(key: &Key) -> ObjectName {
    object_name(&key.kind, &key.name)
}
