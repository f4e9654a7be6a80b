//! Defines the format of recordings: the calls of one plugin with their inputs and results, as one JSON document per
//! line. docs/recordings.md describes it. `tree` is JSON with ordered members, `convert` converts from and to the types
//! of the contract, and `mask` masks the values of Secrets.

mod convert;
mod mask;
mod tree;
mod visit;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kubernetes::key::Kind;
use crate::plugin::limits::Limits;

pub use self::mask::{KEY_BYTES, MASK, MASK_DIGITS, Masker, Masks};
pub use self::tree::Tree;

/// The format that this version reads and writes.
pub const FORMAT: &str = "pilothouse.dev/recording/v1";

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first one.
    Recording(Box<Header>),
    /// A call.
    Call(Box<RecordedCall>),
    /// The last line; a file without it is incomplete.
    End(Trailer),
}

/// The data that all calls share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// The contract version of the component.
    pub contract: String,
    /// The plugin's name in the host.
    pub plugin: String,
    /// The version in its manifest.
    pub version: String,
    /// The SHA-256 of its component, as `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The source from which the host loaded the component.
    pub component: String,
    /// The start of the recording, RFC 3339.
    pub begun: String,
    /// The limits of its calls.
    pub limits: Limits,
    /// Its manifest, without the CRDs.
    pub manifest: Value,
}

/// The last line's data.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trailer {
    /// The number of calls in the file.
    pub calls: u64,
    /// The number of calls left out for lack of room.
    pub dropped: u64,
    /// The number of calls left out because another version of the plugin made them.
    pub of_other_versions: u64,
    /// Set if values were masked.
    pub masked: bool,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCall {
    /// Its position in the recording, from 1.
    pub number: u64,
    /// The controller in the manifest.
    pub controller: String,
    /// The kind of the object that the call is about.
    pub kind: Kind,
    /// The object's namespace; none for cluster-scoped objects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name.
    pub name: String,
    /// The time, in milliseconds since the epoch. It is constant during a call.
    pub time: u64,
    /// The called function and its input.
    pub input: RecordedInput,
    /// The reads in order, with their answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<RecordedRead>,
    /// The log lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<RecordedLog>,
    /// The result.
    pub answer: RecordedAnswer,
    /// The resources that the call used.
    pub usage: RecordedUsage,
}

/// The called function and its input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedInput {
    /// `reconciler.reconcile`
    Reconcile(RecordedRequest),
    /// `finalizer.finalize`
    Finalize(RecordedRequest),
    /// `defaulter.apply-defaults`
    ApplyDefaults(RecordedReview),
    /// `validator.validate`
    Validate(RecordedReview),
}

/// The input of a reconcile or of a finalize.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedRequest {
    /// The object as the plugin saw it.
    pub object: Tree,
    /// The configuration.
    pub configuration: Tree,
    /// The number of consecutive failures before.
    pub attempt: u32,
}

/// The input of a defaulter or of a validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedReview {
    /// The occasion of the review.
    pub phase: RecordedPhase,
    /// The object as the plugin saw it.
    pub object: Option<Tree>,
    /// The object as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Tree>,
    /// The configuration.
    pub configuration: Tree,
    /// The user who made the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RecordedUser>,
    /// Set if nothing would have been stored.
    #[serde(default)]
    pub dry_run: bool,
}

/// The occasion of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedPhase {
    /// The object is created.
    Create,
    /// The object is updated.
    Update,
    /// The object is deleted.
    Delete,
    /// The object is reconciled.
    Reconcile,
}

/// The user who made a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedUser {
    /// The user's name.
    pub username: String,
    /// The user's groups.
    pub groups: Vec<String>,
}

/// One read with its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedRead {
    /// `cluster.get`
    Get(RecordedGet),
    /// `cluster.list`
    List(RecordedList),
    /// `clock.now`
    Now {
        /// The granularity, in milliseconds.
        granularity: u64,
        /// The time, in milliseconds since the epoch.
        answer: u64,
    },
    /// `clock.reached`
    Reached {
        /// The moment, in milliseconds since the epoch.
        moment: u64,
        /// Set if the moment has passed.
        answer: bool,
    },
}

/// A `cluster.get`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedGet {
    /// The kind.
    pub kind: Kind,
    /// The namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The object as the plugin saw it; null if it did not exist.
    #[serde(default)]
    pub answer: Option<Tree>,
    /// The failure that ended the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RecordedFailure>,
}

/// A `cluster.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedList {
    /// The kind.
    pub kind: Kind,
    /// The namespace; none means all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Paths with their required values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_selector: Vec<(String, String)>,
    /// The highest number of results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The objects as the plugin saw them.
    #[serde(default)]
    pub answer: Vec<Tree>,
    /// The failure that ended the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RecordedFailure>,
}

/// A line of the guest's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedLog {
    /// `trace`, `debug`, `info`, `warn` or `error`.
    pub level: String,
    /// The message.
    pub message: String,
    /// Names and values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<(String, String)>,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedAnswer {
    /// The desired state; of a finalize: not done yet.
    Outcome(RecordedOutcome),
    /// The finalizer may be removed.
    Done,
    /// The object with defaults.
    Defaulted(Tree),
    /// The object is valid; warnings.
    Valid(Vec<String>),
    /// The object is refused.
    Invalid(Vec<RecordedFieldError>),
    /// The call failed: the plugin returned a failure, trapped or broke a limit.
    Failed(RecordedFailure),
}

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedOutcome {
    /// The objects.
    #[serde(default)]
    pub desired: Vec<RecordedDesired>,
    /// The status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Tree>,
    /// The conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<RecordedCondition>,
    /// The events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<RecordedEvent>,
    /// The delay after which the object is requeued, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_after: Option<u64>,
}

/// An object that should exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDesired {
    /// `owned`, `contributed`, and the lifecycle options `create-only`, `keep` and `recreate`.
    pub how: Vec<String>,
    /// The object.
    pub object: Tree,
    /// Options, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<Tree>,
}

/// A condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedEvent {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
}

/// One reason why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFieldError {
    /// `Required`, `Duplicate`, `Forbidden`, `NotFound` or `Invalid`.
    pub kind: String,
    /// The field.
    pub path: String,
    /// The message.
    pub message: String,
}

/// The failure of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// `guest`, `user`, `cluster` or `host`.
    pub blame: String,
    /// The reason of the condition.
    pub reason: String,
    /// `backoff` or `change`.
    pub retry: String,
    /// The message.
    pub message: String,
}

/// The resources that a call used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedUsage {
    /// Its duration in microseconds, imports included.
    pub microseconds: u64,
    /// The largest linear memory, in bytes.
    pub memory_bytes: u64,
    /// The number of reads of the cluster.
    pub reads: u64,
    /// Bytes that the reads returned to the guest.
    pub read_bytes: u64,
    /// Bytes of its log lines.
    pub log_bytes: u64,
}

impl RecordedInput {
    /// The name of the function, as in the contract.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Reconcile(_) => "reconcile",
            Self::Finalize(_) => "finalize",
            Self::ApplyDefaults(_) => "apply-defaults",
            Self::Validate(_) => "validate",
        }
    }

    /// The configuration of the call.
    pub fn configuration(&self) -> &Tree {
        match self {
            Self::Reconcile(request) | Self::Finalize(request) => &request.configuration,
            Self::ApplyDefaults(review) | Self::Validate(review) => &review.configuration,
        }
    }
}
