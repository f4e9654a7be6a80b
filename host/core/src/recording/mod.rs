//! Owns the format of recordings: the calls of one plugin with everything that went into them and what came of them, one
//! JSON document a line. docs/recordings.md describes it. `tree` is JSON in its order, `convert` leads from and to the words
//! of the contract, and `mask` takes the values of Secrets out.

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

/// The format that this version writes and reads.
pub const FORMAT: &str = "pilothouse.dev/recording/v1";

/// One line of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Line {
    /// The first one.
    Recording(Box<Header>),
    /// A call.
    Call(Box<RecordedCall>),
    /// The last one, without which a file is not whole.
    End(Trailer),
}

/// What the calls have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// The version of the contract that the component speaks.
    pub contract: String,
    /// The plugin's name in the host.
    pub plugin: String,
    /// The version in its manifest.
    pub version: String,
    /// The SHA-256 of its component, as `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// Where the host has loaded the component from.
    pub component: String,
    /// When the recording began, as RFC 3339.
    pub begun: String,
    /// The limits of its calls.
    pub limits: Limits,
    /// Its manifest, without the CRDs.
    pub manifest: Value,
}

/// What is said at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Trailer {
    /// How many calls the file has.
    pub calls: u64,
    /// How many were left out because there was no room for them.
    pub dropped: u64,
    /// How many were left out because another version of the plugin made them.
    pub of_other_versions: u64,
    /// Whether values were masked.
    pub masked: bool,
}

/// One call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedCall {
    /// Its place in the recording, from 1.
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
    /// The time, in milliseconds since the epoch. It stands still during a call.
    pub time: u64,
    /// Which function was called, and with what.
    pub input: RecordedInput,
    /// What was read, in order, with the answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reads: Vec<RecordedRead>,
    /// What was logged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<RecordedLog>,
    /// What came of it.
    pub answer: RecordedAnswer,
    /// What it used.
    pub usage: RecordedUsage,
}

/// Which function was called, and with what.
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
    /// The object as it was shown.
    pub object: Tree,
    /// The configuration.
    pub configuration: Tree,
    /// Failures in a row before.
    pub attempt: u32,
}

/// The input of a defaulter or of a validator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedReview {
    /// Why the object is reviewed.
    pub phase: RecordedPhase,
    /// The object as it was shown.
    pub object: Option<Tree>,
    /// The object as it was before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_object: Option<Tree>,
    /// The configuration.
    pub configuration: Tree,
    /// Who made the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RecordedUser>,
    /// Whether nothing would have been stored.
    #[serde(default)]
    pub dry_run: bool,
}

/// Why an object is reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedPhase {
    /// It is created.
    Create,
    /// It is updated.
    Update,
    /// It is deleted.
    Delete,
    /// It is reconciled.
    Reconcile,
}

/// Who made a request.
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
        /// In milliseconds.
        granularity: u64,
        /// In milliseconds since the epoch.
        answer: u64,
    },
    /// `clock.reached`
    Reached {
        /// In milliseconds since the epoch.
        moment: u64,
        /// Whether it has come.
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
    /// The object as it was shown; null if there was none.
    #[serde(default)]
    pub answer: Option<Tree>,
    /// Why it could not be answered, which ended the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<RecordedFailure>,
}

/// A `cluster.list`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedList {
    /// The kind.
    pub kind: Kind,
    /// The namespace; none: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The label selector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label_selector: Option<String>,
    /// Paths and the values that they are to have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub field_selector: Vec<(String, String)>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
    /// The objects as they were shown.
    #[serde(default)]
    pub answer: Vec<Tree>,
    /// Why it could not be answered, which ended the call.
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

/// What came of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RecordedAnswer {
    /// What should exist; of a finalize: not yet.
    Outcome(RecordedOutcome),
    /// The finalizer lets the object go.
    Done,
    /// The object with defaults.
    Defaulted(Tree),
    /// The object is valid; warnings.
    Valid(Vec<String>),
    /// The object is refused.
    Invalid(Vec<RecordedFieldError>),
    /// There was no answer: a failure that the plugin returned, a trap or a broken limit.
    Failed(RecordedFailure),
}

/// What should exist.
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
    /// After how many milliseconds the call is to be repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeue_after: Option<u64>,
}

/// An object that should exist.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordedDesired {
    /// `owned`, `contributed`, and the exceptions `create-only`, `keep` and `recreate`.
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

/// Why a field is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFieldError {
    /// `Required`, `Duplicate`, `Forbidden`, `NotFound` or `Invalid`.
    pub kind: String,
    /// The field.
    pub path: String,
    /// Why.
    pub message: String,
}

/// Why there was no answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedFailure {
    /// `guest`, `user`, `cluster` or `host`.
    pub blame: String,
    /// The reason of the condition.
    pub reason: String,
    /// `backoff` or `change`.
    pub retry: String,
    /// What happened.
    pub message: String,
}

/// What a call used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RecordedUsage {
    /// In microseconds, imports included.
    pub microseconds: u64,
    /// The largest linear memory.
    pub memory_bytes: u64,
    /// Reads of the cluster.
    pub reads: u64,
    /// What they handed to the guest.
    pub read_bytes: u64,
    /// What was logged.
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
