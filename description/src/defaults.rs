//! Fills in the defaults of a structural schema, and drops nulls, as an API server does when it reads a custom resource:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#defaulting>.

use serde_json::Value;

/// Fills in defaults where a value is absent, or null where null is not allowed. Members of present objects and items of
/// lists are filled in, too, those of an object that a default adds included.
pub fn fill_in(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                if let Some(default) = property.get("default")
                    && members.get(name).is_none_or(|value| is_wrong_null(property, value))
                {
                    members.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in members {
                match schema["properties"].get(name) {
                    Some(property) => fill_in(property, value),
                    None => fill_in_element(&schema["additionalProperties"], value),
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                fill_in_element(&schema["items"], item);
            }
        }
        _ => {}
    }
}

/// Fills in a value of a map or an item of a list.
fn fill_in_element(schema: &Value, value: &mut Value) {
    if let Some(default) = schema.get("default")
        && is_wrong_null(schema, value)
    {
        value.clone_from(default);
    }
    fill_in(schema, value);
}

/// Removes members that are null where null is not allowed. Defaults have been filled in before.
pub fn drop_nulls(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(members) => {
            let declared = schema["properties"].as_object();
            let others = &schema["additionalProperties"];
            let schema_of = |name: &str| declared.and_then(|declared| declared.get(name)).unwrap_or(others);
            members.retain(|name, value| {
                let schema = schema_of(name);
                !is_wrong_null(schema, value) || schema.get("default").is_some()
            });
            for (name, value) in members {
                drop_nulls(schema_of(name), value);
            }
        }
        Value::Array(items) => {
            for item in items {
                drop_nulls(&schema["items"], item);
            }
        }
        _ => {}
    }
}

/// Reports whether a value is null and its schema has a type that does not allow that.
fn is_wrong_null(schema: &Value, value: &Value) -> bool {
    let is_anything = schema["type"].is_null() && schema["x-kubernetes-preserve-unknown-fields"] == true;
    value.is_null() && schema.is_object() && schema["nullable"] != true && !is_anything
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(schema: &Value, mut value: Value) -> Value {
        fill_in(schema, &mut value);
        drop_nulls(schema, &mut value);
        value
    }

    #[test]
    fn defaults_nest_in_objects_lists_and_maps() {
        let port = json!({"type": "object", "properties": {
            "protocol": {"type": "string", "default": "TCP"}, "number": {"type": "integer"}}});
        let schema = json!({"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "tls": {"type": "object", "default": {}, "properties": {"mode": {"type": "string", "default": "off"}}},
            "ports": {"type": "array", "items": port},
            "byName": {"type": "object", "additionalProperties": port},
            "deep": {"type": "object", "properties": {"a": {"type": "string", "default": "b"}}},
        }});
        assert_eq!(
            filled(
                &schema,
                json!({"ports": [{"number": 1}, {"protocol": "UDP"}], "byName": {"x": {}}})
            ),
            json!({"size": 1, "tls": {"mode": "off"}, "ports": [{"number": 1, "protocol": "TCP"}, {"protocol": "UDP"}],
                "byName": {"x": {"protocol": "TCP"}}}),
            "deep is absent, and has no default itself"
        );
    }

    #[test]
    fn nulls_are_replaced_dropped_or_kept() {
        let schema = json!({"type": "object", "properties": {
            "size": {"type": "integer", "default": 1},
            "open": {"type": "integer", "default": 1, "nullable": true},
            "name": {"type": "string"},
            "any": {"x-kubernetes-preserve-unknown-fields": true},
            "list": {"type": "array", "items": {"type": "string", "default": "x"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
        }});
        assert_eq!(
            filled(
                &schema,
                json!({"size": null, "open": null, "name": null, "any": null, "list": [null], "map": {"a": null}})
            ),
            json!({"size": 1, "open": null, "any": null, "list": ["x"], "map": {}})
        );
    }
}
