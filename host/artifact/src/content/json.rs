//! Owns the one order in which JSON is written that has to be the same everywhere.

use serde_json::{Map, Value};

/// With members in order of their names: whether serde_json keeps another order depends on what else is built.
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
