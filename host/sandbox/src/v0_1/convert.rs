//! Converts version 0.1.0's types to the contract's, and bounds a guest's answers.

use pilothouse_core::plugin::contract::{
    Condition, ConditionStatus, Desired, Event, EventType, Lifecycle, Outcome, Ownership, Request, first_member,
};
use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Limits};

use super::bindings::pilothouse::plugin::types as guest;
use crate::outcome::{Limit, MAX_GUEST_WORDS, shorten};

/// Conditions in one answer.
const MAX_CONDITIONS: usize = 64;

/// Events in one answer.
const MAX_EVENTS: usize = 64;

/// Bytes of a condition's type: Kubernetes' own limit.
const MAX_CONDITION_TYPE: usize = 316;

/// Bytes of a condition's reason: Kubernetes' own limit.
const MAX_CONDITION_REASON: usize = 1024;

/// Bytes of a condition's message: Kubernetes' own limit. Longer ones are shortened.
const MAX_CONDITION_MESSAGE: usize = 32_768;

/// Bytes of an event's reason: Kubernetes' own limit.
const MAX_EVENT_REASON: usize = 128;

/// Bytes of an extension's name in an error.
const MAX_EXTENSION: usize = 64;

/// Bytes of an event's message: Kubernetes' own limit. Longer ones are shortened.
const MAX_EVENT_MESSAGE: usize = 1024;

/// Converts a request to the guest's type. This version has no extensions.
pub(super) fn request(request: &Request) -> guest::Request<'_> {
    let Request {
        object,
        configuration,
        attempt,
    } = request;
    guest::Request {
        object,
        configuration,
        attempt: *attempt,
        extensions: "{}",
    }
}

/// Converts a guest's failure.
pub(super) fn failure(failure: guest::Failure) -> Failure {
    match failure {
        guest::Failure::Transient(message) => Failure::cluster(Reason::Failure, shorten(&message, MAX_GUEST_WORDS)),
        guest::Failure::Permanent(message) => Failure::user(Reason::Failure, shorten(&message, MAX_GUEST_WORDS)),
    }
}

/// Converts a guest's outcome and checks it against the limits on answers.
pub(super) fn outcome(outcome: guest::Outcome, limits: &Limits) -> Result<Outcome, Failure> {
    let guest::Outcome {
        desired,
        status,
        conditions,
        events,
        requeue_after,
        extensions,
    } = outcome;
    if desired.len() as u64 > limits.output_objects {
        return Err(Limit::OutputObjects.failure(limits));
    }
    let of_objects = desired
        .iter()
        .map(|desired| desired.object.len() + desired.options.len());
    let of_rest = [&status, &extensions].map(|json| json.as_ref().map_or(0, String::len));
    let bytes = of_objects.sum::<usize>() + of_rest.iter().sum::<usize>();
    if bytes as u64 > limits.output_bytes {
        return Err(Limit::OutputBytes.failure(limits));
    }
    at_most("conditions", conditions.len(), MAX_CONDITIONS)?;
    at_most("events", events.len(), MAX_EVENTS)?;
    if let Some(extensions) = extensions {
        check_extensions(&extensions)?;
    }
    Ok(Outcome {
        desired: desired.into_iter().map(Desired::from).collect(),
        status,
        conditions: conditions.into_iter().map(condition).collect::<Result<_, _>>()?,
        events: events.into_iter().map(event).collect::<Result<_, _>>()?,
        requeue_after,
    })
}

/// Checks the extensions of an answer against those of this version, which has none.
fn check_extensions(extensions: &str) -> Result<(), Failure> {
    let invalid = |problem: String| Err(Failure::guest(Reason::InvalidAnswer, problem));
    match first_member(extensions) {
        Ok(None) => Ok(()),
        Ok(Some(member)) => invalid(format!(
            "the plugin answers with the extension {:?}, which contract {} does not have; update the host, or remove the \
             extension",
            shorten(&member, MAX_EXTENSION),
            super::VERSION
        )),
        Err(error) => invalid(format!(
            "the plugin answers with extensions that are not a JSON object: {}; fix the plugin",
            shorten(&error.to_string(), MAX_GUEST_WORDS)
        )),
    }
}

fn at_most(what: &str, count: usize, most: usize) -> Result<(), Failure> {
    if count <= most {
        return Ok(());
    }
    Err(Failure::guest(
        Reason::InvalidAnswer,
        format!("the plugin answers with {count} {what}; there can be at most {most}"),
    ))
}

fn no_longer(what: &str, text: &str, most: usize) -> Result<(), Failure> {
    if text.len() <= most {
        return Ok(());
    }
    Err(Failure::guest(
        Reason::InvalidAnswer,
        format!(
            "the plugin answers with {what} of {} bytes; Kubernetes takes at most {most}: {}",
            text.len(),
            shorten(text, 64)
        ),
    ))
}

fn condition(condition: guest::Condition) -> Result<Condition, Failure> {
    let guest::Condition {
        type_,
        status,
        reason,
        message,
    } = condition;
    no_longer("a condition type", &type_, MAX_CONDITION_TYPE)?;
    no_longer("a condition reason", &reason, MAX_CONDITION_REASON)?;
    let message = shorten(&message, MAX_CONDITION_MESSAGE);
    let status = match status {
        guest::ConditionStatus::True => ConditionStatus::True,
        guest::ConditionStatus::False => ConditionStatus::False,
        guest::ConditionStatus::Unknown => ConditionStatus::Unknown,
    };
    Ok(Condition {
        type_,
        status,
        reason,
        message,
    })
}

fn event(event: guest::Event) -> Result<Event, Failure> {
    let guest::Event { type_, reason, message } = event;
    no_longer("an event reason", &reason, MAX_EVENT_REASON)?;
    let message = shorten(&message, MAX_EVENT_MESSAGE);
    let type_ = match type_ {
        guest::EventType::Normal => EventType::Normal,
        guest::EventType::Warning => EventType::Warning,
    };
    Ok(Event { type_, reason, message })
}

impl From<guest::Desired> for Desired {
    fn from(desired: guest::Desired) -> Self {
        let guest::Desired {
            object,
            ownership,
            lifecycle,
            options,
        } = desired;
        Self {
            object,
            ownership: match ownership {
                guest::Ownership::Owned => Ownership::Owned,
                guest::Ownership::Contributed => Ownership::Contributed,
            },
            lifecycle: Lifecycle {
                create_only: lifecycle.contains(guest::Lifecycle::CREATE_ONLY),
                keep: lifecycle.contains(guest::Lifecycle::KEEP),
                recreate: lifecycle.contains(guest::Lifecycle::RECREATE),
                ..Lifecycle::default()
            },
            options,
        }
    }
}
