//! Decodes the body of a write into an object: expected kind, unknown fields, wrong types, defaults.

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::prepare;
use crate::custom::Nulls;
use crate::decode::decode;
use crate::defaults;
use crate::failure::Failure;
use crate::kinds::{Resource, split_group_version};
use crate::protobuf;
use crate::request::FieldValidation;
use crate::schema::{OBJECT_META, definition};

/// An object as the server understood it.
#[derive(Debug)]
pub(crate) struct Body {
    pub(crate) object: Value,
    pub(crate) warnings: Vec<String>,
}

/// Reads the body of a create or an update.
pub(crate) fn read(resource: &Resource, body: &[u8], validation: FieldValidation) -> Result<Body, Failure> {
    let value = parse(body)?;
    understand(resource, value, validation)
}

/// JSON, or YAML where it is not.
pub(crate) fn parse(body: &[u8]) -> Result<Value, Failure> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Err(Failure::bad_request("EOF"));
    }
    if protobuf::is_protobuf(body) {
        return protobuf::decode(body).map_err(|fault| Failure::bad_request(fault.to_string()));
    }
    match serde_json::from_slice(body).or_else(|fault| nested(body).ok_or(fault)) {
        Ok(value) => Ok(value),
        Err(fault) => match std::str::from_utf8(body).ok().map(serde_saphyr::from_str::<Value>) {
            Some(Ok(value)) if value.is_object() => Ok(value),
            _ => Err(Failure::bad_request(format!(
                "couldn't get version/kind; json parse error: {fault}"
            ))),
        },
    }
}

/// The most levels of an object here. The real server takes 10,000; this one calls itself for each.
const MAX_DEPTH: usize = 1000;

/// Parses JSON that is nested deeper than the parser's limit; none if it is invalid for another reason.
fn nested(body: &[u8]) -> Option<Value> {
    fn parse(text: &str, levels: usize) -> Option<Value> {
        let levels = levels.checked_sub(1)?;
        match text.as_bytes().first()? {
            b'{' => {
                let members: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
                let members = members.into_iter();
                let members = members.map(|(name, value)| Some((name, parse(value.get(), levels)?)));
                members.collect::<Option<_>>().map(Value::Object)
            }
            b'[' => {
                let items: Vec<&RawValue> = serde_json::from_str(text).ok()?;
                let items = items.into_iter().map(|item| parse(item.get(), levels));
                items.collect::<Option<_>>().map(Value::Array)
            }
            _ => serde_json::from_str(text).ok(),
        }
    }
    parse(std::str::from_utf8(body).ok()?.trim(), MAX_DEPTH)
}

/// Brings a value into the form of the resource: kind, types, unknown fields, zeros and defaults.
pub(crate) fn understand(resource: &Resource, value: Value, validation: FieldValidation) -> Result<Body, Failure> {
    let (object, unknown) = typed(resource, value, Nulls::Dropped)?;
    let mut body = Body {
        object,
        warnings: Vec::new(),
    };
    let messages = unknown.iter().map(|path| format!("unknown field {path:?}"));
    match validation {
        FieldValidation::Ignore => {}
        FieldValidation::Warn => body.warnings.extend(messages),
        FieldValidation::Strict if unknown.is_empty() => {}
        FieldValidation::Strict => {
            let faults: Vec<String> = messages.collect();
            let Resource { kind, version, .. } = resource;
            return Err(Failure::bad_request(format!(
                "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
                faults.join(", ")
            )));
        }
    }
    Ok(body)
}

/// The object with its types checked and its defaults filled in, and the unknown fields that it lost.
pub(crate) fn typed(resource: &Resource, value: Value, nulls: Nulls) -> Result<(Value, Vec<String>), Failure> {
    let Resource { kind, version, .. } = resource;
    let refuse = |fault: String| {
        Failure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: {fault}"
        ))
    };
    let mut object = match value {
        Value::Object(_) => value,
        other => {
            return Err(refuse(format!(
                "json: cannot unmarshal {} into Go value",
                kind_of(&other)
            )));
        }
    };
    check_kind(resource, &object)?;
    object["apiVersion"] = json!(resource.api_version());
    object["kind"] = json!(kind);
    if !object["metadata"].is_object() {
        if !object["metadata"].is_null() {
            return Err(refuse(
                "json: cannot unmarshal metadata into Go struct field ObjectMeta.metadata".to_owned(),
            ));
        }
        object["metadata"] = json!({});
    }
    let unknown = if let Some(custom) = &resource.custom {
        let meta = definition(OBJECT_META).expect("the definitions hold ObjectMeta");
        let decoded = decode(meta, &mut object["metadata"]).map_err(|fault| metadata_fault(resource, &fault))?;
        let mut unknown: Vec<String> = decoded.unknown.iter().map(|path| format!("metadata.{path}")).collect();
        let mut pruned = custom.prune(&mut object);
        pruned.sort();
        unknown.extend(pruned);
        custom.default(&mut object, nulls);
        unknown
    } else {
        let mut unknown = decode(resource.schema(), &mut object).map_err(refuse)?.unknown;
        unknown.sort();
        if resource.is_builtin("", "secrets") {
            prepare::merge_string_data(&mut object);
        }
        defaults::apply(&resource.group, kind, &mut object);
        unknown
    };
    Ok((object, unknown))
}

fn metadata_fault(resource: &Resource, fault: &str) -> Failure {
    let Resource { kind, version, .. } = resource;
    Failure::bad_request(format!(
        "{kind} in version {version:?} cannot be handled as a {kind}: {fault}"
    ))
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn check_kind(resource: &Resource, object: &Value) -> Result<(), Failure> {
    let text = |name: &str| object[name].as_str().unwrap_or_default();
    let (given_version, given_kind) = (text("apiVersion"), text("kind"));
    let expected = resource.api_version();
    // Typed clients leave both out; custom resources need them.
    if given_kind.is_empty() && resource.custom.is_some() {
        return Err(Failure::bad_request(format!("Object 'Kind' is missing in '{object}'")));
    }
    if given_version.is_empty() && resource.custom.is_some() {
        return Err(Failure::bad_request(format!(
            "Object 'apiVersion' is missing in '{object}'"
        )));
    }
    if !given_version.is_empty() && given_version != expected {
        let kind = if given_kind.is_empty() {
            &resource.kind
        } else {
            given_kind
        };
        let (_, version) = split_group_version(given_version);
        return Err(Failure::bad_request(if resource.custom.is_some() {
            format!(
                "the API version in the data ({given_version}) does not match the expected API version ({expected})"
            )
        } else {
            format!(
                "{kind} in version {version:?} cannot be handled as a {}: no kind {kind:?} is registered for version \
                 {given_version:?} in scheme \"pkg/runtime/scheme.go:111\"",
                resource.kind
            )
        }));
    }
    if !given_kind.is_empty() && given_kind != resource.kind {
        let (_, version) = split_group_version(&expected);
        return Err(Failure::bad_request(format!(
            "{given_kind} in version {version:?} cannot be handled as a {}: converting ({}.{given_kind}) to ({}.{}): unknown conversion",
            resource.kind,
            resource.version,
            if resource.group.is_empty() {
                "core"
            } else {
                &resource.group
            },
            resource.kind
        )));
    }
    Ok(())
}
