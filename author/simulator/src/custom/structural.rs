//! Applies a structural schema to an object: prunes unknown fields, sets defaults, and drops nulls that are not
//! allowed.

use serde_json::{Map, Value};

use crate::decode::decode;
use crate::schema::{Additional, OBJECT_META, Schema, Shape, definition};

/// Members of every resource, whatever its schema says.
const OF_RESOURCES: &[&str] = &["apiVersion", "kind", "metadata"];

/// Removes the fields that the schema does not specify, and returns their paths.
pub(crate) fn prune(schema: &Schema, object: &mut Value) -> Vec<String> {
    let mut pruned = Vec::new();
    prune_value(schema, object, true, "", &mut pruned);
    pruned
}

/// Reports whether a value that is no resource has fields that the schema does not specify.
pub(crate) fn has_unknown(schema: &Schema, value: &Value) -> bool {
    let mut pruned = Vec::new();
    prune_value(schema, &mut value.clone(), false, "", &mut pruned);
    !pruned.is_empty()
}

fn prune_value(schema: &Schema, value: &mut Value, resource: bool, path: &str, pruned: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let resource = resource || schema.embedded;
            members.retain(|name, _| {
                let known = (resource && OF_RESOURCES.contains(&name.as_str()))
                    || schema.preserve_unknown
                    || schema.properties.contains_key(name)
                    || matches!(schema.additional, Additional::Of(_) | Additional::Anything);
                if !known {
                    pruned.push(join(path, name));
                }
                known
            });
            for (name, value) in members {
                if resource && OF_RESOURCES.contains(&name.as_str()) {
                    continue;
                }
                if let Some(member) = schema.member(name) {
                    prune_value(member, value, false, &join(path, name), pruned);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                for (index, value) in items.iter_mut().enumerate() {
                    prune_value(item.get(), value, false, &format!("{path}[{index}]"), pruned);
                }
            }
        }
        _ => {}
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Handling of nulls that are not allowed and that no default replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nulls {
    /// Removed, as where a request gives the object.
    Dropped,
    /// Kept, as in the result of an apply, and refused.
    Kept,
}

/// Fills in defaults where a value is absent, or null and not nullable.
pub(crate) fn default(schema: &Schema, value: &mut Value, nulls: Nulls) {
    match value {
        Value::Object(members) => {
            for (name, property) in &schema.properties {
                let wanted = match members.get(name) {
                    None => true,
                    Some(value) => value.is_null() && !property.get().nullable,
                };
                if let (true, Some(default)) = (wanted, &property.default) {
                    members.insert(name.clone(), default.clone());
                }
            }
            if nulls == Nulls::Dropped {
                drop_nulls(schema, members);
            }
            for (name, value) in members {
                if let Some(member) = schema.member(name) {
                    default(member, value, nulls);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                for value in items {
                    default(item.get(), value, nulls);
                }
            }
        }
        _ => {}
    }
}

/// Removes what [`default`] would fill in again.
pub(crate) fn undefault(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.retain(|name, value| {
                let property = schema.properties.get(name);
                let Some((property, wanted)) = property.and_then(|it| Some((it, it.default.as_ref()?))) else {
                    return true;
                };
                let mut wanted = wanted.clone();
                default(property.get(), &mut wanted, Nulls::Dropped);
                *value != wanted
            });
            for (name, value) in members {
                if let Some(member) = schema.member(name) {
                    undefault(member, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                for value in items {
                    undefault(item.get(), value);
                }
            }
        }
        _ => {}
    }
}

fn drop_nulls(schema: &Schema, members: &mut Map<String, Value>) {
    members.retain(|name, value| {
        let declared = schema.member(name);
        !value.is_null() || declared.is_none_or(|member| member.nullable || is_anything(member))
    });
}

fn is_anything(schema: &Schema) -> bool {
    schema.shape == Shape::Any && schema.preserve_unknown && schema.properties.is_empty()
}

/// Normalises the metadata of embedded resources as Go does for every resource. The schema reports errors in their
/// types.
pub(crate) fn coerce_embedded(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(members) => {
            if schema.embedded
                && let Some(metadata) = members.get_mut("metadata")
            {
                if metadata.is_null() {
                    *metadata = Value::Object(Map::new());
                }
                // A label that is null is an empty text.
                for marks in ["labels", "annotations"] {
                    let marks = metadata.get_mut(marks).and_then(Value::as_object_mut);
                    for mark in marks
                        .into_iter()
                        .flat_map(Map::values_mut)
                        .filter(|mark| mark.is_null())
                    {
                        *mark = Value::String(String::new());
                    }
                }
                let meta = definition(OBJECT_META).expect("the definitions hold ObjectMeta");
                let mut decoded = metadata.clone();
                if decode(meta, &mut decoded).is_ok() {
                    *metadata = decoded;
                }
            }
            for (name, value) in members {
                if let Some(member) = schema.member(name) {
                    coerce_embedded(member, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(item) = &schema.items {
                for value in items {
                    coerce_embedded(item.get(), value);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn schema() -> Schema {
        Schema::parse(
            &json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
                "size": {"type": "integer", "default": 1},
                "inner": {"type": "object", "default": {}, "properties": {"a": {"type": "string", "default": "b"}}},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "list": {"type": "array", "items": {"type": "object", "properties": {"x": {"type": "integer"}}}},
            }}}}),
        )
    }

    #[test]
    fn unknown_fields_go_except_where_they_are_preserved() {
        let mut object = json!({"apiVersion": "a/v1", "metadata": {"name": "b"}, "extra": 1,
            "spec": {"free": {"anything": 1}, "list": [{"x": 1, "y": 2}], "nope": 3}});
        let mut pruned = prune(&schema(), &mut object);
        pruned.sort();
        assert_eq!(pruned, ["extra", "spec.list[0].y", "spec.nope"]);
        assert_eq!(object["spec"], json!({"free": {"anything": 1}, "list": [{"x": 1}]}));
    }

    #[test]
    fn defaults_fill_in_what_is_absent_or_null_and_nest() {
        let mut object = json!({"spec": {"size": null}});
        default(&schema(), &mut object, Nulls::Dropped);
        assert_eq!(object, json!({"spec": {"size": 1, "inner": {"a": "b"}}}));
        undefault(&schema(), &mut object);
        assert_eq!(object, json!({"spec": {}}));
        let mut other = json!({"spec": {"size": 2, "inner": {"a": "b", "c": 1}, "list": [{"x": 1}]}});
        let meant = other.clone();
        undefault(&schema(), &mut other);
        assert_eq!(other["spec"]["inner"], json!({"c": 1}));
        assert_eq!(
            (&other["spec"]["size"], &other["spec"]["list"]),
            (&meant["spec"]["size"], &meant["spec"]["list"])
        );
    }
}
