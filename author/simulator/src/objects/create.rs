//! Creates objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Answer, Call, body, prepare};
use crate::admission;
use crate::allocate;
use crate::apply::update as ownership;
use crate::failure::{Failure, FieldError};
use crate::kinds::Resource;
use crate::resource::Key;
use crate::state::State;
use crate::validate;

/// Letters that are added to `generateName`.
const SUFFIX_LENGTH: usize = 5;
/// The longest name that a suffix is added to.
const GENERATED_BASE: usize = 63 - SUFFIX_LENGTH;

/// POST of an object.
pub(crate) fn create(state: &mut State, call: &Call, text: &[u8]) -> Result<Answer, Failure> {
    let body::Body { mut object, warnings } = body::read(&call.resource, text, call.options.field_validation)?;
    let manager = call.options.manager("CreateOptions")?;
    place(call, &mut object)?;
    if object["metadata"]["resourceVersion"]
        .as_str()
        .is_some_and(|version| !version.is_empty())
    {
        return Err(Failure::unclassified(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    name(state, &call.resource, &mut object)?;
    own(state, call, &call.resource.nothing(), &mut object, &manager);
    let stored = insert(state, call, object)?;
    Ok(Answer::created(stored)
        .with_warnings(warnings)
        .with_warnings(deprecation(&call.resource)))
}

/// Returns the server's warnings about kinds that have a successor.
fn deprecation(resource: &Resource) -> Vec<String> {
    if resource.is_builtin("", "endpoints") {
        return vec!["v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice".to_owned()];
    }
    Vec::new()
}

/// Records in an object's managedFields that the manager wrote it by another operation than apply.
pub(crate) fn own(state: &State, call: &Call, live: &Value, object: &mut Value, manager: &str) {
    let version = call.resource.api_version();
    let time = state.clock.timestamp();
    let writer = ownership::Writer {
        manager,
        version: &version,
        subresource: &call.subresource,
        time: &time,
    };
    ownership::update(
        &state.kinds.views(&call.resource, &call.subresource),
        live,
        object,
        &writer,
    );
}

/// Sets the namespace of the path, and refuses another one.
pub(crate) fn place(call: &Call, object: &mut Value) -> Result<(), Failure> {
    let given = object["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    if !call.resource.namespaced {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("namespace");
        }
        return Ok(());
    }
    let wanted = call.namespace.clone().unwrap_or_default();
    if wanted.is_empty() {
        return Err(Failure::bad_request(
            "an empty namespace may not be set during creation",
        ));
    }
    if !given.is_empty() && given != wanted {
        return Err(Failure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    object["metadata"]["namespace"] = json!(wanted);
    Ok(())
}

/// Generates the name where only its beginning is given.
fn name(state: &mut State, resource: &Resource, object: &mut Value) -> Result<(), Failure> {
    let metadata = &object["metadata"];
    if !metadata["name"].as_str().unwrap_or_default().is_empty() {
        return Ok(());
    }
    let base = metadata["generateName"].as_str().unwrap_or_default().to_owned();
    if base.is_empty() {
        let error = FieldError::required("metadata.name", "name or generateName is required");
        return Err(Failure::invalid(&resource.group, &resource.kind, "", &[error]));
    }
    let base: String = base.chars().take(GENERATED_BASE).collect();
    let name = format!("{base}{}", state.random.suffix(SUFFIX_LENGTH));
    object["metadata"]["name"] = json!(name);
    if resource.is_builtin("", "namespaces") {
        if object["metadata"]["labels"].is_null() {
            object["metadata"]["labels"] = json!({});
        }
        object["metadata"]["labels"]["kubernetes.io/metadata.name"] = json!(name);
    }
    Ok(())
}

/// The namespace must be there and not be going.
fn check_namespace(state: &State, resource: &Resource, object: &Value) -> Result<(), Failure> {
    let Some(namespace) = object["metadata"]["namespace"].as_str() else {
        return Ok(());
    };
    let Some(found) = state.get("", "namespaces", "", namespace) else {
        return Err(Failure::not_found("", "namespaces", namespace));
    };
    if found["metadata"]["deletionTimestamp"].is_string() {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        return Err(Failure::namespace_terminating(
            &resource.group,
            &resource.plural,
            name,
            namespace,
        ));
    }
    Ok(())
}

/// Creates an object on behalf of the control plane's own controllers; None when the server refuses it.
pub(crate) fn internally(state: &mut State, resource: &Arc<Resource>, manager: &str, object: &Value) -> Option<Value> {
    let key = Key::of(object);
    let call = Call {
        name: None,
        ..Call::internal(resource, &key, "", manager)
    };
    let text = object.to_string();
    create(state, &call, text.as_bytes()).ok().map(|answer| answer.value)
}

/// Stores a new object whose managers are known, and returns it in the requested version.
pub(crate) fn insert(state: &mut State, call: &Call, mut object: Value) -> Result<Value, Failure> {
    let resource = &call.resource;
    check_namespace(state, resource, &object)?;
    admission::mutate(state, call, &mut object, None)?;
    let uid = state.random.uid();
    let now = state.clock.timestamp();
    prepare::for_create(resource, &mut object, &uid, &now);
    allocate::on_create(state, resource, &mut object)?;
    let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let errors = validate::create(resource, &object);
    if !errors.is_empty() {
        return Err(Failure::invalid(&resource.group, &resource.kind, &name, &errors));
    }
    admission::validate(state, call, Some(&object), None)?;
    let key = Key::of(&object);
    if state.store.get(&resource.storage, &key).is_some() {
        return Err(Failure::already_exists(&resource.group, &resource.plural, &name));
    }
    if call.options.dry_run {
        return Ok(object);
    }
    let object = resource.store(object);
    super::check_size(&object)?;
    let stored = state.store.put(&resource.storage, object);
    Ok(resource.show(&stored).into_owned())
}
