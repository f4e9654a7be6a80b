//! Owns the words of the plugin contract (wit/plugin.wit) as plain types, so that no other crate needs the bindings.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::kubernetes::key::Kind;

/// The WIT package that this host speaks.
pub const PACKAGE: &str = "pilothouse:plugin";

/// The versions of the contract that this host runs.
pub const VERSIONS: &[&str] = &["0.1.0"];

/// The first member of a JSON object, by name: of `extensions`, the one that makes this host refuse them, since version 0.1 has
/// none.
pub fn first_member(object: &str) -> Result<Option<String>, serde_json::Error> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(object)?;
    Ok(members.into_keys().next())
}

/// Which objects of a kind to list; all conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListOptions {
    /// None: every namespace.
    pub namespace: Option<String>,
    /// A Kubernetes label selector.
    pub label_selector: Option<String>,
    /// Declared field paths and the scalar's text.
    pub field_selector: Vec<(String, String)>,
    /// At most so many, in the order namespace, name.
    pub limit: Option<u32>,
}

/// A condition's status as the guest gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It cannot be told.
    Unknown,
}

impl ConditionStatus {
    /// As Kubernetes spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// A condition of the primary; the host keeps lastTransitionTime and observedGeneration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// For example `Available`.
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// An event's type, as in core/v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// `Normal`.
    Normal,
    /// `Warning`.
    Warning,
}

/// Something to tell about the reconciled object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Normal or Warning.
    pub type_: EventType,
    /// CamelCase.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// How the host treats an object that is desired.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// The object is the plugin's.
    Owned,
    /// Only the given fields of somebody else's object are the plugin's.
    Contributed,
}

/// Exceptions to the life of an owned object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each exception holds or not, whatever the others do"
)]
pub struct Lifecycle {
    /// Made when absent, then never changed.
    pub create_only: bool,
    /// Left in place when no longer desired, and when the primary goes.
    pub keep: bool,
    /// Deleted and made again where a changed field is immutable.
    pub recreate: bool,
    /// Deleted and made again where something else is desired than before. A member of `options`, which the check of the answer
    /// reads: what a guest gives as flags does not have it.
    pub replace: bool,
}

/// One object that should exist, as the guest gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// One JSON document, not yet parsed.
    pub object: String,
    /// Owned or contributed.
    pub ownership: Ownership,
    /// Exceptions.
    pub lifecycle: Lifecycle,
    /// One JSON document, not yet parsed; `{}` where there are none.
    pub options: String,
}

/// What a reconcile call is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The primary as JSON, trimmed to what the plugin declared.
    pub object: String,
    /// The plugin's configuration as JSON.
    pub configuration: String,
    /// Failures in a row before this call.
    pub attempt: u32,
}

/// What a reconcile call answers when it succeeds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Complete: what was desired before and is not here any more goes.
    pub desired: Vec<Desired>,
    /// None: the plugin's fields of the status go.
    pub status: Option<String>,
    /// Conditions of the primary.
    pub conditions: Vec<Condition>,
    /// Events about the primary.
    pub events: Vec<Event>,
    /// Run again after this many milliseconds even if nothing changes.
    pub requeue_after: Option<u64>,
}

/// What a finalize call answers when it succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalization {
    /// The object may be released once everything that it owned is gone.
    Done,
    /// Not yet: this is what should still exist.
    Pending(Outcome),
}

/// Why an object is reviewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Somebody is about to create it.
    Create,
    /// Somebody is about to update it.
    Update,
    /// Somebody is about to delete it.
    Delete,
    /// It is about to be reconciled.
    Reconcile,
}

/// Who makes a request, as authentication/v1 UserInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub username: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}

/// What a defaulter or a validator is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Why it is reviewed.
    pub phase: Phase,
    /// The object's kind.
    pub kind: Kind,
    /// The object as JSON, trimmed to what the plugin declared; none when it is deleted.
    pub object: Option<String>,
    /// The object as it was before, in the same form.
    pub old_object: Option<String>,
    /// The plugin's configuration as JSON.
    pub configuration: String,
    /// Who makes the request; none before a reconcile.
    pub user_info: Option<UserInfo>,
    /// Whether nothing will be stored.
    pub dry_run: bool,
}

/// How a field is wrong, as field.ErrorType of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// It is absent or empty.
    Required,
    /// Its value is there already.
    Duplicate,
    /// It must not be set or changed.
    Forbidden,
    /// Its value names something that does not exist.
    NotFound,
    /// Its value is wrong in another way.
    Invalid,
}

/// Why a field of an object is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// How the field is wrong.
    pub kind: FieldErrorKind,
    /// Where, as in `spec.ports[0].name`; empty for the object as a whole.
    pub path: String,
    /// Why.
    pub message: String,
}

/// What a defaulter answers: the object with defaults filled in, or why it is refused. No list of errors is empty.
pub type DefaulterResult = Result<String, Vec<FieldError>>;

/// What a validator answers: warnings, or why the object is refused. No list of errors is empty.
pub type ValidatorResult = Result<Vec<String>, Vec<FieldError>>;

/// What a converter answers: the object in the other version, or why it cannot be converted.
pub type ConverterResult = Result<String, String>;

/// How loud a guest's log line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// The finest.
    Trace,
    /// For the author.
    Debug,
    /// For the operator of the cluster.
    Info,
    /// Something is off.
    Warn,
    /// Something failed.
    Error,
}

/// What a guest may ask of its host during a call. Everything is answered from memory, at once.
///
/// An `Err` ends the call: the guest does not see it, and the call fails with it.
pub trait Imports {
    /// The object of this name, or none; a dependency either way.
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, crate::Failure>;

    /// The objects that match, ordered by namespace and name. Once they have more than `most_bytes` no more are looked for:
    /// whoever asked ends the call then.
    fn list(&mut self, kind: &Kind, options: &ListOptions, most_bytes: u64) -> Result<Vec<String>, crate::Failure>;

    /// The time in milliseconds since the epoch, rounded down to a multiple of `granularity` milliseconds.
    fn now(&mut self, granularity: u64) -> u64;

    /// Whether a moment (milliseconds since the epoch) has come.
    fn reached(&mut self, moment: u64) -> bool;

    /// One log line. The sandbox has already held it to the limit on log bytes.
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]);
}
