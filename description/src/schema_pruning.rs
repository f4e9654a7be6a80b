//! Prunes a value to the schema of a custom resource, because the API server refuses or drops undeclared fields.
//! Supports the members of a structural schema, as in a CRD and as published by the server in OpenAPI v3. Expressions
//! and patterns are not evaluated: the server reports their refusals.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Members of every resource, whatever its schema says; also of one that is embedded in another.
pub const OF_RESOURCES: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Kind of members that are removed from a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pruned {
    /// Everything that the schema refuses.
    Refused,
    /// Members that the schema does not declare, and nothing else.
    Undeclared,
}

/// Removes the members of a value that a schema does not declare, including items of lists, and returns their paths.
/// Other members that the schema refuses stay.
pub fn prune_undeclared(schema: &Value, value: &mut Value, path: &str) -> BTreeSet<String> {
    let mut omitted = BTreeSet::new();
    fits(schema, value, path, &mut omitted, Pruned::Undeclared);
    omitted
}

/// Removes the parts of a value that a schema does not accept, and returns their paths, like
/// `.status.conditions[].reason`. A schema that is null accepts nothing; `path` is the value's own path.
pub fn prune_to_schema(schema: &Value, value: &mut Value, path: &str) -> BTreeSet<String> {
    let mut omitted = BTreeSet::new();
    if !fits(schema, value, path, &mut omitted, Pruned::Refused) {
        omitted.insert(path.to_owned());
        *value = Value::Null;
    }
    omitted
}

/// Reports whether a schema of an object declares nothing and keeps nothing: all members are dropped silently, whereas
/// an undeclared member beside declared ones is refused.
pub fn drops_all(schema: &Value) -> bool {
    schema.as_object().is_some_and(|schema| {
        schema.get("properties").is_none() && schema.get("additionalProperties").is_none() && !is_open(schema)
    })
}

/// Reports whether a value is accepted, after removing the parts of it that are not.
fn fits(schema: &Value, value: &mut Value, path: &str, omitted: &mut BTreeSet<String>, pruned: Pruned) -> bool {
    let is_lenient = pruned == Pruned::Undeclared;
    let Some(schema) = schema.as_object() else {
        return is_lenient;
    };
    if refers(schema) {
        return true;
    }
    if !has_type(schema, value) || !has_value(schema, value) {
        return is_lenient;
    }
    match value {
        Value::Object(members) => fits_object(schema, members, path, omitted, pruned) || is_lenient,
        Value::Array(items) => {
            let path = format!("{path}[]");
            let none = Value::Null;
            let item = schema.get("items").unwrap_or(&none);
            if item.is_null() && is_open(schema) {
                return true;
            }
            items.retain_mut(|value| {
                let fits = fits(item, value, &path, omitted, pruned);
                if !fits {
                    omitted.insert(path.clone());
                }
                fits
            });
            true
        }
        _ => true,
    }
}

fn fits_object(
    schema: &Map<String, Value>,
    members: &mut Map<String, Value>,
    path: &str,
    omitted: &mut BTreeSet<String>,
    pruned: Pruned,
) -> bool {
    let declared = schema.get("properties").and_then(Value::as_object);
    let others = schema
        .get("additionalProperties")
        .filter(|others| **others != Value::Bool(false));
    let is_embedded = schema.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true));
    members.retain(|name, value| {
        if is_embedded && OF_RESOURCES.contains(&name.as_str()) {
            return true;
        }
        let path = format!("{path}.{name}");
        let fits = match (declared.and_then(|declared| declared.get(name)), others) {
            (None, None) => is_open(schema),
            (None, Some(Value::Bool(_))) => true,
            (Some(schema), _) | (None, Some(schema)) => fits(schema, value, &path, omitted, pruned),
        };
        if !fits {
            omitted.insert(path);
        }
        fits
    });
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    required.filter_map(Value::as_str).all(|name| {
        let is_filled_in = || declared.is_some_and(|it| it.get(name).is_some_and(|it| it.get("default").is_some()));
        members.contains_key(name) || is_filled_in()
    })
}

/// Reports whether a schema refers to another one that is not available, like that of an embedded object's metadata.
fn refers(schema: &Map<String, Value>) -> bool {
    let parts = schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
    schema.contains_key("$ref") || parts.into_iter().any(|part| part.get("$ref").is_some())
}

/// Reports whether members that are not declared are kept.
fn is_open(schema: &Map<String, Value>) -> bool {
    schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true))
}

fn has_type(schema: &Map<String, Value>, value: &Value) -> bool {
    if schema.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true)) {
        return value.is_string() || value.is_i64() || value.is_u64();
    }
    let Some(kind) = schema.get("type").and_then(Value::as_str) else {
        return true;
    };
    match (kind, value) {
        ("object", Value::Object(_))
        | ("array", Value::Array(_))
        | ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("number", Value::Number(_)) => true,
        ("integer", Value::Number(number)) => number.is_i64() || number.is_u64(),
        (_, Value::Null) => schema.get("nullable") == Some(&Value::Bool(true)),
        _ => false,
    }
}

fn has_value(schema: &Map<String, Value>, value: &Value) -> bool {
    let allowed = schema.get("enum").and_then(Value::as_array);
    let length = value.as_str().map(|text| text.chars().count() as u64);
    let limit = |name: &str| schema.get(name).and_then(Value::as_u64);
    let within = |length: u64| {
        limit("maxLength").is_none_or(|most| length <= most) && limit("minLength").is_none_or(|least| length >= least)
    };
    let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
    let in_range = |number: f64| {
        bound("minimum").is_none_or(|least| number >= least) && bound("maximum").is_none_or(|most| number <= most)
    };
    allowed.is_none_or(|allowed| allowed.contains(value))
        && length.is_none_or(within)
        && value.as_f64().is_none_or(in_range)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fitted(schema: &Value, mut value: Value) -> (Value, Vec<String>) {
        let omitted = prune_to_schema(schema, &mut value, ".status");
        (value, omitted.into_iter().collect())
    }

    #[test]
    fn what_is_not_declared_goes_and_the_rest_stays() {
        let schema = json!({"type": "object", "properties": {
            "ready": {"type": "boolean"},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
            "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "string"}}},
        }});
        let value =
            json!({"ready": true, "labels": {"a": "b"}, "any": {"a": "1", "b": {"c": 1}}, "observedGeneration": 3});
        let (left, omitted) = fitted(&schema, value);
        assert_eq!(omitted, [".status.observedGeneration"]);
        assert_eq!(
            left,
            json!({"ready": true, "labels": {"a": "b"}, "any": {"a": "1", "b": {"c": 1}}})
        );
    }

    #[test]
    fn an_object_of_which_nothing_is_declared_takes_nothing() {
        let (left, omitted) = fitted(&json!({"type": "object"}), json!({"ready": true}));
        assert_eq!((left, omitted), (json!({}), vec![".status.ready".to_owned()]));
        assert!(drops_all(&json!({"type": "object"})) && !drops_all(&json!({"properties": {}})));
        assert_eq!(fitted(&Value::Null, json!({"ready": true})).1, [".status"]);
    }

    #[test]
    fn undeclared_members_are_pruned_from_items_or_the_item_is() {
        let item = |required: Value| {
            json!({"type": "object", "properties": {"conditions": {"type": "array", "items": {
            "type": "object", "required": required, "properties": {
                "type": {"type": "string"}, "status": {"type": "string", "enum": ["True", "False"]},
                "message": {"type": "string", "maxLength": 5},
            }}}}})
        };
        let conditions = json!({"conditions": [
            {"type": "A", "status": "True", "observedGeneration": 1},
            {"type": "B", "status": "Unknown", "message": "short"},
            {"type": "C", "status": "False", "message": "much too long"}]});
        let (left, omitted) = fitted(&item(json!(["type", "status"])), conditions.clone());
        assert_eq!(
            left["conditions"],
            json!([{"type": "A", "status": "True"}, {"type": "C", "status": "False"}])
        );
        assert_eq!(
            omitted,
            [
                ".status.conditions[]",
                ".status.conditions[].message",
                ".status.conditions[].observedGeneration",
                ".status.conditions[].status",
            ]
        );
        let (left, _) = fitted(&item(json!(["type", "lastUpdateTime"])), conditions);
        assert_eq!(left, json!({"conditions": []}));
    }

    #[test]
    fn only_undeclared_members_are_pruned_at_any_depth() {
        let item = json!({"type": "object", "required": ["name"], "properties": {
            "name": {"type": "string"}, "count": {"type": "integer", "maximum": 3}}});
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, "properties": {
            "kind": {"type": "string"}, "metadata": {"allOf": [{"$ref": "#/components/schemas/ObjectMeta"}]}}});
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": item}, "map": {"type": "object", "additionalProperties": item},
            "template": embedded, "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}});
        let mut value = json!({
            "list": [{"name": 1, "new": 1}, {"count": 7, "deep": {"new": 1}}, "text"], "map": {"k": {"name": "a", "new": {}}},
            "template": {"kind": "Pod", "metadata": {"name": "a"}, "other": 1}, "free": {"any": 1}, "new": [1]});
        let omitted = prune_undeclared(&schema, &mut value, ".status");
        assert_eq!(
            value,
            json!({"list": [{"name": 1}, {"count": 7}, "text"], "map": {"k": {"name": "a"}},
                   "template": {"kind": "Pod", "metadata": {"name": "a"}}, "free": {"any": 1}})
        );
        assert_eq!(
            omitted.into_iter().collect::<Vec<_>>(),
            [
                ".status.list[].deep",
                ".status.list[].new",
                ".status.map.k.new",
                ".status.new",
                ".status.template.other"
            ]
        );
    }

    #[test]
    fn a_value_of_another_type_goes() {
        let schema = json!({"type": "object", "properties": {
            "observedGeneration": {"type": "string"}, "port": {"x-kubernetes-int-or-string": true},
            "list": {"type": "array", "items": {"type": "integer"}}}});
        let (left, omitted) = fitted(
            &schema,
            json!({"observedGeneration": 3, "port": "http", "list": [1, "2"]}),
        );
        assert_eq!(left, json!({"port": "http", "list": [1]}));
        assert_eq!(omitted, [".status.list[]", ".status.observedGeneration"]);
    }
}
