//! Owns what came of a call in isolation, in forms that tests can compare. Leaves making the call to `mod`.

use std::{collections::BTreeSet, fmt};

use pilothouse_core::{
    Failure,
    answer::{CheckedAnswer, DesiredObject},
    contract::{Condition, EventType},
    dependencies::Read,
};
use pilothouse_sandbox::Usage;
use serde_json::{Map, Value, json};

use super::LogLine;

/// A call that succeeded and whose answer the host would accept.
#[derive(Debug, Clone)]
pub struct Reconciled {
    /// The answer as the host takes it: objects in canonical form and with their places filled in.
    pub answer: CheckedAnswer,
    /// What the plugin has read, and therefore depends on.
    pub reads: BTreeSet<Read>,
    /// What it has logged.
    pub log: Vec<LogLine>,
    /// What the call has used.
    pub usage: Usage,
}

/// A primary that was finalized, as far as the plugin is concerned.
#[derive(Debug, Clone)]
pub enum Finalized {
    /// It may go once all that it owned is gone.
    Done,
    /// Not yet: this is what should still exist.
    Pending(Box<Reconciled>),
}

/// A call that succeeded.
#[derive(Debug, Clone)]
pub struct Answered<A> {
    /// What the plugin says.
    pub answer: A,
    /// What the plugin has read.
    pub reads: BTreeSet<Read>,
    /// What it has logged.
    pub log: Vec<LogLine>,
    /// What the call has used.
    pub usage: Usage,
}

/// A call that did not succeed, or whose answer the host would refuse.
#[derive(Debug, Clone)]
pub struct Failed {
    /// Why, and whose fault it is.
    pub failure: Failure,
    /// What the plugin has logged until then.
    pub log: Vec<LogLine>,
    /// What it has read until then.
    pub reads: BTreeSet<Read>,
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
        Failed { failure, log, reads }
    }
}

impl Failed {
    /// Nothing was called.
    pub(super) fn before_the_call(failure: Failure) -> Self {
        Self {
            failure,
            log: Vec::new(),
            reads: BTreeSet::new(),
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
            .find(|object| object.kind.kind == kind && &*object.name.name == name);
        found.map(|object| Value::Object(object.body.clone()))
    }

    /// The fields that are contributed to an object of this kind and name.
    pub fn contribution(&self, kind: &str, name: &str) -> Option<Value> {
        let contributed = &self.answer.contributed;
        let found = contributed
            .iter()
            .find(|object| object.kind.kind == kind && &*object.name.name == name);
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
        let CheckedAnswer {
            owned,
            contributed,
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
        serde_saphyr::to_string(&whole).unwrap_or_else(|_| whole.to_string())
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure {
            blame, reason, message, ..
        } = &self.failure;
        write!(formatter, "{reason}, the {blame}'s fault: {message}")?;
        for line in &self.log {
            write!(formatter, "\n  {:?}: {}", line.level, line.message)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failed {}
