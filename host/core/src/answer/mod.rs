//! Checks a guest's answer: parses it once, checks it against the grants and limits, and makes objects of it that the
//! later stages need not check again.

mod after;
pub mod desired;
mod objects;
mod options;
mod report;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use serde_json::{Map, Value};

use self::after::Candidate;
use self::objects::{CheckedDesire, CheckedObject, check_object};
use self::report::{check_condition, check_event, check_status};
use crate::answer::desired::{DesiredObject, PrimaryName, UnservedObject, first_twice, invalid};
use crate::kubernetes::key::Kind;
use crate::kubernetes::served::ServedKind;
use crate::ownership::once::MAX_ONCE;
use crate::plugin::contract::{Condition, Event, Lifecycle, Outcome, Ownership};
use crate::plugin::grants::Grants;
use crate::plugin::limits::Limits;
use crate::status::failure::Failure;
use crate::status::reason::Reason;

pub use self::report::MAX_CONDITION_MESSAGE;
pub use crate::kubernetes::served::KindFacts;

/// The highest number of conditions, and of events, in one answer.
const MAX_CONDITIONS: usize = 64;

/// The longest requeue delay that a plugin may set: a year.
const MAX_REQUEUE_MILLISECONDS: u64 = 366 * 24 * 60 * 60 * 1000;

/// The shortest requeue delay; shorter ones are raised to it.
const LEAST_REQUEUE_MILLISECONDS: u64 = 1000;

/// An answer that has been checked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CheckedAnswer {
    /// The owned objects, in the plugin's order.
    pub owned: Vec<DesiredObject>,
    /// Fields of objects that the plugin does not own.
    pub contributed: Vec<DesiredObject>,
    /// Objects of optional kinds that the cluster does not serve.
    pub unserved: Vec<UnservedObject>,
    /// The status without the fields that the host writes.
    pub status: Option<Map<String, Value>>,
    /// The plugin's conditions.
    pub conditions: Vec<Condition>,
    /// Events about the primary.
    pub events: Vec<Event>,
    /// The requeue delay, in milliseconds.
    pub requeue_after: Option<u64>,
}

impl CheckedAnswer {
    /// The types of all conditions, including those within the status.
    pub fn condition_types(&self) -> impl Iterator<Item = &str> {
        let within = self.status.as_ref().and_then(|status| status.get("conditions"));
        let within = within.and_then(Value::as_array).into_iter().flatten();
        let within = within.filter_map(|item| item.get("type").and_then(Value::as_str));
        self.conditions.iter().map(|it| it.type_.as_str()).chain(within)
    }
}

/// Checks an answer. `served` knows every declared kind that is served.
pub fn check(
    outcome: Outcome,
    primary: &PrimaryName<'_>,
    grants: &Grants,
    limits: &Limits,
    served: impl Fn(&Kind) -> Option<ServedKind>,
) -> Result<CheckedAnswer, Failure> {
    let Outcome {
        desired,
        status,
        conditions,
        events,
        requeue_after,
    } = outcome;
    let limit = usize::try_from(limits.output_objects).unwrap_or(usize::MAX);
    if desired.len() > limit {
        return Err(Failure::guest(
            Reason::GuestLimit,
            format!(
                "the plugin wants {} objects, the limit outputObjects is {limit}",
                desired.len()
            ),
        ));
    }
    let mut owned: Vec<DesiredObject> = Vec::with_capacity(desired.len());
    let (mut contributed, mut unserved) = (Vec::new(), Vec::new());
    let mut seen = HashMap::with_capacity(desired.len());
    let mut candidates = Vec::with_capacity(desired.len());
    for (position, wanted) in desired.into_iter().enumerate() {
        if wanted.ownership == Ownership::Contributed && wanted.lifecycle != Lifecycle::default() {
            return Err(invalid(format!(
                "desired object {position} is contributed and has a lifecycle, which only owned objects have"
            )));
        }
        let CheckedDesire { object, after } = check_object(position, &wanted, primary, grants, &served)?;
        let (kind, name) = match &object {
            CheckedObject::Served(object) => (&object.served.kind, &object.name),
            CheckedObject::Unserved(object) => (&object.kind, &object.name),
        };
        // An object may be owned and contributed to: two managers write it.
        let is_owned = wanted.ownership == Ownership::Owned;
        let identity = (kind.group.clone(), kind.kind.clone(), name.clone(), is_owned);
        if let Some(earlier) = seen.insert(identity, position) {
            return Err(invalid(format!(
                "desired objects {earlier} and {position} are both {} {name}",
                kind.kind
            )));
        }
        candidates.push(Candidate {
            kind: kind.clone(),
            name: name.clone(),
            is_owned,
            place: (matches!(object, CheckedObject::Served(_)) && is_owned).then_some(owned.len()),
            after,
        });
        match object {
            CheckedObject::Served(object) if is_owned => owned.push(object),
            CheckedObject::Served(object) => contributed.push(object),
            CheckedObject::Unserved(object) => unserved.push(object),
        }
    }
    after::resolve(&candidates, primary, grants, &mut owned)?;
    let once = owned.iter().filter(|object| object.once.is_some()).count();
    if once > MAX_ONCE {
        return Err(invalid(format!(
            "{once} desired objects have the option \"once\"; an answer has at most {MAX_ONCE}"
        )));
    }
    let status = status.map(|text| check_status(&text)).transpose()?;
    for condition in &conditions {
        check_condition(condition)?;
    }
    if conditions.len() > MAX_CONDITIONS || events.len() > MAX_CONDITIONS {
        return Err(invalid(format!(
            "an answer has at most {MAX_CONDITIONS} conditions and as many events"
        )));
    }
    if let Some(twice) = first_twice(conditions.iter().map(|it| it.type_.as_str())) {
        return Err(invalid(format!("the answer has condition {twice} twice")));
    }
    let events = events.into_iter().map(check_event).collect::<Result<_, _>>()?;
    if let Some(wait) = requeue_after.filter(|wait| !(1..=MAX_REQUEUE_MILLISECONDS).contains(wait)) {
        return Err(invalid(format!(
            "requeue-after is {wait} ms; it must be between 1 and {MAX_REQUEUE_MILLISECONDS} (a year)"
        )));
    }
    Ok(CheckedAnswer {
        owned,
        contributed,
        unserved,
        status,
        conditions,
        events,
        requeue_after: requeue_after.map(|wait| wait.max(LEAST_REQUEUE_MILLISECONDS)),
    })
}
