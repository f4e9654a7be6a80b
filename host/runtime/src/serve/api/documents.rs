//! Owns the documents of the API, version 1. Members may be added and are never removed, renamed or given another meaning
//! within a version, so clients ignore members that they do not know. docs/api.md describes each; a test compares.
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
    /// How many more fail that are not listed: there are too many, or the client may not see them.
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
    /// Whether it writes. A replica that does not lead has made no runs.
    pub is_leading: bool,
    /// How many shards it holds, where the work is divided among replicas. It then has the runs, failures and usage of these
    /// shards alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards_held: Option<u64>,
    /// Where the work is divided: its identity in Leases.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Where the work is divided: the identities of all replicas that live, by their Leases; this one is among them. To know
    /// everything, a client asks each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replicas: Vec<String>,
    /// When it began.
    pub started: String,
    /// What keeps it from being ready, each in words.
    pub not_ready: Vec<String>,
    /// Mistakes of its own that it has noticed and recovered from.
    pub internal_errors: u64,
    /// How many runs it remembers.
    pub remembered_runs: u64,
    /// The memory that they take.
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
    /// Whether its condition Ready is true; absent while that is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// The reason of the condition.
    pub reason: String,
    /// The message of the condition: the cause and the next step, where it is not ready.
    pub message: String,
    /// What keeps it from working in full, as `status.warnings` of its Plugin.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Its controllers.
    pub controllers: Vec<ControllerStatus>,
}

/// A controller of a plugin.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerStatus {
    /// Its name in the manifest.
    pub name: String,
    /// The kind that it reconciles.
    pub kind: KindName,
    /// Whether all kinds that it needs are listed, so that it reconciles.
    pub synced: bool,
    /// How many objects it reconciles.
    pub objects: u64,
    /// Objects that are ready to be reconciled.
    pub queued: u64,
    /// How long the oldest of them has been so.
    pub oldest_queued_seconds: f64,
    /// Objects that are being reconciled.
    pub running: u64,
    /// Objects that wait for a time.
    pub delayed: u64,
    /// Objects that wait for the cache to show their own writes.
    pub held: u64,
    /// Objects whose last reconcile failed.
    pub failing: u64,
}

/// A kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KindName {
    /// As objects spell it: `apps/v1`.
    pub api_version: String,
    /// As objects spell it: `Deployment`.
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
    /// Why.
    pub failure: FailureDocument,
}

/// Why an object fails.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FailureDocument {
    /// Since when, as far as this process knows.
    pub since: String,
    /// How often in a row.
    pub times: u64,
    /// Who can fix it: `guest` (the plugin), `user`, `cluster` or `host`.
    pub blame: String,
    /// As the condition Reconciled has it; docs/conditions.md explains each.
    pub reason: String,
    /// The cause.
    pub message: String,
    /// What to do about it.
    pub next_step: String,
    /// In how long it is tried again; absent if only a change helps, or it is being tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_seconds: Option<f64>,
}

/// `GET /api/v1/objects?kind=KIND&namespace=NAMESPACE&name=NAME`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ObjectDocument {
    /// The process that answers.
    pub host: HostStatus,
    /// The object that was asked about.
    pub object: ObjectName,
    /// Whether this replica reconciles it. One that does not has made no runs of it.
    pub reconciled_here: bool,
    /// Whether the cache has it.
    pub exists: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// What each controller that reconciles it knows of it.
    pub controllers: Vec<ControllerView>,
    /// The objects for which plugins made it, if it is such an object.
    pub made_for: Vec<MakerDocument>,
}

/// For which object another one was made.
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

/// What a controller knows of an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ControllerView {
    /// The plugin.
    pub plugin: String,
    /// Its controller.
    pub controller: String,
    /// Whether the controller's kinds are listed, so that it reconciles.
    pub synced: bool,
    /// Where the object is: `Idle`, `Queued`, `Held` (until the cache shows the host's own writes), `Running` or `Delayed`.
    pub state: String,
    /// How long it has been queued or has been running.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_seconds: Option<f64>,
    /// In how long it runs again if nothing changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_run_in_seconds: Option<f64>,
    /// Why it fails, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureDocument>,
    /// What its last call has read: it is reconciled again when that changes.
    pub depends_on: Vec<DependencyDocument>,
    /// How many more there are that are not listed: there are too many, or the client may not see them.
    pub depends_on_not_listed: u64,
    /// What was made for it.
    pub children: Vec<ChildDocument>,
    /// How many more there are that are not listed.
    pub children_not_listed: u64,
    /// The objects of others to which it contributes fields.
    pub contributes_to: Vec<ObjectName>,
    /// How many more there are that are not listed.
    pub contributes_to_not_listed: u64,
    /// Its last runs, the latest first.
    pub runs: Vec<RunDocument>,
    /// Changes of others to what was made for it, which the host has reverted, the latest first.
    pub reverted: Vec<RevertDocument>,
}

/// Something that a call has read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct DependencyDocument {
    /// How: `Get` (one object), `List` (those that match), `Obstacle` (an object that stands in the way of a write), or
    /// `Kind` (all objects of the kind, because there was no room to remember which).
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

/// Something that was made for an object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ChildDocument {
    /// Which.
    #[serde(flatten)]
    pub object: ObjectName,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A run: one reconcile, or several in a row that were alike and wrote nothing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunDocument {
    /// When it ended; of several, the last.
    pub ended: String,
    /// How long it took, without waiting for other objects.
    pub seconds: f64,
    /// How long the object was queued before.
    pub queued_seconds: f64,
    /// What triggered it; docs/api.md lists the values.
    pub trigger: String,
    /// The object whose change triggered it, if it was another one that the client may see.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triggered_by: Option<ObjectName>,
    /// `Success`, `Gone` or `Failure`.
    pub result: String,
    /// The reason of a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who can fix a failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blame: Option<String>,
    /// Whether it wrote anything.
    pub wrote: bool,
    /// How often the like happened right before.
    pub repeats: u64,
}

/// A change that the host has reverted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RevertDocument {
    /// When.
    pub at: String,
    /// The object that had been changed.
    pub object: ObjectName,
    /// The first of the fields that were set again.
    pub fields: Vec<String>,
    /// How many there were beside these.
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
    /// When it wrote last.
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
    /// When this was counted.
    pub at: String,
    /// Since the process began.
    pub plugins: Vec<PluginUsageDocument>,
}

/// What a plugin has used since the process began. All but the gauges, which say so, only grow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PluginUsageDocument {
    /// Its name.
    pub plugin: String,
    /// Reconciles that ended.
    pub reconciles: u64,
    /// Those of them that failed.
    pub failures: u64,
    /// The time from the start of these reconciles to their ends, waiting for the API server and for other objects included.
    pub reconcile_seconds: f64,
    /// The time in which the plugin's own code ran in them.
    pub call_seconds: f64,
    /// Requests to the API server in the plugin's name. Watches are shared, and not among them.
    pub requests: u64,
    /// The largest linear memory of a call.
    pub largest_call_bytes: u64,
    /// Gauge: the memory for what its objects depend on.
    pub dependency_bytes: u64,
    /// Gauge: the objects that it reconciles.
    pub objects: u64,
    /// Gauge: whether its code is mapped into memory.
    pub awake: bool,
}

/// `GET /api/v1/recordings`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordingDocument {
    /// The process that answers.
    pub host: HostStatus,
    /// Whether the process that answers makes calls, and so records them.
    pub reconciled_here: bool,
    /// Whether nothing is recorded any more: the time is over, or there are enough calls.
    pub over: bool,
    /// How many calls are recorded.
    pub calls: u64,
    /// How many calls found no room.
    pub dropped: u64,
    /// The bytes that the calls take.
    pub bytes: u64,
    /// When the recording has ended: its lines.
    pub lines: Vec<Tree>,
}

/// What is answered in place of a document.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorDocument {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What went wrong.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ErrorDetail {
    /// The HTTP status code.
    pub code: u16,
    /// The cause and the next step.
    pub message: String,
}
