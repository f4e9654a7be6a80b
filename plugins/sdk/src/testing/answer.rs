//! Parsed outcome for tests, with messages about missing parts.

use std::time::Duration;

use serde::Deserialize as _;
use serde_json::Value;

use crate::outcome::{Adopt, Condition, ConditionStatus, Event, EventType, Failure, Lifecycle, Outcome, Propagation};
use crate::raw::types;

/// Answer of a plugin.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// The desired objects.
    pub desired: Vec<DesiredObject>,
    /// The status.
    pub status: Option<Value>,
    /// The conditions.
    pub conditions: Vec<Condition>,
    /// The events.
    pub events: Vec<Event>,
    /// Time after which the resource is reconciled even if nothing changes.
    pub requeue_after: Option<Duration>,
}

/// A desired object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DesiredObject {
    /// The object.
    pub object: Value,
    /// Ownership.
    pub ownership: Ownership,
    /// Exceptions to its life cycle.
    pub lifecycle: Lifecycle,
}

/// Ownership of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// The object is ours.
    Owned,
    /// The object belongs to another owner; only the given fields are ours.
    Contributed,
}

impl Answer {
    /// Returns the answer of a controller that was called directly.
    pub fn of(outcome: Outcome) -> Result<Self, Failure> {
        outcome.lower().map(Self::read)
    }

    /// Returns the desired object of this kind and name.
    ///
    /// # Panics
    ///
    /// If there is none; the message lists the desired objects.
    pub fn object(&self, kind: &str, name: &str) -> &Value {
        let is = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        self.desired
            .iter()
            .map(|desired| &desired.object)
            .find(is)
            .unwrap_or_else(|| {
                panic!("the answer has no {kind} {name}; it has {:?}", self.objects());
            })
    }

    /// Returns the desired objects as `Kind name`, in order.
    pub fn objects(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
        let named = |object: &Value| format!("{} {}", text(&object["kind"]), text(&object["metadata"]["name"]));
        self.desired.iter().map(|desired| named(&desired.object)).collect()
    }

    /// Returns the condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    pub(super) fn read(outcome: types::Outcome) -> Self {
        let types::Outcome {
            desired,
            status,
            conditions,
            events,
            requeue_after,
            extensions: _,
        } = outcome;
        let json = |text: String| -> Value { serde_json::from_str(&text).expect("serde_json has written it") };
        Self {
            desired: desired
                .into_iter()
                .map(
                    |types::Desired {
                         object,
                         ownership,
                         lifecycle,
                         options,
                     }| DesiredObject {
                        object: json(object),
                        ownership: match ownership {
                            types::Ownership::Owned => Ownership::Owned,
                            types::Ownership::Contributed => Ownership::Contributed,
                        },
                        lifecycle: Lifecycle {
                            create_only: has(lifecycle, types::Lifecycle::CREATE_ONLY),
                            keep: has(lifecycle, types::Lifecycle::KEEP),
                            recreate: has(lifecycle, types::Lifecycle::RECREATE),
                            ..options_of(&json(options))
                        },
                    },
                )
                .collect(),
            status: status.map(json).map(without_nulls),
            conditions: conditions
                .into_iter()
                .map(
                    |types::Condition {
                         type_,
                         status,
                         reason,
                         message,
                     }| {
                        let status = match status {
                            types::ConditionStatus::True => ConditionStatus::True,
                            types::ConditionStatus::False => ConditionStatus::False,
                            types::ConditionStatus::Unknown => ConditionStatus::Unknown,
                        };
                        Condition {
                            type_,
                            status,
                            reason,
                            message,
                        }
                    },
                )
                .collect(),
            events: events
                .into_iter()
                .map(|types::Event { type_, reason, message }| {
                    let type_ = match type_ {
                        types::EventType::Normal => EventType::Normal,
                        types::EventType::Warning => EventType::Warning,
                    };
                    Event { type_, reason, message }
                })
                .collect(),
            requeue_after: requeue_after.map(Duration::from_millis),
        }
    }
}

/// The lifecycle that has these options.
fn options_of(options: &Value) -> Lifecycle {
    let paths = options["yield"].as_array().into_iter().flatten();
    Lifecycle {
        replace: options["replace"] == true,
        propagation: [Propagation::Background, Propagation::Foreground, Propagation::Orphan]
            .into_iter()
            .find(|it| options["propagation"] == it.as_str()),
        adopt: match options["adopt"].as_str() {
            Some("IfUnowned") => Adopt::IfUnowned,
            _ => Adopt::Never,
        },
        yields: paths.filter_map(|path| path.as_str().map(str::to_owned)).collect(),
        after: Vec::deserialize(&options["after"]).unwrap_or_default(),
        once: options["once"].as_str().map(str::to_owned),
        ..Lifecycle::default()
    }
}

/// A status as the host writes it: a member that is null says that there is no opinion of it, and an item of a list stays.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(_, member)| !member.is_null());
            kept.map(|(name, member)| (name, without_nulls(member))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        scalar => scalar,
    }
}

fn has(lifecycle: types::Lifecycle, flag: types::Lifecycle) -> bool {
    lifecycle.bits() & flag.bits() != 0
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_has_no_members_that_are_null() {
        let outcome = Outcome::new().status(json!({"a": null, "b": {"c": null, "d": 1}, "e": [null, {"f": null}]}));
        let answer = Answer::of(outcome).unwrap();
        assert_eq!(answer.status, Some(json!({"b": {"d": 1}, "e": [null, {}]})));
    }
}
