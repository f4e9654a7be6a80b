//! Decodes the binary form in which kubectl and other Go clients send objects of built-in kinds. Responses are always
//! JSON.
//!
//! The envelope is `k8s\0` and a `runtime.Unknown`; the numbers of fields are generated from the Go types.

use std::sync::LazyLock;

use base64::Engine as _;
use serde_json::{Map, Value, json};

use crate::kinds::{definition_name, split_group_version};
use crate::schema::{Additional, Node, Schema, Shape, definition};

const NUMBERS: &str = include_str!("../schemas/numbers.json");
const MAGIC: &[u8] = b"k8s\0";
/// Messages within messages; deeper ones are refused.
const DEPTH_LIMIT: usize = 64;

static BY_TYPE: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(NUMBERS).expect("the generated numbers are JSON"));

/// Errors of decoding a message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProtobufError {
    #[error("the protobuf message ends in the middle of a field")]
    Truncated,
    #[error("the protobuf message has a field of the unknown wire type {0}")]
    WireType(u64),
    #[error("the protobuf message holds text that is not UTF-8")]
    Text,
    #[error("no protobuf form is known of {kind} in version {version:?}")]
    Kind { version: String, kind: String },
    #[error("the protobuf message is nested deeper than {DEPTH_LIMIT} levels")]
    Depth,
}

/// Returns `true` if a body is in this form.
pub(crate) fn is_protobuf(body: &[u8]) -> bool {
    body.starts_with(MAGIC)
}

/// The object in a body.
pub(crate) fn decode(body: &[u8]) -> Result<Value, ProtobufError> {
    let (mut version, mut kind, mut raw): (String, String, &[u8]) = (String::new(), String::new(), &[]);
    for field in fields(&body[MAGIC.len()..])? {
        match (field.number, field.value) {
            (1, Wire::Bytes(meta)) => {
                for field in fields(meta)? {
                    match (field.number, field.value) {
                        (1, Wire::Bytes(bytes)) => version = text(bytes)?,
                        (2, Wire::Bytes(bytes)) => kind = text(bytes)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    let (group, short) = split_group_version(&version);
    let named = definition_name(group, short, &kind);
    // Options have one definition for all groups.
    let schema = definition(&named)
        .or_else(|| definition(&format!("io.k8s.apimachinery.pkg.apis.meta.v1.{kind}")))
        .ok_or_else(|| ProtobufError::Kind {
            version: version.clone(),
            kind: kind.clone(),
        })?;
    let mut object = message(schema, raw, 0)?;
    object["apiVersion"] = json!(version);
    object["kind"] = json!(kind);
    Ok(object)
}

enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

struct Field<'a> {
    number: u64,
    value: Wire<'a>,
}

fn varint(bytes: &mut &[u8]) -> Result<u64, ProtobufError> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or(ProtobufError::Truncated)?;
        *bytes = rest;
        value |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ProtobufError::Truncated)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], ProtobufError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ProtobufError::Truncated)?;
    *bytes = rest;
    Ok(taken)
}

fn fields(mut bytes: &[u8]) -> Result<Vec<Field<'_>>, ProtobufError> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let value = match tag & 7 {
            0 => Wire::Number(varint(&mut bytes)?),
            1 => Wire::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| ProtobufError::Truncated)?;
                Wire::Bytes(take(&mut bytes, length)?)
            }
            5 => Wire::Bytes(take(&mut bytes, 4)?),
            other => return Err(ProtobufError::WireType(other)),
        };
        fields.push(Field {
            number: tag >> 3,
            value,
        });
    }
    Ok(fields)
}

fn text(bytes: &[u8]) -> Result<String, ProtobufError> {
    String::from_utf8(bytes.to_vec()).map_err(|_| ProtobufError::Text)
}

/// A struct, or one of the types with a form of their own.
fn message(schema: &Schema, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    if depth > DEPTH_LIMIT {
        return Err(ProtobufError::Depth);
    }
    let name = schema.name.as_deref().unwrap_or_default();
    if name.ends_with("meta.v1.Time") || name.ends_with("meta.v1.MicroTime") {
        return time(bytes, name.ends_with("MicroTime"));
    }
    if name.ends_with("util.intstr.IntOrString") {
        return int_or_string(bytes);
    }
    if name.ends_with("api.resource.Quantity") {
        return first_text(bytes).map(Value::from);
    }
    if ["RawExtension", "FieldsV1", "v1.JSON"]
        .iter()
        .any(|suffix| name.ends_with(suffix))
    {
        let inner = first_text(bytes)?;
        return Ok(serde_json::from_str(&inner).unwrap_or(Value::Null));
    }
    let mut object = Map::new();
    if let Some(numbers) = BY_TYPE.get(name) {
        structure(schema, numbers, bytes, depth, &mut object)?;
    }
    Ok(Value::Object(object))
}

fn structure(
    schema: &Schema,
    numbers: &Value,
    bytes: &[u8],
    depth: usize,
    object: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    for field in fields(bytes)? {
        match &numbers[field.number.to_string()] {
            Value::String(name) => {
                let Some(member) = schema.member(name) else { continue };
                put(member, name, &field.value, depth, object)?;
            }
            // An embedded struct: its fields are this object's own.
            embedded @ Value::Object(_) => {
                if let Wire::Bytes(inner) = field.value {
                    structure(schema, embedded, inner, depth + 1, object)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn put(
    schema: &Schema,
    name: &str,
    value: &Wire<'_>,
    depth: usize,
    object: &mut Map<String, Value>,
) -> Result<(), ProtobufError> {
    match (schema.shape, &schema.additional, value) {
        (Shape::Array, _, value) => {
            let item = schema.items.as_ref().map_or(schema, Node::get);
            let decoded = single(item, value, depth)?;
            if let Value::Array(items) = object.entry(name).or_insert_with(|| json!([])) {
                items.push(decoded);
            }
        }
        (Shape::Object, Additional::Of(item), Wire::Bytes(entry)) if schema.properties.is_empty() => {
            let (mut key, mut decoded) = (String::new(), Value::Null);
            for field in fields(entry)? {
                match (field.number, &field.value) {
                    (1, Wire::Bytes(bytes)) => key = text(bytes)?,
                    (2, value) => decoded = single(item.get(), value, depth)?,
                    _ => {}
                }
            }
            if decoded.is_null() && item.get().shape == Shape::String {
                decoded = json!("");
            }
            if let Value::Object(entries) = object.entry(name).or_insert_with(|| json!({})) {
                entries.insert(key, decoded);
            }
        }
        (_, _, value) => {
            let decoded = single(schema, value, depth)?;
            object.insert(name.to_owned(), decoded);
        }
    }
    Ok(())
}

fn single(schema: &Schema, value: &Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    Ok(match (schema.shape, value) {
        (Shape::Boolean, Wire::Number(number)) => json!(*number != 0),
        // Negative numbers are sent as 64 bits of two's complement.
        (_, Wire::Number(number)) => json!(number.cast_signed()),
        (Shape::String, Wire::Bytes(bytes)) if schema.format.as_deref() == Some("byte") => {
            json!(base64::engine::general_purpose::STANDARD.encode(bytes))
        }
        (Shape::String, Wire::Bytes(bytes)) if schema.format.as_deref() != Some("date-time") => {
            // Quantities and the like are strings in JSON, and messages here.
            if schema.name.is_some() {
                message(schema, bytes, depth + 1)?
            } else {
                json!(text(bytes)?)
            }
        }
        (_, Wire::Bytes(bytes)) => message(schema, bytes, depth + 1)?,
    })
}

fn first_text(bytes: &[u8]) -> Result<String, ProtobufError> {
    for field in fields(bytes)? {
        if let (1, Wire::Bytes(bytes)) = (field.number, field.value) {
            return text(bytes);
        }
    }
    Ok(String::new())
}

fn time(bytes: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i64);
    for field in fields(bytes)? {
        match (field.number, field.value) {
            (1, Wire::Number(number)) => seconds = number.cast_signed(),
            (2, Wire::Number(number)) => nanos = number.cast_signed(),
            _ => {}
        }
    }
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let Ok(stamp) = jiff::Timestamp::from_second(seconds) else {
        return Ok(Value::Null);
    };
    let whole = stamp.to_string();
    Ok(if micro {
        json!(format!("{}.{:06}Z", whole.trim_end_matches('Z'), nanos / 1000))
    } else {
        json!(whole)
    })
}

fn int_or_string(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let (mut is_text, mut number, mut words) = (false, 0, String::new());
    for field in fields(bytes)? {
        match (field.number, field.value) {
            (1, Wire::Number(kind)) => is_text = kind == 1,
            (2, Wire::Number(value)) => number = value.cast_signed(),
            (3, Wire::Bytes(bytes)) => words = text(bytes)?,
            _ => {}
        }
    }
    Ok(if is_text { json!(words) } else { json!(number) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A length-delimited field.
    fn part(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut field = vec![
            number << 3 | 2,
            u8::try_from(bytes.len()).expect("the test's fields are short"),
        ];
        field.extend_from_slice(bytes);
        field
    }

    fn envelope(kind: &str, raw: &[u8]) -> Vec<u8> {
        let meta = [part(1, b"v1"), part(2, kind.as_bytes())].concat();
        [MAGIC.to_vec(), part(1, &meta), part(2, raw)].concat()
    }

    #[test]
    fn a_config_map_is_read_with_its_metadata_and_its_map() {
        let entry = [part(1, b"key"), part(2, b"value")].concat();
        let raw = [part(1, &part(1, b"name")), part(2, &entry)].concat();
        let object = decode(&envelope("ConfigMap", &raw)).expect("the message is whole");
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "name"}, "data": {"key": "value"}})
        );
    }

    #[test]
    fn truncated_messages_and_unknown_kinds_are_refused() {
        let mut body = envelope("ConfigMap", &part(1, b"x"));
        body.truncate(body.len() - 1);
        assert!(matches!(decode(&body), Err(ProtobufError::Truncated)));
        assert!(matches!(
            decode(&envelope("Nope", &[])),
            Err(ProtobufError::Kind { .. })
        ));
    }
}
