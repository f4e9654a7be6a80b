//! JSON merge patch (RFC 7386).

use serde_json::{Map, Value};

/// Null takes a member away, objects are merged, everything else is replaced.
pub(crate) fn apply(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else { return };
    for (name, value) in patch {
        if value.is_null() {
            members.remove(name);
        } else {
            apply(members.entry(name).or_insert(Value::Null), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn null_removes_and_lists_are_replaced() {
        let mut object = json!({"a": 1, "b": {"c": 2, "d": 3}, "e": [1, 2]});
        apply(
            &mut object,
            &json!({"a": null, "b": {"c": null, "x": {"y": null}}, "e": [3]}),
        );
        assert_eq!(object, json!({"b": {"d": 3, "x": {}}, "e": [3]}));
    }
}
