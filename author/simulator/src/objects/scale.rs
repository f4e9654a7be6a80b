//! Scale subresource: `autoscaling/v1 Scale` seen through the replicas of another object.

use serde_json::{Value, json};

use super::{Answer, Call, body, create, update};
use crate::failure::{Failure, FieldError};
use crate::patch;
use crate::state::State;

/// The Scale of an object.
fn shown(call: &Call, object: &Value) -> Value {
    let (spec, status, selector) = if let Some(custom) = &call.resource.custom {
        let paths = custom.scale.clone();
        let at = |path: Option<String>| path.and_then(|path| object.pointer(&pointer(&path)).cloned());
        (
            at(paths.as_ref().map(|paths| paths.spec.clone())),
            at(paths.as_ref().map(|paths| paths.status.clone())),
            at(paths.and_then(|paths| paths.selector)),
        )
    } else {
        let selector = &object["spec"]["selector"];
        (
            Some(object["spec"]["replicas"].clone()),
            Some(object["status"]["replicas"].clone()),
            Some(json!(selector_text(selector))),
        )
    };
    let metadata = &object["metadata"];
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"],
        },
        "spec": {},
        "status": {"replicas": status.and_then(|value| value.as_i64()).unwrap_or(0)},
    });
    if let Some(namespace) = metadata.get("namespace") {
        scale["metadata"]["namespace"] = namespace.clone();
    }
    if let Some(replicas) = spec.and_then(|value| value.as_i64()).filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = json!(replicas);
    }
    if let Some(selector) = selector.filter(|selector| selector.as_str().is_some_and(|text| !text.is_empty())) {
        scale["status"]["selector"] = selector;
    }
    scale
}

/// `.spec.replicas` as a JSON pointer.
fn pointer(path: &str) -> String {
    path.replace('.', "/")
}

/// A label selector as text.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").unwrap_or(selector);
    let mut parts: Vec<String> = labels
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(name, value)| Some(format!("{name}={}", value.as_str()?)))
        .collect();
    for expression in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = expression["key"].as_str().unwrap_or_default();
        let values: Vec<&str> = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        parts.push(match expression["operator"].as_str() {
            Some("In") => format!("{key} in ({})", values.join(",")),
            Some("NotIn") => format!("{key} notin ({})", values.join(",")),
            Some("DoesNotExist") => format!("!{key}"),
            _ => key.to_owned(),
        });
    }
    parts.join(",")
}

fn live(state: &State, call: &Call) -> Result<Value, Failure> {
    let stored = state
        .store
        .get(&call.resource.storage, &call.key())
        .ok_or_else(|| call.not_found())?;
    Ok(call.resource.show(stored).into_owned())
}

/// GET of the scale.
pub(crate) fn get(state: &State, call: &Call) -> Result<Answer, Failure> {
    Ok(Answer::other(shown(call, &live(state, call)?)))
}

/// PUT of the scale.
pub(crate) fn replace(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let scale = body::parse(text)?;
    write(state, call, &scale, "UpdateOptions")
}

/// PATCH of the scale, by any format but apply with its ownership: that is recorded as an update.
pub(crate) fn patch(state: &mut State, call: &Call, content_type: &str, text: &[u8]) -> Result<Answer, Failure> {
    let mut scale = shown(call, &live(state, call)?);
    let document = body::parse(text)?;
    if content_type.starts_with("application/json-patch+json") {
        patch::json::apply(&mut scale, &document).map_err(|_| Failure::rejected())?;
    } else {
        patch::merge::apply(&mut scale, &document);
    }
    write(state, call, &scale, "PatchOptions")
}

/// The server loses the time of entries that come from the scale.
fn forget_time(object: &mut Value, manager: &str) {
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        let own = entry["manager"] == manager && entry["subresource"] == "scale";
        if let (true, Some(entry)) = (own, entry.as_object_mut()) {
            entry.remove("time");
        }
    }
}

fn write(state: &mut State, call: &Call, scale: &Value, options_kind: &str) -> Result<Answer, Failure> {
    let manager = call.options.manager(options_kind)?;
    let live = live(state, call)?;
    let name = call.name.as_deref().unwrap_or_default();
    let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
    if replicas < 0 {
        let detail = "must be greater than or equal to 0";
        let error = FieldError::invalid("spec.replicas", &json!(replicas), detail);
        return Err(Failure::invalid("autoscaling", "Scale", name, &[error]));
    }
    let version = scale["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    if !version.is_empty() && live["metadata"]["resourceVersion"] != version {
        return Err(Failure::modified(&call.resource.group, &call.resource.plural, name));
    }
    let path = match &call.resource.custom {
        Some(custom) => custom
            .scale
            .as_ref()
            .map_or_else(String::new, |paths| pointer(&paths.spec)),
        None => "/spec/replicas".to_owned(),
    };
    let mut object = live.clone();
    if let Some((parent, last)) = path.rsplit_once('/')
        && let Some(holder) = object.pointer_mut(parent).and_then(Value::as_object_mut)
    {
        holder.insert(last.to_owned(), json!(replicas));
    }
    create::own(state, call, &live, &mut object, &manager);
    forget_time(&mut object, &manager);
    let object = update::change(state, call, &live, object)?;
    Ok(Answer::other(shown(call, &object)))
}
