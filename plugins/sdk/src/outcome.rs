//! Answer of a reconcile: the builder of the desired objects, and the failures with their blame.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::object::{Kind, Resource};
use crate::raw::types;

/// The desired objects of a resource, and its status, conditions and events.
///
/// The objects are complete: an object that an earlier outcome had and this one does not have is deleted.
///
/// ```
/// use pilothouse_plugin::{Condition, Lifecycle, Outcome};
/// use serde_json::json;
/// use std::time::Duration;
///
/// let outcome = Outcome::new()
///     .owned(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "default"}}))
///     .owned_with(
///         json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "seed", "namespace": "default"}}),
///         Lifecycle { create_only: true, keep: true, ..Lifecycle::default() },
///     )
///     .status(json!({"url": "https://example.com"}))
///     .condition(Condition::is_true("Available", "AllReplicasReady", "3 of 3 replicas are ready"))
///     .requeue_after(Duration::from_secs(60));
/// # drop(outcome);
/// ```
#[derive(Debug, Default)]
#[must_use = "an outcome does something only when it is returned"]
pub struct Outcome {
    desired: Vec<types::Desired>,
    status: Option<String>,
    conditions: Vec<Condition>,
    events: Vec<Event>,
    requeue_after: Option<Duration>,
    /// Reason why a part could not be serialized; reported instead of the outcome.
    broken: Option<String>,
}

/// Size of an outcome's JSON up to which objects are not dropped; they take about ten times that memory.
#[cfg(target_family = "wasm")]
const MAX_LEFT_BYTES: usize = 32 << 10;

impl Outcome {
    /// Returns an outcome without objects, status, conditions and events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an object that belongs to the resource: it gets an owner reference, the given fields are kept as given, and
    /// it is deleted once it is no longer in the outcome.
    pub fn owned(self, object: impl Serialize) -> Self {
        self.owned_with(object, Lifecycle::default())
    }

    /// Adds an object like [`owned`](Self::owned), with exceptions to its life cycle.
    pub fn owned_with(self, object: impl Serialize, lifecycle: Lifecycle) -> Self {
        self.desire(object, types::Ownership::Owned, lifecycle)
    }

    /// Adds fields of an object that belongs to another owner and must exist. They are removed once they are no longer
    /// in the outcome; fields that others have set are never overwritten.
    ///
    /// The object may be one that the plugin itself owns, for this resource or another. If both set a field to
    /// different values, the owner's value stays, and the condition of the contributing resource names both.
    pub fn contributed(self, object: impl Serialize) -> Self {
        self.desire(object, types::Ownership::Contributed, Lifecycle::default())
    }

    /// Sets the resource's status, a JSON object. `null` is no status.
    ///
    /// The host sets `observedGeneration` itself and drops a value that is given here. Conditions are added with
    /// [`condition`](Self::condition); only those that are copied from a child belong into the status.
    pub fn status(mut self, status: impl Serialize) -> Self {
        let json = self.json(&status, |_| "the status".to_owned());
        self.status = json.filter(|status| status != "null");
        self
    }

    /// Adds a condition of the resource. The host sets its `lastTransitionTime` and `observedGeneration`. `Reconciled`,
    /// `Reconciling` and `Stalled` are the host's own conditions: an outcome with one of them is refused.
    pub fn condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Adds an event about the resource. The host drops repetitions.
    pub fn event(mut self, event: Event) -> Self {
        self.events.push(event);
        self
    }

    /// Requeues the resource after this time, even if nothing changes: from 1 ms to a year; less than a second counts
    /// as a second. If the outcome depends on the time, read it from the [`Cluster`](crate::Cluster) instead.
    pub fn requeue_after(mut self, delay: Duration) -> Self {
        self.requeue_after = Some(delay);
        self
    }

    /// Reports whether a status contains this outcome's status and conditions.
    pub(crate) fn is_said(&self, status: Option<&Value>) -> bool {
        let none = Value::Null;
        let status = status.unwrap_or(&none);
        // A value that is invalid JSON is reported in place of the outcome.
        let said: Map<String, Value> = match &self.status {
            Some(json) => serde_json::from_str(json).unwrap_or_default(),
            None => Map::new(),
        };
        let has_members = said
            .iter()
            .filter(|(name, value)| !value.is_null() && *name != "observedGeneration")
            .all(|(name, value)| status.get(name) == Some(value));
        let live = status["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_live = |condition: &Condition| {
            live.iter().any(|live| {
                live["type"] == *condition.type_
                    && live["status"] == condition.status.as_str()
                    && live["reason"] == *condition.reason
                    && live["message"] == *condition.message
            })
        };
        self.broken.is_none() && has_members && self.conditions.iter().all(is_live)
    }

    /// Returns the same outcome, with another reconcile even if nothing changes.
    pub(crate) fn at_least_once_more(mut self) -> Self {
        self.requeue_after.get_or_insert(Duration::from_secs(1));
        self
    }

    fn desire(mut self, object: impl Serialize, ownership: types::Ownership, lifecycle: Lifecycle) -> Self {
        if let Some(object) = self.json(&object, |outcome| format!("desired object {}", outcome.desired.len())) {
            self.desired.push(types::Desired {
                object,
                ownership,
                lifecycle: lifecycle.lower(),
                options: Value::Object(lifecycle.options()).to_string(),
            });
        }
        #[cfg(target_family = "wasm")]
        self.leave(object);
        self
    }

    /// Leaks an object: the instance ends with the call, and its memory with it. A large outcome drops its objects, so
    /// that it needs memory for one at a time.
    #[cfg(target_family = "wasm")]
    fn leave(&self, object: impl Serialize) {
        let written: usize = self.desired.iter().map(|desired| desired.object.len()).sum();
        if written <= MAX_LEFT_BYTES {
            std::mem::forget(object);
        }
    }

    fn json(&mut self, value: &impl Serialize, what: fn(&Self) -> String) -> Option<String> {
        match serde_json::to_string(value) {
            Ok(json) => Some(json),
            Err(error) => {
                if self.broken.is_none() {
                    self.broken = Some(format!("{} cannot be written as JSON: {error}", what(self)));
                }
                None
            }
        }
    }

    /// Converts the outcome to the contract's types.
    pub(crate) fn lower(self) -> Result<types::Outcome, Failure> {
        let Self {
            desired,
            status,
            conditions,
            events,
            requeue_after,
            broken,
        } = self;
        if let Some(broken) = broken {
            return Err(Failure::Permanent(broken));
        }
        Ok(types::Outcome {
            desired,
            status,
            conditions: conditions.into_iter().map(Condition::lower).collect(),
            events: events.into_iter().map(Event::lower).collect(),
            // The contract has no 0; less than a second counts as one second anyway.
            requeue_after: requeue_after.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX).max(1)),
            extensions: None,
        })
    }
}

/// Treatment of the objects that depend on an object when the host deletes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after the object.
    Background,
    /// They are deleted before the object.
    Foreground,
    /// They stay.
    Orphan,
}

impl Propagation {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
}

/// Treatment of an object that exists before it is desired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Adopt {
    /// The object is left alone, and the condition of the resource names it.
    #[default]
    Never,
    /// The object is taken over, unless it has a controller, or another field manager applies a field of the desired object.
    IfUnowned,
}

/// An object of the same outcome that has to be Current before another one is made or changed.
///
/// ```
/// use pilothouse_plugin::k8s::batch::v1::Job;
/// use pilothouse_plugin::{Kind, Predecessor};
///
/// let migration = Predecessor::of::<Job>("migrate");
/// assert_eq!(migration, Predecessor::new(Kind::new("batch", "v1", "Job"), "migrate"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Predecessor {
    api_version: String,
    kind: String,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

impl Predecessor {
    /// Returns the object of a kind with a type, in the namespace of the resource.
    pub fn of<Object: Resource>(name: impl Into<String>) -> Self {
        Self::new(Object::KIND, name)
    }

    /// Returns the object of a kind, in the namespace of the resource.
    pub fn new(kind: Kind, name: impl Into<String>) -> Self {
        Self {
            api_version: kind.api_version(),
            kind: kind.kind.to_owned(),
            name: name.into(),
            namespace: None,
        }
    }

    /// Sets another namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }
}

/// Exceptions to the life cycle of an owned object. The manifest lists the options among them:
/// [`ControllerManifest::options`](crate::ControllerManifest::options).
///
/// ```
/// use pilothouse_plugin::{Adopt, Lifecycle, Propagation};
///
/// let lifecycle = Lifecycle {
///     propagation: Some(Propagation::Orphan),
///     adopt: Adopt::IfUnowned,
///     yields: vec![".spec.replicas".into()],
///     ..Lifecycle::default()
/// };
/// # drop(lifecycle);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(
    clippy::struct_excessive_bools,
    reason = "each exception holds or not, whatever the others do"
)]
pub struct Lifecycle {
    /// Created when absent, then never changed.
    pub create_only: bool,
    /// Left in place when it is no longer in the outcome, and when the resource is deleted.
    pub keep: bool,
    /// Deleted and created again if a changed field is immutable.
    pub recreate: bool,
    /// Deleted and created again whenever the desired object changes, such as the image of a Pod. The host first tests
    /// whether the server would create the successor. The option `replace`.
    pub replace: bool,
    /// Treatment of its dependents where the host deletes it. None leaves that to the host. The option `propagation`.
    pub propagation: Option<Propagation>,
    /// Treatment of an object of this kind and name that exists already. The option `adopt`.
    pub adopt: Adopt,
    /// Paths of fields, such as `.spec.replicas`, that are left to another manager as soon as it sets them. The option
    /// `yield`.
    pub yields: Vec<String>,
    /// Objects of the same outcome that have to be Current before this one is made or changed, and that are deleted after it.
    /// The option `after`.
    pub after: Vec<Predecessor>,
    /// Token with which it is made once: when it is gone, such as a Job after its `ttlSecondsAfterFinished`, it is made again only
    /// with another token. At most 128 bytes. The option `once`.
    pub once: Option<String>,
}

impl Lifecycle {
    fn lower(&self) -> types::Lifecycle {
        let Self {
            create_only,
            keep,
            recreate,
            ..
        } = *self;
        [
            (create_only, types::Lifecycle::CREATE_ONLY),
            (keep, types::Lifecycle::KEEP),
            (recreate, types::Lifecycle::RECREATE),
        ]
        .into_iter()
        .filter(|(set, _)| *set)
        .fold(types::Lifecycle::empty(), |all, (_, flag)| all | flag)
    }

    /// The members of `options`.
    pub(crate) fn options(&self) -> Map<String, Value> {
        let mut options = Map::new();
        let mut set = |name: &str, value: Value| _ = options.insert(name.to_owned(), value);
        if self.replace {
            set("replace", true.into());
        }
        if let Some(propagation) = self.propagation {
            set("propagation", propagation.as_str().into());
        }
        if self.adopt == Adopt::IfUnowned {
            set("adopt", "IfUnowned".into());
        }
        if !self.yields.is_empty() {
            set("yield", self.yields.clone().into());
        }
        if !self.after.is_empty() {
            set("after", serde_json::to_value(&self.after).expect("they are texts"));
        }
        if let Some(token) = &self.once {
            set("once", token.clone().into());
        }
        options
    }
}

/// Status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// The status is not known.
    Unknown,
}

impl ConditionStatus {
    fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Type of the condition that says whether a resource can be used.
const READY: &str = "Ready";

/// A condition like `metav1.Condition`. The reason has at most 128 bytes; the host cuts a message after 32,768 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// Type, for example `Available`.
    pub type_: String,
    /// Status.
    pub status: ConditionStatus,
    /// Reason in one CamelCase word, for programs.
    pub reason: String,
    /// Reason in a sentence, for people.
    pub message: String,
}

impl Condition {
    /// Returns a condition with the status True.
    pub fn is_true(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::True, reason, message)
    }

    /// Returns a condition with the status False.
    pub fn is_false(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::False, reason, message)
    }

    /// Returns a condition with the status Unknown.
    pub fn unknown(type_: impl Into<String>, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(type_, ConditionStatus::Unknown, reason, message)
    }

    /// Returns the condition `Ready` with the status True: `kubectl wait --for=condition=Ready` and kstatus read it.
    pub fn ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::is_true(READY, reason, message)
    }

    /// Returns the condition `Ready` with the status False.
    pub fn not_ready(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::is_false(READY, reason, message)
    }

    /// Returns a condition with the given status.
    pub fn new(
        type_: impl Into<String>,
        status: ConditionStatus,
        reason: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        Self {
            type_: type_.into(),
            status,
            reason: reason.into(),
            message: message.into(),
        }
    }

    fn lower(self) -> types::Condition {
        let Self {
            type_,
            status,
            reason,
            message,
        } = self;
        let status = match status {
            ConditionStatus::True => types::ConditionStatus::True,
            ConditionStatus::False => types::ConditionStatus::False,
            ConditionStatus::Unknown => types::ConditionStatus::Unknown,
        };
        types::Condition {
            type_,
            status,
            reason,
            message,
        }
    }
}

/// Type of an event, as in core/v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// An expected event.
    Normal,
    /// An event that needs attention.
    Warning,
}

/// An event about a resource. The reason has at most 128 bytes; the host cuts a message after 1,024 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Event {
    /// Normal or Warning.
    pub type_: EventType,
    /// Event in one CamelCase word, for programs.
    pub reason: String,
    /// Event in a sentence, for people.
    pub message: String,
}

impl Event {
    /// Returns an expected event.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            type_: EventType::Normal,
            reason: reason.into(),
            message: message.into(),
        }
    }

    /// Returns an event that needs attention.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            type_: EventType::Warning,
            reason: reason.into(),
            message: message.into(),
        }
    }

    fn lower(self) -> types::Event {
        let Self { type_, reason, message } = self;
        let type_ = match type_ {
            EventType::Normal => types::EventType::Normal,
            EventType::Warning => types::EventType::Warning,
        };
        types::Event { type_, reason, message }
    }
}

/// Reason why a resource could not be reconciled. A failure never deletes anything.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Retried with back-off.
    #[error("{0}")]
    Transient(String),
    /// Not retried until the resource, the configuration or an object that was read has changed.
    #[error("{0}")]
    Permanent(String),
}

impl Failure {
    /// Returns a failure that may disappear by itself. The message names the object, the cause, and the next step.
    pub fn transient(message: impl ToString) -> Self {
        Self::Transient(message.to_string())
    }

    /// Returns a failure that stays until something changes. The message names the object, the cause, and what to do.
    pub fn permanent(message: impl ToString) -> Self {
        Self::Permanent(message.to_string())
    }

    #[cfg(target_family = "wasm")]
    pub(crate) fn lower(self) -> types::Failure {
        match self {
            Self::Transient(message) => types::Failure::Transient(message),
            Self::Permanent(message) => types::Failure::Permanent(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_words_are_said_once_the_status_has_each_of_them() {
        let outcome = || {
            let condition = Condition::is_false("Ready", "Gone", "it is free");
            Outcome::new()
                .status(json!({"phase": "Released", "ports": [80], "none": null}))
                .condition(condition)
        };
        let shown = json!({
            "phase": "Released", "ports": [80], "observedGeneration": 3,
            "conditions": [{"type": "Ready", "status": "False", "reason": "Gone", "message": "it is free", "lastTransitionTime": "t"}],
        });
        assert!(outcome().is_said(Some(&shown)));
        assert!(Outcome::new().is_said(None));
        assert!(!outcome().is_said(None) && !outcome().is_said(Some(&json!({}))));
        for (pointer, other) in [
            ("/phase", json!("Bound")),
            ("/ports", json!([80, 81])),
            ("/conditions/0/status", json!("True")),
            ("/conditions/0/reason", json!("Other")),
            ("/conditions/0/message", json!("it is not")),
            ("/conditions/0/type", json!("Available")),
        ] {
            let mut changed = shown.clone();
            *changed.pointer_mut(pointer).unwrap() = other;
            assert!(!outcome().is_said(Some(&changed)), "{pointer}");
        }
        let waiting = Outcome::new()
            .requeue_after(Duration::from_secs(30))
            .at_least_once_more();
        assert_eq!(waiting.requeue_after, Some(Duration::from_secs(30)));
        assert_eq!(
            Outcome::new().at_least_once_more().requeue_after,
            Some(Duration::from_secs(1))
        );
    }

    #[test]
    fn options_have_what_is_set_alone() {
        let options = |lifecycle: &Lifecycle| Value::Object(lifecycle.options());
        assert_eq!(options(&Lifecycle::default()), json!({}));
        let all = Lifecycle {
            replace: true,
            propagation: Some(Propagation::Orphan),
            adopt: Adopt::IfUnowned,
            yields: vec![".spec.replicas".into()],
            after: vec![Predecessor::new(Kind::new("", "v1", "Secret"), "key").namespace("vault")],
            once: Some("v2".into()),
            ..Lifecycle::default()
        };
        let expected = json!({
            "replace": true, "propagation": "Orphan", "adopt": "IfUnowned", "yield": [".spec.replicas"],
            "after": [{"apiVersion": "v1", "kind": "Secret", "name": "key", "namespace": "vault"}],
            "once": "v2",
        });
        assert_eq!(options(&all), expected);
    }

    #[test]
    fn a_requeue_below_one_millisecond_becomes_one_millisecond() {
        let lowered = Outcome::new().requeue_after(Duration::from_nanos(1)).lower().unwrap();
        assert_eq!(lowered.requeue_after, Some(1));
    }
}
