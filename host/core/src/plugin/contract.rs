//! Models the plugin contract (wit/plugin.wit) as plain types, so that no other crate needs the bindings.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use crate::kubernetes::key::Kind;

/// The WIT package of the contract.
pub const PACKAGE: &str = "pilothouse:plugin";

/// The supported versions of the contract.
pub const VERSIONS: &[&str] = &["0.1.0"];

/// The name of the first member of a JSON object. The host refuses any member of `extensions`, because version 0.1 has
/// none.
pub fn first_member(object: &str) -> Result<Option<String>, serde_json::Error> {
    let members: BTreeMap<String, &RawValue> = serde_json::from_str(object)?;
    Ok(members.into_keys().next())
}

/// Conditions for the objects of a kind to list; all must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListOptions {
    /// The namespace; none means every namespace.
    pub namespace: Option<String>,
    /// A Kubernetes label selector.
    pub label_selector: Option<String>,
    /// Declared field paths and the scalar's text.
    pub field_selector: Vec<(String, String)>,
    /// The highest number of objects, in the order namespace, name.
    pub limit: Option<u32>,
}

/// A condition's status as the guest gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status is not known.
    Unknown,
}

impl ConditionStatus {
    /// The status as Kubernetes spells it.
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
    /// The type, for example `Available`.
    pub type_: String,
    /// The status.
    pub status: ConditionStatus,
    /// CamelCase.
    pub reason: String,
    /// The message for people.
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

/// An event about the reconciled object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Normal or Warning.
    pub type_: EventType,
    /// CamelCase.
    pub reason: String,
    /// The message for people.
    pub message: String,
}

/// The treatment of a desired object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ownership {
    /// The object is the plugin's.
    Owned,
    /// Only the given fields of another owner's object are the plugin's.
    Contributed,
}

/// The treatment of an object's dependents when it is deleted (`propagationPolicy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Propagation {
    /// They are deleted after the object.
    Background,
    /// They are deleted before the object.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Background, Self::Foreground, Self::Orphan];

    /// The policy as DeleteOptions spell it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }

    /// Reads a policy as DeleteOptions spell it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text)
    }

    /// Reports whether the garbage collector has work to do before the object is gone.
    pub fn holds_object(self) -> bool {
        self != Self::Background
    }
}

/// Lifecycle options of an owned object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each exception holds or not, whatever the others do"
)]
pub struct Lifecycle {
    /// Created when absent, then never changed.
    pub create_only: bool,
    /// Kept when no longer desired, and when the primary is deleted.
    pub keep: bool,
    /// Recreated where a changed field is immutable.
    pub recreate: bool,
    /// Recreated where the desired object changes. Not a flag of the contract: read from `options` with the answer.
    pub replace: bool,
    /// Propagation of each deletion by the host; without it the host decides. Read from `options`, too.
    pub propagation: Option<Propagation>,
    /// Set if an existing object that belongs to nobody is taken over. Read from `options`, too.
    pub adopt: bool,
}

/// One object that should exist, as the guest returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Desired {
    /// One JSON document, not parsed yet.
    pub object: String,
    /// Owned or contributed.
    pub ownership: Ownership,
    /// Lifecycle options.
    pub lifecycle: Lifecycle,
    /// One JSON document, not parsed yet; `{}` where there are none.
    pub options: String,
}

/// The input of a reconcile call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The primary as JSON, trimmed to what the plugin declared.
    pub object: String,
    /// The plugin's configuration as JSON.
    pub configuration: String,
    /// The number of consecutive failures before this call.
    pub attempt: u32,
}

/// The result of a successful reconcile call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The complete desired objects: an earlier one that is missing here is deleted.
    pub desired: Vec<Desired>,
    /// The status; none removes the plugin's fields of it.
    pub status: Option<String>,
    /// Conditions of the primary.
    pub conditions: Vec<Condition>,
    /// Events about the primary.
    pub events: Vec<Event>,
    /// The delay in milliseconds after which the object is requeued even if nothing changes.
    pub requeue_after: Option<u64>,
}

/// The result of a successful finalize call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalization {
    /// The finalizer may be removed once all owned objects are gone.
    Done,
    /// Pending: the outcome has the objects that should still exist.
    Pending(Outcome),
}

/// The occasion of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The object is to be created.
    Create,
    /// The object is to be updated.
    Update,
    /// The object is to be deleted.
    Delete,
    /// The object is to be reconciled.
    Reconcile,
}

/// The user who makes a request, as authentication/v1 UserInfo.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// The user's name.
    pub username: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}

/// The input of a defaulter or validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// The occasion of the review.
    pub phase: Phase,
    /// The object's kind.
    pub kind: Kind,
    /// The object as JSON, trimmed to what the plugin declared; none when it is deleted.
    pub object: Option<String>,
    /// The object as it was before, in the same form.
    pub old_object: Option<String>,
    /// The plugin's configuration as JSON.
    pub configuration: String,
    /// The user who makes the request; none before a reconcile.
    pub user_info: Option<UserInfo>,
    /// Set if nothing will be stored.
    pub dry_run: bool,
}

/// The kind of a field error, as field.ErrorType of apimachinery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldErrorKind {
    /// The field is absent or empty.
    Required,
    /// The value exists already.
    Duplicate,
    /// The field must not be set or changed.
    Forbidden,
    /// The value names something that does not exist.
    NotFound,
    /// The value is wrong in another way.
    Invalid,
}

/// One reason why an object is refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FieldError {
    /// The kind of the error.
    pub kind: FieldErrorKind,
    /// The field's path, as in `spec.ports[0].name`; empty for the object as a whole.
    pub path: String,
    /// The message.
    pub message: String,
}

/// A defaulter's result: the object with defaults, or the errors. No list of errors is empty.
pub type DefaulterResult = Result<String, Vec<FieldError>>;

/// A validator's result: warnings, or the errors. No list of errors is empty.
pub type ValidatorResult = Result<Vec<String>, Vec<FieldError>>;

/// A converter's result: the object in the other version, or the reason why it cannot be converted.
pub type ConverterResult = Result<String, String>;

/// The level of a guest's log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Finest.
    Trace,
    /// Details for the plugin's author.
    Debug,
    /// Information for the cluster's operator.
    Info,
    /// Warning.
    Warn,
    /// Failure.
    Error,
}

/// Host functions that a guest may call. All are answered from memory, without blocking.
///
/// An `Err` ends the call: it fails with this error, and the guest does not see it.
pub trait Imports {
    /// The object of this name, or none; a dependency either way.
    fn get(&mut self, kind: &Kind, namespace: Option<&str>, name: &str) -> Result<Option<String>, crate::Failure>;

    /// The matching objects, ordered by namespace and name. The search stops once they have more than `most_bytes`; the
    /// caller then ends the call.
    fn list(&mut self, kind: &Kind, options: &ListOptions, most_bytes: u64) -> Result<Vec<String>, crate::Failure>;

    /// The time in milliseconds since the epoch, rounded down to a multiple of `granularity` milliseconds.
    fn now(&mut self, granularity: u64) -> u64;

    /// Reports whether a moment (milliseconds since the epoch) has passed.
    fn reached(&mut self, moment: u64) -> bool;

    /// Writes one log line. The sandbox has already enforced the limit on log bytes.
    fn log(&mut self, level: LogLevel, message: &str, fields: &[(String, String)]);
}
