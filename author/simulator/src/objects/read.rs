//! Reads single objects, and lists with their selectors and pages.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Call};
use crate::failure::Failure;
use crate::selector::Selector;
use crate::state::State;

/// GET of one object.
pub(crate) fn get(state: &State, call: &Call) -> Result<Answer, Failure> {
    let stored = state
        .store
        .get(&call.resource.storage, &call.key())
        .ok_or_else(|| call.not_found())?;
    Ok(Answer::object(call.resource.show(stored).into_owned()))
}

pub(crate) fn selector(call: &Call) -> Result<Selector, Failure> {
    let query = &call.options.query;
    let mut fields = query.text("fieldSelector").to_owned();
    // A list or watch of one name is how a single object is watched.
    if let Some(name) = &call.name {
        if !fields.is_empty() {
            fields.push(',');
        }
        fields.push_str("metadata.name=");
        fields.push_str(name);
    }
    Selector::parse(query.text("labelSelector"), &fields, &call.resource)
}

/// The objects that a list is about, as they are stored.
pub(crate) fn selected(state: &State, call: &Call) -> Result<Vec<Arc<Value>>, Failure> {
    let selector = selector(call)?;
    let storage = &call.resource.storage;
    let matching = |object: &&Arc<Value>| selector.matches(object);
    Ok(match &call.namespace {
        Some(namespace) => state
            .store
            .list_namespace(storage, namespace)
            .filter(matching)
            .cloned()
            .collect(),
        None => state.store.list(storage).filter(matching).cloned().collect(),
    })
}

/// The same, as they were at an earlier revision.
pub(crate) fn selected_at(state: &State, call: &Call, revision: u64) -> Result<Vec<Arc<Value>>, Failure> {
    if revision >= state.store.revision() {
        return selected(state, call);
    }
    let selector = selector(call)?;
    let in_namespace = |object: &Value| {
        call.namespace
            .as_ref()
            .is_none_or(|namespace| object["metadata"]["namespace"] == namespace.as_str())
    };
    let objects = state.store.list_at(&call.resource.storage, revision);
    Ok(objects
        .into_iter()
        .filter(|object| in_namespace(object) && selector.matches(object))
        .collect())
}

/// GET of a list as it was some changes ago, from a server that lags behind.
pub(crate) fn stale_list(state: &State, call: &Call, changes: u64) -> Result<Answer, Failure> {
    let revision = state
        .store
        .revision()
        .saturating_sub(changes)
        .max(state.store.compacted());
    let items: Vec<Value> = selected_at(state, call, revision)?
        .iter()
        .map(|stored| item(call, stored))
        .collect();
    Ok(Answer::object(json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.resource.api_version(),
        "metadata": {"resourceVersion": revision.to_string()},
        "items": items,
    })))
}

/// Position of a continued list: the revision it began at, the snapshot, and the count of objects sent.
struct Token {
    revision: u64,
    snapshot: u64,
    sent: usize,
}

impl Token {
    fn write(&self) -> String {
        use base64::Engine as _;
        let text = json!({"v": "pilothouse", "rv": self.revision, "snapshot": self.snapshot, "sent": self.sent});
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text.to_string())
    }

    fn read(text: &str) -> Option<Self> {
        use base64::Engine as _;
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok()?;
        let token: Value = serde_json::from_slice(&bytes).ok()?;
        Some(Self {
            revision: token["rv"].as_u64()?,
            snapshot: token["snapshot"].as_u64()?,
            sent: usize::try_from(token["sent"].as_u64()?).ok()?,
        })
    }
}

const EXPIRED_PAGE: &str = "The provided continue parameter is too old to display a consistent list result. You can start a new \
    list without the continue parameter, or use the continue token in this response to retrieve the remainder of the results. \
    Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted \
    between the time the first chunk was returned and now may show up in the list.";

/// Error of a list that is continued after its snapshot is gone.
pub(crate) fn expired_page() -> Failure {
    Failure::expired(EXPIRED_PAGE)
}

/// GET of a list.
pub(crate) fn list(state: &mut State, call: &Call) -> Result<Answer, Failure> {
    list_in_pages(state, call, usize::MAX)
}

/// GET of a list. One that asks for pages gets them with at most so many objects.
pub(crate) fn list_in_pages(state: &mut State, call: &Call, most: usize) -> Result<Answer, Failure> {
    let query = &call.options.query;
    check_revision(state, call)?;
    let limit = query
        .number("limit")
        .filter(|limit| *limit > 0)
        .and_then(|limit| usize::try_from(limit).ok())
        .map(|limit| limit.min(most));
    let token = match query.text("continue") {
        "" => None,
        text => Some(Token::read(text).ok_or_else(|| {
            Failure::bad_request("continue key is not valid: illegal base64 data or another server's token")
        })?),
    };
    let (all, revision, snapshot, sent) = match token {
        None => {
            let revision = exact_revision(state, call).unwrap_or_else(|| state.store.revision());
            (selected_at(state, call, revision)?, revision, None, 0)
        }
        Some(token) => {
            let objects = state.store.snapshot(token.snapshot).ok_or_else(expired_page)?;
            (objects.to_vec(), token.revision, Some(token.snapshot), token.sent)
        }
    };
    let rest = all.get(sent..).unwrap_or_default();
    let page = &rest[..limit.unwrap_or(rest.len()).min(rest.len())];
    let items: Vec<Value> = page.iter().map(|stored| item(call, stored)).collect();
    let mut metadata = json!({"resourceVersion": revision.to_string()});
    if call.resource.custom.is_some() {
        metadata["continue"] = json!("");
    }
    if page.len() < rest.len() {
        let remaining = rest.len() - page.len();
        let sent = sent + page.len();
        let has_selector = !query.text("labelSelector").is_empty() || !query.text("fieldSelector").is_empty();
        let snapshot = snapshot.unwrap_or_else(|| state.store.keep_snapshot(all.clone()));
        metadata["continue"] = json!(
            Token {
                revision,
                snapshot,
                sent
            }
            .write()
        );
        if !has_selector {
            metadata["remainingItemCount"] = json!(remaining);
        }
    }
    Ok(Answer::object(json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.resource.api_version(),
        "metadata": metadata,
        "items": items,
    })))
}

/// Returns a list's item; items of built-in lists have no apiVersion and kind.
fn item(call: &Call, stored: &Value) -> Value {
    let mut object = call.resource.show(stored).into_owned();
    if call.resource.custom.is_none()
        && let Some(members) = object.as_object_mut()
    {
        members.remove("apiVersion");
        members.remove("kind");
    }
    object
}

fn check_revision(state: &State, call: &Call) -> Result<(), Failure> {
    let query = &call.options.query;
    let given = query.text("resourceVersion");
    let matching = query.text("resourceVersionMatch");
    if given.is_empty() {
        return if matching.is_empty() {
            Ok(())
        } else {
            Err(list_options_error(
                "resourceVersionMatch",
                "resourceVersionMatch is forbidden unless resourceVersion is provided",
            ))
        };
    }
    let asked: u64 = given.parse().map_err(|_| Failure::invalid_resource_version(given))?;
    let current = state.store.revision();
    if asked > current {
        return Err(Failure::too_large_resource_version(asked, current));
    }
    if matching == "Exact" && asked != current && asked < state.store.compacted() {
        return Err(Failure::expired(format!(
            "The resourceVersion for the provided list is too old: {asked}"
        )));
    }
    Ok(())
}

/// The revision of a list that must show exactly that.
fn exact_revision(state: &State, call: &Call) -> Option<u64> {
    let query = &call.options.query;
    let wanted = || {
        query
            .text("resourceVersion")
            .parse()
            .ok()
            .filter(|revision| *revision <= state.store.revision())
    };
    (query.text("resourceVersionMatch") == "Exact").then(wanted).flatten()
}

fn list_options_error(field: &str, detail: &str) -> Failure {
    let error = crate::failure::FieldError::forbidden(field, detail);
    Failure::invalid("meta.k8s.io", "ListOptions", "", &[error])
}
