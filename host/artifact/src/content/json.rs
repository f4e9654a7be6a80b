//! Sorts the members of JSON documents, so that equal documents have equal texts.

use serde_json::{Map, Value};

/// The value with its members sorted by name. Their order in serde_json depends on the features of the build.
pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            let members = members.into_iter().map(|(name, value)| (name, sorted(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        scalar => scalar,
    }
}
