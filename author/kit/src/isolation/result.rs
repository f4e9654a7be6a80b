//! Results of calls in isolation, in forms that tests can compare.

use std::fmt;

use pilothouse_core::Failure;
use pilothouse_core::answer::CheckedAnswer;
use pilothouse_core::answer::desired::DesiredObject;
use pilothouse_core::plugin::contract::{Condition, EventType};
use pilothouse_sandbox::Usage;
use serde_json::{Map, Value, json};

use super::{LogLine, Reads};
use crate::{
    diff::diff,
    scenario::matching::{mismatches, overlay},
};

/// A call that succeeded and whose answer the host would accept.
#[derive(Debug, Clone)]
pub struct Reconciled {
    /// The answer as the host takes it: objects in canonical form and with their places filled in.
    pub answer: CheckedAnswer,
    /// Dependencies that the plugin has read.
    pub reads: Reads,
    /// Log lines of the plugin.
    pub log: Vec<LogLine>,
    /// Resources that the call has used.
    pub usage: Usage,
}

/// A primary that was finalized, as far as the plugin is concerned.
#[derive(Debug, Clone)]
pub enum Finalized {
    /// The object may be removed once all its children are gone.
    Done,
    /// Not yet, with the objects that should still exist.
    Pending(Box<Reconciled>),
}

/// A call that succeeded.
#[derive(Debug, Clone)]
pub struct Answered<A> {
    /// The plugin's answer.
    pub answer: A,
    /// Dependencies that the plugin has read.
    pub reads: Reads,
    /// Log lines of the plugin.
    pub log: Vec<LogLine>,
    /// Resources that the call has used.
    pub usage: Usage,
}

/// A call that did not succeed, or whose answer the host would refuse.
#[derive(Debug, Clone)]
pub struct Failed {
    /// The cause, and who is to blame.
    pub failure: Failure,
    /// Log lines of the plugin until then.
    pub log: Vec<LogLine>,
    /// Reads of the plugin until then.
    pub reads: Reads,
    /// Two calls with the same inputs gave different answers.
    pub is_impure: bool,
}

/// Error: there is no such object among the desired ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoSuchObject {
    kind: String,
    name: String,
    there: Vec<String>,
}

impl<A> Answered<A> {
    /// The same call with its answer in another form.
    pub(super) fn map<B>(self, form: impl FnOnce(A) -> B) -> Answered<B> {
        let Self {
            answer,
            reads,
            log,
            usage,
        } = self;
        Answered {
            answer: form(answer),
            reads,
            log,
            usage,
        }
    }

    /// The call, after all a failure.
    pub(super) fn refused(self, failure: Failure) -> Failed {
        let Self {
            answer: _,
            reads,
            log,
            usage: _,
        } = self;
        Failed {
            failure,
            log,
            reads,
            is_impure: false,
        }
    }
}

impl Failed {
    /// Failure before any call.
    pub(super) fn before_the_call(failure: Failure) -> Self {
        Self {
            failure,
            log: Vec::new(),
            reads: Reads::default(),
            is_impure: false,
        }
    }
}

impl Reconciled {
    /// The desired object of this kind and name, whole.
    pub fn object(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self
            .answer
            .owned
            .iter()
            .find(|object| object.kind().kind == kind && &*object.name.name == name);
        found.map(|object| Value::Object(object.body.clone()))
    }

    /// The same, with an error that names the objects that are there.
    pub fn desired(&self, kind: &str, name: &str) -> Result<Value, NoSuchObject> {
        self.object(kind, name).ok_or_else(|| NoSuchObject {
            kind: kind.to_owned(),
            name: name.to_owned(),
            there: self.titles(),
        })
    }

    /// Asserts that a desired object has at least the expected parts. A map matches when every member does, a list by
    /// position (see [`crate::scenario::matching`]).
    ///
    /// # Panics
    ///
    /// With the difference if it has not, and with the objects that are there if it is not one of them.
    #[track_caller]
    pub fn assert_matches(&self, kind: &str, name: &str, expected: &Value) {
        let object = self.desired(kind, name).unwrap_or_else(|missing| panic!("{missing}"));
        let found = mismatches(expected, &object);
        if found.is_empty() {
            return;
        }
        let difference = diff(&overlay(expected, &object), &object).unwrap_or_default();
        let places: Vec<&str> = found.iter().map(|mismatch| mismatch.path.as_str()).collect();
        panic!(
            "{kind} {name:?} is not as expected at {}:\n{difference}",
            places.join(", ")
        );
    }

    /// Asserts that a desired object equals the expected one.
    ///
    /// # Panics
    ///
    /// As [`Self::assert_matches`] does.
    #[track_caller]
    pub fn assert_object(&self, kind: &str, name: &str, expected: &Value) {
        let object = self.desired(kind, name).unwrap_or_else(|missing| panic!("{missing}"));
        if let Some(difference) = diff(expected, &object) {
            panic!("{kind} {name:?} is not as expected:\n{difference}");
        }
    }

    /// The fields that are contributed to an object of this kind and name.
    pub fn contribution(&self, kind: &str, name: &str) -> Option<Value> {
        let contributed = &self.answer.contributed;
        let found = contributed
            .iter()
            .find(|object| object.kind().kind == kind && &*object.name.name == name);
        found.map(|object| Value::Object(object.body.clone()))
    }

    /// `Kind namespace/name` of every desired object, in the plugin's order.
    pub fn titles(&self) -> Vec<String> {
        self.answer.owned.iter().map(DesiredObject::title).collect()
    }

    /// The status that the plugin gives.
    pub fn status(&self) -> Option<&Map<String, Value>> {
        self.answer.status.as_ref()
    }

    /// The condition of this type.
    pub fn condition(&self, kind: &str) -> Option<&Condition> {
        self.answer.conditions.iter().find(|condition| condition.type_ == kind)
    }

    /// The whole answer as YAML, the same for the same answer: to be kept in a file and compared.
    pub fn snapshot(&self) -> String {
        let whole = self.to_value();
        serde_saphyr::to_string(&whole).unwrap_or_else(|_| whole.to_string())
    }

    /// The whole answer as JSON: `objects`, `contributed`, `status`, `conditions`, `events`, `requeueAfterMilliseconds`.
    pub fn to_value(&self) -> Value {
        let CheckedAnswer {
            owned,
            contributed,
            // Here, every kind is served.
            unserved: _,
            status,
            conditions,
            events,
            requeue_after,
        } = &self.answer;
        let bodies = |objects: &[DesiredObject]| -> Vec<Value> {
            let bodies = objects.iter().map(|object| Value::Object(object.body.clone()));
            bodies.collect()
        };
        let objects = bodies(owned);
        let conditions: Vec<Value> = conditions
            .iter()
            .map(
                |it| json!({"type": it.type_, "status": it.status.as_str(), "reason": it.reason, "message": it.message}),
            )
            .collect();
        let events: Vec<Value> = events
            .iter()
            .map(|event| {
                let kind = if event.type_ == EventType::Warning {
                    "Warning"
                } else {
                    "Normal"
                };
                json!({"type": kind, "reason": event.reason, "message": event.message})
            })
            .collect();
        let mut whole = json!({"objects": objects, "status": status, "conditions": conditions, "events": events});
        if !contributed.is_empty() {
            whole["contributed"] = Value::from(bodies(contributed));
        }
        if let Some(milliseconds) = requeue_after {
            whole["requeueAfterMilliseconds"] = Value::from(*milliseconds);
        }
        whole
    }
}

impl fmt::Display for NoSuchObject {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, there } = self;
        write!(formatter, "no {kind} {name:?}; ")?;
        if there.is_empty() {
            return formatter.write_str("the plugin desires no object");
        }
        write!(formatter, "there are: {}", there.join(", "))
    }
}

impl std::error::Error for NoSuchObject {}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            blame, reason, message, ..
        } = &self.failure;
        write!(formatter, "{reason}, the {blame}'s fault: {message}")?;
        for line in &self.log {
            write!(formatter, "\n  {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Failed {}
