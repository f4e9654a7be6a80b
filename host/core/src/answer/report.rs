//! Checks what a plugin reports: its status, conditions and events.

use serde_json::{Map, Value};

use crate::answer::desired::{first_twice, invalid};
use crate::plugin::contract::{Condition, Event};
use crate::status::failure::Failure;
use crate::status::host_conditions::is_host_condition;
use crate::status::reason::{MAX_REASON_BYTES, is_reason};
use crate::text::printable::shorten;

/// The longest message of a condition; the schema of metav1.Condition allows no more.
pub const MAX_CONDITION_MESSAGE: usize = 32_768;

/// The longest note of an event; events.k8s.io/v1 allows no more.
const MAX_EVENT_MESSAGE: usize = 1024;

pub(super) fn check_status(text: &str) -> Result<Map<String, Value>, Failure> {
    let status: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| invalid(format!("the status is not a JSON object: {error}")))?;
    let Some(conditions) = status.get("conditions") else {
        return Ok(status);
    };
    let types: Option<Vec<&str>> = conditions.as_array().and_then(|items| {
        items
            .iter()
            .map(|item| item.get("type").and_then(Value::as_str))
            .collect()
    });
    match types {
        None => Err(invalid("status.conditions must be a list of objects that have a type")),
        Some(types) => match first_twice(types.into_iter()) {
            Some(twice) => Err(invalid(format!("status.conditions has type {twice} twice"))),
            None => Ok(status),
        },
    }
}

/// The pattern of metav1.Condition's `type`, without the optional domain.
fn is_condition_type(text: &str) -> bool {
    let name = text.rsplit_once('/').map_or(text, |(_, name)| name);
    !name.is_empty()
        && text.len() <= 316
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && name.starts_with(|letter: char| letter.is_ascii_alphanumeric())
        && name.ends_with(|letter: char| letter.is_ascii_alphanumeric())
}

pub(super) fn check_condition(condition: &Condition) -> Result<(), Failure> {
    let Condition {
        type_,
        status: _,
        reason,
        message,
    } = condition;
    if !is_condition_type(type_) {
        return Err(invalid(format!(
            "the answer has a condition of type {type_:?}, which is not a CamelCase word"
        )));
    }
    if is_host_condition(type_) {
        return Err(invalid(format!(
            "the answer has the condition {type_}, which is the host's own"
        )));
    }
    if !is_reason(reason) {
        return Err(invalid(format!(
            "condition {type_} has the reason {reason:?}, which is not a CamelCase word of at most {MAX_REASON_BYTES} bytes"
        )));
    }
    if message.len() > MAX_CONDITION_MESSAGE {
        return Err(invalid(format!(
            "condition {type_} has a message over {MAX_CONDITION_MESSAGE} bytes"
        )));
    }
    Ok(())
}

pub(super) fn check_event(event: Event) -> Result<Event, Failure> {
    let Event { type_, reason, message } = event;
    if !is_reason(&reason) {
        return Err(invalid(format!(
            "an event has the reason {reason:?}, which is not a CamelCase word of at most {MAX_REASON_BYTES} bytes"
        )));
    }
    Ok(Event {
        type_,
        reason,
        message: shorten(message, MAX_EVENT_MESSAGE),
    })
}
