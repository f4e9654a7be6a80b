//! Replaces objects, and finishes every write to an existing object once its new value is known.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Call, body, create, delete, prepare};
use crate::admission;
use crate::allocate;
use crate::apply::types::same;
use crate::failure::{Failure, FieldError};
use crate::kinds::Resource;
use crate::resource::Key;
use crate::state::State;
use crate::validate;

/// PUT of an object, or of its status.
pub(crate) fn replace(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let resource = &call.resource;
    let body::Body { mut object, warnings } = body::read(resource, text, call.options.field_validation)?;
    let manager = call.options.manager("UpdateOptions")?;
    let name = call.name.clone().unwrap_or_default();
    let given = object["metadata"]["name"].as_str().unwrap_or_default();
    if given.is_empty() {
        return Err(Failure::nameless(&name));
    }
    if given != name {
        return Err(Failure::name_mismatch(given, &name));
    }
    create::place(call, &mut object)?;
    let Some(stored) = state.store.get(&resource.storage, &call.key()).cloned() else {
        if call.subresource.is_empty() && resource.update_creates() {
            create::own(state, call, &resource.nothing(), &mut object, &manager);
            return create::insert(state, call, object).map(Answer::created);
        }
        return Err(call.not_found());
    };
    let live = resource.show(&stored).into_owned();
    check_uid(call, &object, &live)?;
    create::own(state, call, &live, &mut object, &manager);
    let object = change(state, call, &live, object)?;
    Ok(Answer::object(object).with_warnings(warnings))
}

/// A uid in the body of a PUT is a precondition; in a patch it is a change, and refused as one.
fn check_uid(call: &Call, object: &Value, live: &Value) -> Result<(), Failure> {
    let uid = |object: &Value| object["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    let (given, actual) = (uid(object), uid(live));
    if given.is_empty() || given == actual {
        return Ok(());
    }
    let resource = &call.resource;
    let (key, name) = (
        resource.storage_key(&call.key()),
        call.name.as_deref().unwrap_or_default(),
    );
    Err(Failure::other_uid(
        &resource.group,
        &resource.plural,
        name,
        &key,
        (&given, &actual),
    ))
}

/// Writes the new form of an existing object, and returns the stored one.
pub(crate) fn change(state: &mut State, call: &Call, live: &Value, mut object: Value) -> Result<Value, Failure> {
    let resource = &call.resource;
    let name = call.name.as_deref().unwrap_or_default();
    let metadata = &object["metadata"];
    let given_version = metadata["resourceVersion"].as_str().unwrap_or_default().to_owned();
    let live_version = &live["metadata"]["resourceVersion"];
    let unconditional = given_version.is_empty() || given_version == "0";
    if !unconditional && *live_version != given_version.as_str() {
        return Err(Failure::modified(&resource.group, &resource.plural, name));
    }
    if unconditional && resource.update_needs_resource_version() {
        let error = FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
        return Err(Failure::invalid(&resource.group, &resource.plural, name, &[error]));
    }
    admission::mutate(state, call, &mut object, Some(live))?;
    if unconditional {
        object["metadata"]["resourceVersion"] = live_version.clone();
    }
    prepare::for_update(resource, &call.subresource, &mut object, live);
    if call.subresource.is_empty() {
        allocate::on_update(state, resource, &mut object, live)?;
    }
    // The server checks metadata once for all kinds and once in the kind, and says both.
    let mut errors = prepare::validate_update(&object, live);
    errors.extend(errors.clone());
    errors.extend(validate::update(resource, &call.subresource, &object, live));
    if !errors.is_empty() {
        return Err(Failure::invalid(&resource.group, &resource.kind, name, &errors));
    }
    admission::validate(state, call, Some(&object), Some(live))?;
    object["metadata"]["resourceVersion"] = live_version.clone();
    keep_times(&mut object, live);
    let stored = state.store.get(&resource.storage, &call.key());
    // The first write after a default was filled in at a read stores it, whatever else it changes.
    if same(&object, live) && !stored.is_some_and(|stored| resource.lacks_defaults(stored)) {
        return Ok(object);
    }
    if call.options.dry_run {
        return Ok(object);
    }
    if delete::is_released(resource, &object) {
        // The last finalizer went: so does the object, without being written once more.
        delete::finish(state, resource, &call.key());
        return Ok(object);
    }
    let object = resource.store(object);
    super::check_size(&object)?;
    let stored = state.store.put(&resource.storage, object);
    Ok(resource.show(&stored).into_owned())
}

/// Changes an object on behalf of the control plane's own controllers. A refused change is dropped: the controller
/// reconciles again at the next change.
pub(crate) fn internally(
    state: &mut State,
    resource: &Arc<Resource>,
    key: &Key,
    (subresource, manager): (&str, &str),
    edit: impl FnOnce(&mut Value),
) {
    let Some(stored) = state.store.get(&resource.storage, key).cloned() else {
        return;
    };
    let live = resource.show(&stored).into_owned();
    let mut object = live.clone();
    edit(&mut object);
    if same(&object, &live) {
        return;
    }
    let call = Call::internal(resource, key, subresource, manager);
    create::own(state, &call, &live, &mut object, manager);
    let _ = change(state, &call, &live, object);
}

/// A write that changes nothing but times in the book of managers is no write.
fn keep_times(object: &mut Value, live: &Value) {
    let without_times = |value: &Value| {
        let mut value = value.clone();
        for entry in value["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
            if let Some(entry) = entry.as_object_mut() {
                entry.remove("time");
            }
        }
        value
    };
    let times_differ = object["metadata"]["managedFields"] != live["metadata"]["managedFields"];
    if times_differ && same(&without_times(object), &without_times(live)) {
        object["metadata"]["managedFields"] = live["metadata"]["managedFields"].clone();
    }
}
