//! Canonical form of a desired object, and its digest, by which the host recognises what it applied last. The form
//! drops only nulls and members that the server or the host sets; a member that it cannot translate is an error.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::kubernetes::key::Kind;
use crate::ownership::{ANNOTATIONS, OWNER_LABEL};
use crate::text::printable;

/// The annotation that carries the digest of the canonical form.
pub const DESIRED_ANNOTATION: &str = "pilothouse.dev/desired";

/// Metadata that only the server sets; a plugin that copies a live object would otherwise claim it.
const SERVER_SET_METADATA: [&str; 9] = [
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// The length of the SHA-256 digest in the annotation, in bytes: the odds that a change goes unnoticed are 2^-128.
const DIGEST_BYTES: usize = 16;

/// A member of a desired object that has no canonical form.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CanonicalError {
    /// A value of `stringData` is not a text.
    #[error("stringData[{0:?}] is {1}, and the values of stringData are texts")]
    NoText(String, &'static str),
    /// A member of a Secret is not an object.
    #[error("{0} of a Secret is {1}, and it has to be an object")]
    NoObject(&'static str, &'static str),
}

/// Brings a desired object into canonical form. Drops nulls, metadata that the server or the host sets, and the status
/// of kinds with that subresource; turns a Secret's `stringData` into `data`.
pub fn canonical(object: &mut Map<String, Value>, kind: &Kind, has_status: bool) -> Result<(), CanonicalError> {
    drop_nulls(object);
    if has_status {
        object.remove("status");
    }
    if kind.group.is_empty() && kind.kind == "Secret" {
        string_data_to_data(object)?;
    }
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        for name in SERVER_SET_METADATA {
            metadata.remove(name);
        }
        for (map, own) in [("annotations", ANNOTATIONS.as_slice()), ("labels", &[OWNER_LABEL])] {
            if let Some(Value::Object(map)) = metadata.get_mut(map) {
                map.retain(|name, _| !own.contains(&name.as_str()));
            }
        }
    }
    Ok(())
}

/// Drops every member that is null, at any depth: null means no opinion about the member. Null items of lists stay,
/// because the positions of the others would change.
pub fn drop_nulls(object: &mut Map<String, Value>) {
    object.retain(|_, value| !value.is_null());
    for value in object.values_mut() {
        drop_nulls_below(value);
    }
}

fn drop_nulls_below(value: &mut Value) {
    match value {
        Value::Object(object) => drop_nulls(object),
        Value::Array(items) => items.iter_mut().for_each(drop_nulls_below),
        _ => {}
    }
}

/// Moves `stringData` into `data`. It wins over the same name in `data`, as on the server.
fn string_data_to_data(secret: &mut Map<String, Value>) -> Result<(), CanonicalError> {
    let Some(strings) = secret.remove("stringData") else {
        return Ok(());
    };
    let Value::Object(strings) = strings else {
        return Err(CanonicalError::NoObject("stringData", type_of(&strings)));
    };
    let data = secret.entry("data").or_insert_with(|| Value::Object(Map::new()));
    let Value::Object(data) = data else {
        return Err(CanonicalError::NoObject("data", type_of(data)));
    };
    for (name, text) in strings {
        let Value::String(text) = text else {
            return Err(CanonicalError::NoText(name, type_of(&text)));
        };
        data.insert(name, Value::String(STANDARD.encode(text)));
    }
    Ok(())
}

/// Returns the type of a member that should be an object of texts.
fn type_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        other => printable::type_of(other),
    }
}

/// The digest of a value, independent of the order of members.
pub fn digest(value: &Value) -> String {
    let mut text = Vec::new();
    write_sorted(value, &mut text);
    let hash = Sha256::digest(&text);
    let mut digest = String::with_capacity(2 * DIGEST_BYTES);
    for byte in &hash[..DIGEST_BYTES] {
        write!(digest, "{byte:02x}").expect("writing to a String cannot fail");
    }
    digest
}

fn write_sorted(value: &Value, text: &mut Vec<u8>) {
    match value {
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(name, _)| name.as_str());
            text.push(b'{');
            for (name, value) in members {
                write_plain(name, text);
                text.push(b':');
                write_sorted(value, text);
                text.push(b',');
            }
            text.push(b'}');
        }
        Value::Array(items) => {
            text.push(b'[');
            for item in items {
                write_sorted(item, text);
                text.push(b',');
            }
            text.push(b']');
        }
        scalar => write_plain(scalar, text),
    }
}

fn write_plain<T: Serialize + ?Sized>(value: &T, text: &mut Vec<u8>) {
    serde_json::to_writer(text, value).expect("names and scalars are always JSON");
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn canonical_of(mut value: Value, kind: &Kind, has_status: bool) -> Value {
        canonical(value.as_object_mut().unwrap(), kind, has_status).unwrap();
        value
    }

    #[test]
    fn what_the_server_sets_is_dropped() {
        let config_map = Kind::new("", "v1", "ConfigMap");
        let object = json!({
            "metadata": {"name": "a", "uid": "u", "resourceVersion": "1", "labels": {"x": null, "y": "z", "pilothouse.dev/owner": "u"},
                         "annotations": {"pilothouse.dev/desired": "old", "pilothouse.dev/keep": "true"}},
            "data": {"a": "b", "c": null}, "status": {"x": 1}
        });
        assert_eq!(
            canonical_of(object, &config_map, true),
            json!({"metadata": {"name": "a", "labels": {"y": "z"}, "annotations": {}}, "data": {"a": "b"}})
        );
    }

    #[test]
    fn the_status_of_a_kind_without_that_subresource_is_kept() {
        let kind = Kind::new("x.dev", "v1", "Odd");
        assert_eq!(
            canonical_of(json!({"status": {"a": 1}}), &kind, false),
            json!({"status": {"a": 1}})
        );
    }

    #[test]
    fn string_data_of_a_secret_becomes_data() {
        let secret = Kind::new("", "v1", "Secret");
        let object = json!({"data": {"a": "AA=="}, "stringData": {"b": "hi", "c": "hello", "d": "abc", "e": ""}});
        assert_eq!(
            canonical_of(object, &secret, false),
            json!({"data": {"a": "AA==", "b": "aGk=", "c": "aGVsbG8=", "d": "YWJj", "e": ""}})
        );
    }

    #[test]
    fn string_data_that_is_no_text_is_an_error_and_no_key_is_lost() {
        let secret = Kind::new("", "v1", "Secret");
        for (object, problem) in [
            (
                json!({"stringData": {"user": "u", "port": 5432}}),
                "stringData[\"port\"] is a number",
            ),
            (json!({"stringData": {"on": true}}), "stringData[\"on\"] is a boolean"),
            (json!({"stringData": {"list": ["a"]}}), "stringData[\"list\"] is a list"),
            (
                json!({"stringData": {"map": {"a": "b"}}}),
                "stringData[\"map\"] is an object",
            ),
            (json!({"stringData": "u"}), "stringData of a Secret is a text"),
            (
                json!({"stringData": [{"name": "u"}]}),
                "stringData of a Secret is a list",
            ),
            (
                json!({"data": "u", "stringData": {"user": "u"}}),
                "data of a Secret is a text",
            ),
        ] {
            let mut object = object;
            let error = canonical(object.as_object_mut().unwrap(), &secret, false).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
        }
        let object = json!({"data": null, "stringData": {"user": "u", "port": null}});
        assert_eq!(canonical_of(object, &secret, false), json!({"data": {"user": "dQ=="}}));
        let other = Kind::new("x.dev", "v1", "Secret");
        let object = json!({"stringData": {"port": 1}});
        assert_eq!(
            canonical_of(object.clone(), &other, false),
            object,
            "only the core group's have stringData"
        );
    }

    #[test]
    fn nulls_are_dropped_at_any_depth_and_items_of_lists_stay() {
        let kind = Kind::new("x.dev", "v1", "X");
        let object = json!({"spec": {"a": {"b": null}, "list": [null, {"c": null, "d": 1}, [null]]}});
        assert_eq!(
            canonical_of(object, &kind, false),
            json!({"spec": {"a": {}, "list": [null, {"d": 1}, [null]]}})
        );
    }

    #[test]
    fn the_digest_does_not_depend_on_the_order_of_members() {
        let one: Value = serde_json::from_str(r#"{"a":1,"b":[1,2]}"#).unwrap();
        let other: Value = serde_json::from_str(r#"{"b":[1,2],"a":1}"#).unwrap();
        assert_eq!(digest(&one), digest(&other));
        assert_ne!(digest(&one), digest(&json!({"a": 1, "b": [2, 1]})));
        assert_eq!(digest(&one).len(), 32);
    }
}
