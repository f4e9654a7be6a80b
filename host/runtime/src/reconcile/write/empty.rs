//! Applies after a patch has emptied the members that the apply would turn into null
//! ([`pilothouse_core::diff::emptied`]). Makes requests.

use pilothouse_cluster::discovery::ServedKind;
use pilothouse_cluster::error::RequestError;
use pilothouse_cluster::object::CachedObject;
use pilothouse_cluster::write::{ApplyResponse, LiveObject};
use pilothouse_core::Name;
use pilothouse_core::diff::emptied::{ApplyManager, Emptied};
use serde_json::{Map, Value};

use super::requests::{Requests, version};
use crate::reconcile::diff::{PlannedObject, key};

/// Number of times that an object that changed before it was emptied is read again.
const LOOKS: u32 = 3;

/// Members of an object, or of its subresource, that have to be empty.
#[derive(Clone, Copy)]
pub struct Emptying<'a> {
    /// Served kind of the object.
    pub served: &'a ServedKind,
    /// Name of the object.
    pub name: &'a Name,
    /// UID of the object; another one of its name is left alone.
    pub uid: &'a str,
    /// Subresource that is applied.
    pub subresource: Option<&'a str>,
    /// Body that is applied next.
    pub body: &'a Map<String, Value>,
}

impl Requests<'_> {
    /// Applies a desired object to a live one, which is ours.
    ///
    /// A list that becomes empty is left to the apply, which removes it, unless that is rejected.
    pub async fn apply_over(&self, step: &PlannedObject, live: &CachedObject) -> Result<ApplyResponse, RequestError> {
        let entry = step.entry(self.lane).map(|entry| entry.field_set());
        // If the cache has no entry of ours, the object's fields may just have been taken over.
        let body = step.sent();
        let has = |which: Emptied| entry.as_ref().is_none_or(|entry| which.is_in(&body, entry));
        let emptying = Emptying {
            served: &step.desired.served,
            name: &step.desired.name,
            uid: &live.uid,
            subresource: None,
            body: &body,
        };
        if has(Emptied::Objects) && has_empty_member(&body) {
            self.empty(emptying, Emptied::Objects).await?;
        }
        match self.apply(step, live).await {
            Err(error) if error.code() == Some(422) && has(Emptied::ObjectsAndLists) => {
                match self.empty(emptying, Emptied::ObjectsAndLists).await {
                    Ok(Some(_)) => self.apply(step, live).await,
                    Ok(None) | Err(_) => Err(error),
                }
            }
            sent => sent,
        }
    }

    /// Empties members of a live object; `None` if there was nothing to empty.
    pub async fn empty(&self, emptying: Emptying<'_>, which: Emptied) -> Result<Option<CachedObject>, RequestError> {
        let Emptying {
            served,
            name,
            uid,
            subresource,
            body,
        } = emptying;
        let mut refused: Option<(CachedObject, RequestError)> = None;
        for _ in 0..LOOKS {
            let Some(LiveObject { object, managers }) = self.live(served, name).await? else {
                return Ok(None);
            };
            // If the object has not changed since, the rejection is about what was sent.
            if let Some((before, error)) = refused.take()
                && before.resource_version == object.resource_version
            {
                return Err(error);
            }
            let writer = &self.lane.writer;
            let manager = ApplyManager {
                name: writer.manager(),
                subresource,
                api_version: &served.kind.api_version(),
            };
            let operations = which.operations_by(&manager, body, &object.value(), &managers);
            if operations.is_empty() || *object.uid != *uid {
                return Ok(None);
            }
            let request = writer.replace_values(served, &object, subresource, operations);
            match self.tracked(key(served, name), request, version).await {
                Ok(emptied) => {
                    tracing::debug!(lane = self.lane.title(), object = %name, kind = %served.kind, "emptied members before an apply");
                    return Ok(Some(emptied));
                }
                Err(error) if matches!(error.code(), Some(409 | 422)) => refused = Some((object, error)),
                Err(error) => return Err(error),
            }
        }
        refused.map_or(Ok(None), |(_, error)| Err(error))
    }
}

/// Returns `true` if a body has an empty object anywhere but in its metadata.
fn has_empty_member(body: &Map<String, Value>) -> bool {
    fn is_empty(value: &Value) -> bool {
        match value {
            Value::Object(members) => members.is_empty() || members.values().any(is_empty),
            Value::Array(items) => items.iter().any(is_empty),
            _ => false,
        }
    }
    body.iter().any(|(name, value)| name != "metadata" && is_empty(value))
}
