//! PATCH in every format, server-side apply among them.

use serde_json::Value;

use super::{Answer, Call, body, create, update};
use crate::apply::update as ownership;
use crate::custom::Nulls;
use crate::failure::{Failure, FieldError};
use crate::patch;
use crate::request::FieldValidation;
use crate::state::State;

const JSON: &str = "application/json-patch+json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// PATCH of an object or of its status.
pub(crate) fn patch(state: &mut State, call: &Call, content_type: &str, text: &[u8]) -> Result<Answer, Failure> {
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let custom = call.resource.custom.is_some();
    match media {
        APPLY => return apply(state, call, text),
        JSON | MERGE => {}
        STRATEGIC if !custom => {}
        STRATEGIC => return Err(Failure::unsupported_media_type(&[JSON, MERGE, APPLY])),
        _ => return Err(Failure::unknown_patch_type()),
    }
    let manager = call.options.manager("PatchOptions")?;
    if call.options.query.has("force") {
        let error = FieldError::forbidden("force", "may not be specified for non-apply patch");
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let stored = state
        .store
        .get(&call.resource.storage, &call.key())
        .cloned()
        .ok_or_else(|| call.not_found())?;
    let live = call.resource.show(&stored).into_owned();
    let wanted = patched(call, media, &live, text)?;
    let body::Body { mut object, warnings } = understand(call, wanted)?;
    check_name(call, &object)?;
    create::own(state, call, &live, &mut object, &manager);
    let object = update::change(state, call, &live, object)?;
    Ok(Answer::object(object).with_warnings(warnings))
}

fn patched(call: &Call, media: &str, live: &Value, text: &[u8]) -> Result<Value, Failure> {
    let document: Value =
        serde_json::from_slice(text).map_err(|fault| Failure::bad_request(format!("error decoding patch: {fault}")))?;
    let mut object = live.clone();
    match media {
        JSON => match patch::json::apply(&mut object, &document) {
            Ok(()) => {}
            Err(patch::json::PatchError::Rejected(_)) => return Err(Failure::rejected()),
            Err(fault) => return Err(Failure::bad_request(fault.to_string())),
        },
        MERGE if document.is_object() => patch::merge::apply(&mut object, &document),
        MERGE => {
            return Err(Failure::bad_request(
                "json: cannot unmarshal the patch into a Go value of type map[string]interface {}",
            ));
        }
        _ => patch::strategic::apply(call.resource.schema(), &mut object, &document).map_err(Failure::bad_request)?,
    }
    Ok(object)
}

/// Decodes the result of a patch. Unknown fields are reported otherwise for patches than for whole objects.
fn understand(call: &Call, value: Value) -> Result<body::Body, Failure> {
    let strict = call.options.field_validation == FieldValidation::Strict;
    let given = value.clone();
    let (object, unknown) = body::typed(&call.resource, value, Nulls::Dropped).map_err(|failure| {
        let head = format!("cannot be handled as a {}: ", call.resource.kind);
        let fault = failure
            .message
            .split_once(&head)
            .map_or(failure.message.as_str(), |(_, fault)| fault);
        Failure::bad_patch_result(&given, fault)
    })?;
    let messages: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
    if strict && !messages.is_empty() {
        let detail = format!("strict decoding error: {}", messages.join(", "));
        return Err(Failure::bad_patch_result(&given, &detail));
    }
    let warnings = if call.options.field_validation == FieldValidation::Warn {
        messages
    } else {
        Vec::new()
    };
    Ok(body::Body { object, warnings })
}

fn check_name(call: &Call, object: &Value) -> Result<(), Failure> {
    let wanted = call.name.as_deref().unwrap_or_default();
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if given.is_empty() {
        return Err(Failure::nameless(wanted));
    }
    if given != wanted {
        return Err(Failure::name_mismatch(given, wanted));
    }
    let (wanted, given) = (
        call.namespace.as_deref().unwrap_or_default(),
        object["metadata"]["namespace"].as_str(),
    );
    match given {
        Some(given) if !given.is_empty() && given != wanted && call.resource.namespaced => {
            Err(Failure::namespace_mismatch(given, wanted))
        }
        _ => Ok(()),
    }
}

/// Server-side apply.
fn apply(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let query = &call.options.query;
    if query.text("fieldManager").is_empty() {
        let error = FieldError::required("fieldManager", "is required for apply patch");
        return Err(Failure::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let manager = call.options.manager("PatchOptions")?;
    let applied =
        body::parse(text).map_err(|fault| Failure::bad_request(format!("error decoding YAML: {}", fault.message)))?;
    check_version(call, &applied)?;
    let resource = &call.resource;
    let stored = state.store.get(&resource.storage, &call.key()).cloned();
    if stored.is_none() && !call.subresource.is_empty() {
        return Err(call.not_found());
    }
    let live = stored
        .as_ref()
        .map_or_else(|| resource.nothing(), |stored| resource.show(stored).into_owned());
    let version = resource.api_version();
    let time = state.clock.timestamp();
    let writer = ownership::Writer {
        manager: &manager,
        version: &version,
        subresource: &call.subresource,
        time: &time,
    };
    let views = state.kinds.views(resource, &call.subresource);
    let merged = ownership::apply(&views, &live, &applied, &writer, query.flag("force"))?;
    let managed = merged["metadata"].get("managedFields").cloned();
    let (mut object, unknown) = body::typed(resource, merged, Nulls::Kept)?;
    let warnings = if call.options.field_validation == FieldValidation::Warn {
        unknown.iter().map(|path| format!("unknown field {path:?}")).collect()
    } else {
        Vec::new()
    };
    // Decoding has no business in the book of managers.
    if let (Some(managed), Some(metadata)) = (managed, object["metadata"].as_object_mut()) {
        metadata.insert("managedFields".to_owned(), managed);
    }
    check_name(call, &object)?;
    if stored.is_none() {
        return create_applied(state, call, &applied, object).map(|answer| answer.with_warnings(warnings));
    }
    let object = update::change(state, call, &live, object)?;
    Ok(Answer::object(object).with_warnings(warnings))
}

fn create_applied(state: &mut State, call: &Call, applied: &Value, mut object: Value) -> Result<Answer, Failure> {
    let resource = &call.resource;
    let name = call.name.as_deref().unwrap_or_default();
    let given = |field: &str| applied["metadata"][field].as_str().filter(|text| !text.is_empty());
    // A precondition on an object that is not there.
    if let Some(uid) = given("uid") {
        let cause = format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
        return Err(Failure::conflict(&resource.group, &resource.plural, name, &cause));
    }
    create::place(call, &mut object)?;
    create::insert(state, call, object).map(Answer::created)
}

fn check_version(call: &Call, applied: &Value) -> Result<(), Failure> {
    let text = |name: &str| applied[name].as_str().unwrap_or_default();
    let expected = call.resource.api_version();
    let kind = text("kind");
    if text("apiVersion") != expected || kind != call.resource.kind {
        let shown = text("apiVersion");
        let shown = if shown.contains('/') {
            shown.to_owned()
        } else {
            format!("/{shown}")
        };
        return Err(Failure::bad_request(format!(
            "invalid object type: {shown}, Kind={kind}"
        )));
    }
    Ok(())
}
