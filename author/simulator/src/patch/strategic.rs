//! Strategic merge patch: lists merged by key, and the directives `$patch`, `$retainKeys`, `$setElementOrder` and
//! `$deleteFromPrimitiveList`.

use serde_json::{Map, Value};

use crate::schema::{Node, Property, Schema, Strategy};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";

/// Applies the patch to an object of the schema.
pub(crate) fn apply(schema: &Schema, target: &mut Value, patch: &Value) -> Result<(), String> {
    let patch = patch.as_object().ok_or("the patch is not an object")?;
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(members) = target.as_object_mut() else {
        return Ok(());
    };
    merge(Some(schema), members, patch)
}

fn merge(schema: Option<&Schema>, target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), String> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        Some("replace") => {
            *target = plain(patch);
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        Some("merge") | None => {}
        Some(other) => return Err(format!("unknown patch type: {other}")),
    }
    if let Some(kept) = patch.get(RETAIN_KEYS).and_then(Value::as_array) {
        target.retain(|name, _| kept.iter().any(|kept| kept == name));
    }
    for (name, value) in patch {
        if name == DIRECTIVE || name == RETAIN_KEYS || name.starts_with(ORDER) {
            continue;
        }
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            delete_from(target, list, value);
            continue;
        }
        if value.is_null() {
            target.remove(name);
            continue;
        }
        let property = schema.and_then(|schema| schema.properties.get(name));
        let member = property
            .map(Property::get)
            .or_else(|| schema.and_then(|schema| schema.member(name)));
        match (target.get_mut(name), value) {
            (Some(Value::Object(existing)), Value::Object(patch)) => merge(member, existing, patch)?,
            (_, Value::Object(patch)) => {
                let mut fresh = Map::new();
                merge(member, &mut fresh, patch)?;
                target.insert(name.clone(), Value::Object(fresh));
            }
            (existing, Value::Array(items)) => {
                let merged = property.is_some_and(|property| property.strategy.merge);
                let existing = existing.and_then(|value| value.as_array().cloned()).unwrap_or_default();
                let list = if let (true, Some(property)) = (merged, property) {
                    list(
                        member.and_then(|member| member.items.as_ref()),
                        &property.strategy,
                        existing,
                        items,
                    )?
                } else {
                    items.iter().map(without_directives).collect()
                };
                target.insert(name.clone(), Value::Array(list));
            }
            (_, scalar) => {
                target.insert(name.clone(), scalar.clone());
            }
        }
    }
    reorder(schema, target, patch);
    Ok(())
}

fn plain(patch: &Map<String, Value>) -> Map<String, Value> {
    patch
        .iter()
        .filter(|(name, _)| !name.starts_with('$'))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let members = plain(members);
            Value::Object(
                members
                    .into_iter()
                    .map(|(name, value)| (name, without_directives(&value)))
                    .collect(),
            )
        }
        Value::Array(items) => items.iter().map(without_directives).collect(),
        scalar => scalar.clone(),
    }
}

fn delete_from(target: &mut Map<String, Value>, list: &str, values: &Value) {
    let Some(items) = target.get_mut(list).and_then(Value::as_array_mut) else {
        return;
    };
    items.retain(|item| !values.as_array().is_some_and(|values| values.contains(item)));
}

fn list(
    item: Option<&Node>,
    strategy: &Strategy,
    mut existing: Vec<Value>,
    patch: &[Value],
) -> Result<Vec<Value>, String> {
    let Some(key) = &strategy.key else {
        for value in patch {
            if !existing.contains(value) {
                existing.push(value.clone());
            }
        }
        return Ok(existing);
    };
    if patch.iter().any(|value| value[DIRECTIVE] == "replace") {
        let rest = patch.iter().filter(|value| value.get(DIRECTIVE).is_none());
        return Ok(rest.map(without_directives).collect());
    }
    for value in patch {
        let Some(members) = value.as_object() else {
            return Err("expected items of the list to be objects".to_owned());
        };
        let Some(wanted) = members.get(key) else {
            return Err(format!("map: {value} does not contain declared merge key: {key}"));
        };
        let found = existing
            .iter()
            .position(|item| crate::apply::types::same(&item[key], wanted));
        match (value[DIRECTIVE].as_str(), found) {
            (Some("delete"), _) => existing.retain(|item| !crate::apply::types::same(&item[key], wanted)),
            (_, Some(place)) => {
                if let Some(target) = existing[place].as_object_mut() {
                    merge(item.map(Node::get), target, members)?;
                }
            }
            (_, None) => {
                let mut fresh = Map::new();
                merge(item.map(Node::get), &mut fresh, members)?;
                existing.push(Value::Object(fresh));
            }
        }
    }
    Ok(existing)
}

/// Brings lists into the order that `$setElementOrder` asks for; items that it does not name keep their place relative to
/// the item before them.
fn reorder(schema: Option<&Schema>, target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, order) in patch {
        let Some(list) = name.strip_prefix(ORDER) else { continue };
        let strategy = schema
            .and_then(|schema| schema.properties.get(list))
            .map(|property| &property.strategy);
        let key = strategy.and_then(|strategy| strategy.key.as_deref());
        let identity = |value: &Value| key.map_or_else(|| value.clone(), |key| value[key].clone());
        let wanted: Vec<Value> = order.as_array().into_iter().flatten().map(identity).collect();
        let Some(items) = target.get_mut(list).and_then(Value::as_array_mut) else {
            continue;
        };
        let place = |item: &Value| wanted.iter().position(|wanted| *wanted == identity(item));
        let mut ordered: Vec<Value> = items.iter().filter(|item| place(item).is_some()).cloned().collect();
        ordered.sort_by_key(|item| place(item));
        // Items of others stay behind whatever stood before them.
        let mut before: Option<Value> = None;
        for item in items.iter() {
            if place(item).is_none() {
                let after = before
                    .as_ref()
                    .and_then(|before| ordered.iter().position(|item| identity(item) == *before));
                ordered.insert(after.map_or(0, |index| index + 1), item.clone());
            }
            before = Some(identity(item));
        }
        *items = ordered;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;
    use serde_json::json;

    fn patched(mut target: Value, patch: &Value) -> Value {
        let schema = definition("io.k8s.api.core.v1.PodSpec").expect("pods are served");
        apply(schema, &mut target, patch).expect("the patch applies");
        target
    }

    #[test]
    fn containers_are_merged_by_name_deleted_and_ordered() {
        let target = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}]});
        let patch = json!({
            "$setElementOrder/containers": [{"name": "c"}, {"name": "b"}],
            "containers": [{"name": "b", "image": "3"}, {"$patch": "delete", "name": "a"}, {"name": "c"}],
        });
        assert_eq!(
            patched(target, &patch),
            json!({"containers": [{"name": "c"}, {"name": "b", "image": "3"}]})
        );
    }

    #[test]
    fn atomic_lists_are_replaced_and_directives_do_not_stay() {
        let target = json!({"containers": [{"name": "a", "args": ["x"], "resources": {"limits": {"cpu": "1"}}}]});
        let patch = json!({"containers": [{"name": "a", "args": ["y"], "resources": {"$patch": "replace", "requests": {"cpu": "2"}}}]});
        assert_eq!(
            patched(target, &patch),
            json!({"containers": [{"name": "a", "args": ["y"], "resources": {"requests": {"cpu": "2"}}}]})
        );
    }
}
