//! Owns the third stage: the answer is held against the grants, and what the call read becomes the object's
//! dependencies, also when the call failed. Makes no request.

use std::collections::BTreeMap;

use pilothouse_core::Failure;
use pilothouse_core::answer::{self, Answer, Primary};
use pilothouse_core::contract::Outcome;
use pilothouse_core::dependencies::Read;

use super::gather::Gathered;
use super::invoke::Invoked;
use crate::hub::{Hub, Reader};
use crate::lane::Lane;
use crate::queue::Priority;
use crate::view::Answered;

/// An answer that may be carried out.
pub struct Validated {
    /// What is desired.
    pub answer: Answer,
    /// When time alone would change the answer, in milliseconds since the epoch.
    pub wake_at: Option<u64>,
}

impl Validated {
    /// The answer for an object of which nothing is desired.
    pub fn nothing() -> Self {
        Self {
            answer: Answer::default(),
            wake_at: None,
        }
    }
}

/// Registers the dependencies and checks the answer.
pub fn validate(
    hub: &Hub,
    lane: &Lane,
    gathered: &Gathered,
    reader: &Reader,
    invoked: Invoked,
) -> Result<Validated, Failure> {
    let Invoked {
        result,
        is_done: _,
        view,
        used: _,
    } = invoked;
    let wake_at = view.as_ref().and_then(|view| view.wake_at);
    depend(hub, lane, reader, view.map(|view| view.reads).unwrap_or_default());
    Ok(Validated {
        answer: check(lane, gathered, result)?,
        wake_at,
    })
}

/// Checks the answer.
pub fn check(lane: &Lane, gathered: &Gathered, result: Result<Outcome, Failure>) -> Result<Answer, Failure> {
    let primary = Primary {
        kind: lane.grants.primary(),
        name: &gathered.object.name,
    };
    let facts = |kind: &_| lane.served(kind).map(|served| served.facts);
    answer::check(result?, &primary, &lane.grants, &lane.limits, facts)
}

/// Replaces the object's dependencies. What has changed since it was read wakes the object again: between the read and
/// this moment nobody watched on its behalf.
fn depend(hub: &Hub, lane: &Lane, reader: &Reader, reads: BTreeMap<Read, Answered>) {
    let mut state = hub.state.write();
    let outdated = reads
        .iter()
        .any(|(read, answered)| answered.is_outdated(&state.store, lane, read));
    state.depend(reader, reads.into_keys().collect());
    if outdated {
        state.queue.push(reader.lane, &reader.name, Priority::Change);
    }
}
