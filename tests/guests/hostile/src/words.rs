//! Behaviours about the answer beside its objects: status, conditions, events, requeue times.

use pilothouse_plugin::raw::types::{Condition, ConditionStatus, Event, EventType, Outcome};
use pilothouse_plugin::raw::{clock, cluster};
use serde_json::{Value, json};

use crate::answers::{condition, config_map, lower};
use crate::behaviour::{Behaviour, Given};

/// The size of a message that no event can have, in bytes.
const HUGE_MESSAGE: usize = 100_000;

/// Count of events, unless the resource sets another number.
const MANY_EVENTS: usize = 1000;

/// The answer, if the behaviour is one of these.
pub fn of(behaviour: Behaviour, given: &Given) -> Option<Outcome> {
    let good = || config_map(given);
    Some(match behaviour {
        Behaviour::StatusNotAnObject => Outcome {
            status: Some(json!(["a", 1]).to_string()),
            ..good()
        },
        Behaviour::ClockInStatus => Outcome {
            status: Some(json!({"text": clock::now(1000).to_string()}).to_string()),
            ..good()
        },
        Behaviour::CountInStatus => one_more_than(given, given.told.as_deref()),
        Behaviour::CountOnAnother => {
            let other = cluster::get(&lower(crate::HOSTILE), Some(&given.namespace), &given.text);
            let other = other.and_then(|other| serde_json::from_str::<Value>(&other).ok());
            let told = other.as_ref().and_then(|other| other["status"]["text"].as_str());
            one_more_than(given, told)
        }
        Behaviour::StatusBroken => Outcome {
            status: Some("{\"text\": ".to_owned()),
            ..good()
        },
        Behaviour::StatusWrongType => Outcome {
            status: Some(json!({"text": {"no": "text"}}).to_string()),
            ..good()
        },
        Behaviour::BadConditionName => Outcome {
            conditions: vec![condition("not a name!")],
            ..good()
        },
        Behaviour::SameConditionTwice => {
            let no = Condition {
                status: ConditionStatus::False,
                ..condition("Behaved")
            };
            Outcome {
                conditions: vec![condition("Behaved"), no],
                ..good()
            }
        }
        Behaviour::HostCondition => Outcome {
            conditions: vec![condition("Reconciled")],
            ..good()
        },
        Behaviour::EmptyEventReason => Outcome {
            events: vec![event("", given.text.clone())],
            ..good()
        },
        Behaviour::HugeEventMessage => Outcome {
            events: vec![event("Huge", "x".repeat(HUGE_MESSAGE))],
            ..good()
        },
        Behaviour::ManyEvents => {
            let events = (0..given.count_or(MANY_EVENTS)).map(|index| event("Many", format!("event {index}")));
            Outcome {
                events: events.collect(),
                ..good()
            }
        }
        Behaviour::RequeueAtOnce => Outcome {
            requeue_after: Some(0),
            ..good()
        },
        Behaviour::RequeueNever => Outcome {
            requeue_after: Some(u64::MAX),
            ..good()
        },
        Behaviour::BrokenExtensions => Outcome {
            extensions: Some("nonsense".to_owned()),
            ..good()
        },
        _ => return None,
    })
}

fn event(reason: &str, message: String) -> Event {
    Event {
        type_: EventType::Normal,
        reason: reason.to_owned(),
        message,
    }
}

/// A status that counts on.
fn one_more_than(given: &Given, count: Option<&str>) -> Outcome {
    let count = count.and_then(|count| count.parse::<u64>().ok()).unwrap_or_default();
    Outcome {
        status: Some(json!({"text": (count + 1).to_string()}).to_string()),
        ..config_map(given)
    }
}
