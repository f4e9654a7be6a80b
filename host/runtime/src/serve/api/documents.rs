//! Documents of the API, version 1. Members may be added and are never removed, renamed or given another meaning within
//! a version, so clients ignore members that they do not know. docs/api.md describes each; a test compares.
//!
//! Times are RFC 3339 in UTC. Durations are seconds, sizes bytes.

use pilothouse_core::recording::Tree;
use serde::{Deserialize, Serialize};

/// `GET /api/v1/status`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct StatusDocument {
    /// The process that answers.
    pub host: HostStatus,
    /// Its plugins, by name.
    pub plugins: Vec<PluginStatus>,
    /// Objects whose last reconcile failed, those that have failed for the longest time first.
    pub failing: Vec<FailingObject>,
    /// Number of further failing objects that are not listed: there are too many, or the client may not see them.
    pub failing_not_listed: u64,
}

/// The process that answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HostStatus {
    /// The version of Pilothouse.
    pub version: String,
    /// The name of the process in events: in a pod, the pod's.
    pub instance: String,
    /// Set if it writes. A replica that does not lead has made no runs.
    pub is_leading: bool,
    /// Number of shards that it holds, if the work is divided among replicas. It then has the runs, failures and usage
    /// of these shards alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards_held: Option<u64>,
    /// Its identity in Leases, if the work is divided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Identities of all living replicas, including this one, according to their Leases, if the work is divided. To
    /// know everything, a client asks each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<String>,
    /// Start of the process.
    pub started: String,
    /// Reasons why it is not ready.
    pub not_ready: Vec<String>,
    /// Number of internal errors that it has noticed and recovered from.
    pub internal_errors: u64,
    /// Number of runs that it remembers.
    pub remembered_runs: u64,
    /// Memory that they take.
    pub remembered_runs_bytes: u64,
}

/// A plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginStatus {
    /// Its name.
    pub name: String,
    /// The version that runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The SHA-256 of its component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Set if its condition Ready is true; absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The reason of the condition.
    pub reason: String,
    /// The message of the condition: the cause and the next step, where it is not ready.
    pub message: String,
    /// The reason why the wanted version does not run; absent where it runs, or none is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<VersionObstacle>,
    /// Reasons why it does not work in full, as `status.warnings` of its Plugin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Its controllers.
    pub controllers: Vec<ControllerStatus>,
}

/// The reason why a wanted version does not run, as the condition `Reconciling` or `Stalled` of its Plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct VersionObstacle {
    /// Set if the version is refused; otherwise it is tried or waited for.
    pub is_refusal: bool,
    /// The reason of the condition.
    pub reason: String,
    /// The message of the condition: the cause and the next step.
    pub message: String,
}

/// A controller of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerStatus {
    /// Its name in the manifest.
    pub name: String,
    /// The kind that it reconciles.
    pub kind: KindName,
    /// Set if all kinds that it needs are listed, so that it reconciles; also if its own kind is optional and not served.
    pub synced: bool,
    /// Set if its own kind is optional and not served, so that it waits for the kind.
    pub lacks_kind: bool,
    /// Number of objects that it reconciles.
    pub objects: u64,
    /// Objects that are ready to be reconciled.
    pub queued: u64,
    /// Time that the oldest of them has been ready.
    pub oldest_queued_seconds: f64,
    /// Objects that are being reconciled.
    pub running: u64,
    /// Objects that wait for a time.
    pub delayed: u64,
    /// Objects that wait for the cache to show their own writes.
    pub held: u64,
    /// Objects whose last reconcile failed.
    pub failing: u64,
    /// Objects that are paused: they are neither reconciled nor written.
    pub paused: u64,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KindName {
    /// Group and version as in objects: `apps/v1`.
    pub api_version: String,
    /// Kind as in objects: `Deployment`.
    pub kind: String,
}

/// An object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectName {
    /// `apiVersion` and `kind`.
    #[serde(flatten)]
    pub kind: KindName,
    /// Absent for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// An object whose last reconcile failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailingObject {
    /// The plugin that reconciles it.
    pub plugin: String,
    /// The plugin's controller.
    pub controller: String,
    /// The object.
    pub object: ObjectName,
    /// Its failure.
    pub failure: FailureDocument,
}

/// Failure of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureDocument {
    /// Time of the first failure, as far as this process knows.
    pub since: String,
    /// Number of failures in a row.
    pub times: u64,
    /// Party that can fix it: `guest` (the plugin), `user`, `cluster` or `host`.
    pub blame: String,
    /// Reason as in the condition Reconciled; docs/conditions.md explains each.
    pub reason: String,
    /// The cause.
    pub message: String,
    /// Next step.
    pub next_step: String,
    /// Time until the next attempt; absent if only a change helps, or it is being retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_seconds: Option<f64>,
}

/// `GET /api/v1/objects?kind=KIND&namespace=NAMESPACE&name=NAME`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct ObjectDocument {
    /// The process that answers.
    pub host: HostStatus,
    /// The object that was asked about.
    pub object: ObjectName,
    /// Set if this replica reconciles it. Another one has made no runs of it.
    pub reconciled_here: bool,
    /// Set if the cache has it.
    pub exists: bool,
    /// Set if it is being deleted.
    pub deleting: bool,
    /// Set if it is paused: it is neither reconciled nor written.
    pub paused: bool,
    /// Warning about its annotation `pilothouse.dev/paused`, if the text is neither `true` nor `false`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// State of the object in each controller that reconciles it.
    pub controllers: Vec<ControllerView>,
    /// Objects for which plugins made it, if it is such an object.
    pub made_for: Vec<MakerDocument>,
}

/// Object for which another one was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MakerDocument {
    /// The plugin that made it.
    pub plugin: String,
    /// The plugin's controller.
    pub controller: String,
    /// The object for which it was made.
    pub object: ObjectName,
}

/// State of an object in a controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerView {
    /// The plugin.
    pub plugin: String,
    /// Its controller.
    pub controller: String,
    /// Set if the controller's kinds are listed, so that it reconciles.
    pub synced: bool,
    /// Position in the queue: `Idle`, `Queued`, `Held` (until the cache shows the host's own writes), `Running` or
    /// `Delayed`.
    pub state: String,
    /// Time that it has been queued or running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<f64>,
    /// Time until it runs again if nothing changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_in_seconds: Option<f64>,
    /// Its failure, if it fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureDocument>,
    /// Reads of its last call: it is reconciled again when one changes.
    pub depends_on: Vec<DependencyDocument>,
    /// Number of further ones that are not listed: there are too many, or the client may not see them.
    pub depends_on_not_listed: u64,
    /// Objects that were made for it.
    pub children: Vec<ChildDocument>,
    /// Number of further ones that are not listed.
    pub children_not_listed: u64,
    /// The objects of others to which it contributes fields.
    pub contributes_to: Vec<ObjectName>,
    /// Number of further ones that are not listed.
    pub contributes_to_not_listed: u64,
    /// Its last runs, the latest first.
    pub runs: Vec<RunDocument>,
    /// Changes of others to what was made for it, which the host has reverted, the latest first.
    pub reverted: Vec<RevertDocument>,
}

/// A read of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DependencyDocument {
    /// Kind of read: `Get` (one object), `List` (matching objects), `Obstacle` (an object that blocks a write), or
    /// `Kind` (all objects of the kind, because the limit of recorded reads was reached).
    pub read: String,
    /// The kind.
    #[serde(flatten)]
    pub kind: KindName,
    /// Absent for cluster-scoped objects and for all namespaces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The conditions of a list, as kubectl writes them: a label selector and field selectors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,
}

/// An object that was made for another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChildDocument {
    /// The object.
    #[serde(flatten)]
    pub object: ObjectName,
    /// Set if it is being deleted.
    pub deleting: bool,
    /// Fields that it yields and that other managers hold. At most 20.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub yielded: Vec<String>,
}

/// A run: one reconcile, or several in a row that were alike and wrote nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunDocument {
    /// End of the run; of several, the last.
    pub ended: String,
    /// Duration, without waiting for other objects.
    pub seconds: f64,
    /// Time that the object was queued before.
    pub queued_seconds: f64,
    /// Reason why it was queued; docs/api.md lists the values.
    pub trigger: String,
    /// Object whose change triggered it, if it was another one that the client may see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<ObjectName>,
    /// `Success`, `Gone`, `Paused` or `Failure`.
    pub result: String,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Party that can fix a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<String>,
    /// Set if it wrote anything.
    pub wrote: bool,
    /// Number of equal runs directly before.
    pub repeats: u64,
}

/// A change that the host has reverted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RevertDocument {
    /// Time of the revert.
    pub at: String,
    /// The object that had been changed.
    pub object: ObjectName,
    /// The first of the fields that were set again.
    pub fields: Vec<String>,
    /// Number of further fields.
    pub more_fields: u64,
    /// The field managers that had written them; a field that was removed has none.
    pub managers: Vec<FieldManagerDocument>,
}

/// A field manager that had written fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FieldManagerDocument {
    /// Its name, as `metadata.managedFields` has it.
    pub manager: String,
    /// Time of its last write.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// The first of the fields that it had written.
    pub fields: Vec<String>,
}

/// `GET /api/v1/usage`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsageDocument {
    /// The process that answers.
    pub host: HostStatus,
    /// Time of the count.
    pub at: String,
    /// Usage since the process started.
    pub plugins: Vec<PluginUsageDocument>,
}

/// Usage of a plugin since the process started. All but the gauges, which say so, only grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginUsageDocument {
    /// Its name.
    pub plugin: String,
    /// Reconciles that ended.
    pub reconciles: u64,
    /// Failed reconciles among them.
    pub failures: u64,
    /// Time from the start of these reconciles to their ends, including waits for the API server and for other objects.
    pub reconcile_seconds: f64,
    /// Time that the plugin's own code ran in them.
    pub call_seconds: f64,
    /// Requests to the API server in the plugin's name, without the shared watches.
    pub requests: u64,
    /// The largest linear memory of a call.
    pub largest_call_bytes: u64,
    /// Gauge: the memory for what its objects depend on.
    pub dependency_bytes: u64,
    /// Gauge: the objects that it reconciles.
    pub objects: u64,
    /// Gauge: set if its code is mapped into memory.
    pub awake: bool,
}

/// `GET /api/v1/recordings`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordingDocument {
    /// The process that answers.
    pub host: HostStatus,
    /// Set if the process that answers makes calls, and so records them.
    pub reconciled_here: bool,
    /// Set if recording has ended: the time is over, or there are enough calls.
    pub over: bool,
    /// Number of recorded calls.
    pub calls: u64,
    /// Number of calls that were dropped for lack of room.
    pub dropped: u64,
    /// Size of the calls in bytes.
    pub bytes: u64,
    /// Lines of the recording, once it has ended.
    pub lines: Vec<Tree>,
}

/// Answer in place of a document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorDocument {
    /// The error.
    pub error: ErrorDetail,
}

/// An error.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorDetail {
    /// The HTTP status code.
    pub code: u16,
    /// The cause and the next step.
    pub message: String,
}
