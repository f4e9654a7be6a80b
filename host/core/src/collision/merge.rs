//! The object that an apply would leave, merged here because a server that refuses an apply does not show it.
//!
//! The rules are those of <https://github.com/kubernetes-sigs/structured-merge-diff>, `merge/update.go`. The model only has to
//! be good enough to find fields that collide: the apply itself decides.

use serde_json::{Map, Value};

use crate::fields::{FieldSet, FieldSetElement, same};
use crate::types::{Shape, Types};

/// The live object after an apply of the body: what our entry holds beyond the body goes, unless another manager holds it.
pub fn merged(live: &Value, body: &Map<String, Value>, entries: &Entries, types: &Types) -> Value {
    let kept = match &entries.ours {
        Some(ours) => {
            let others: Vec<&FieldSet> = entries.others.iter().map(|(_, set)| set).collect();
            without_surplus(live, ours, &others, Some(&Value::Object(body.clone())))
        }
        None => live.clone(),
    };
    let mut merged = kept;
    let root = types.root();
    for (name, value) in body {
        match name.as_str() {
            "apiVersion" | "kind" | "status" => {}
            "metadata" => {
                for map in ["labels", "annotations"] {
                    for (name, value) in value[map].as_object().into_iter().flatten() {
                        merged["metadata"][map][name] = value.clone();
                    }
                }
            }
            _ => {
                let below = types.member(root, name);
                let value = overlay(merged.get(name), value, below, types);
                merged[name] = value;
            }
        }
    }
    merged
}

/// The field sets of an object's managers.
#[derive(Debug, Default)]
pub struct Entries {
    /// Our Apply entry.
    pub ours: Option<FieldSet>,
    /// Every other entry of the main resource, by its manager.
    pub others: Vec<(String, FieldSet)>,
}

impl Entries {
    /// Reads `metadata.managedFields` of a live object. Entries that cannot be read hold nothing.
    pub fn read(live: &Value, manager: &str) -> Self {
        let mut entries = Self::default();
        for entry in live["metadata"]["managedFields"].as_array().into_iter().flatten() {
            if entry["subresource"] == "status" {
                continue;
            }
            let set = serde_json::from_value(entry["fieldsV1"].clone()).unwrap_or_default();
            if is_ours(entry, manager) {
                entries.ours = Some(set);
            } else {
                let name = entry["manager"].as_str().unwrap_or_default().to_owned();
                entries.others.push((name, set));
            }
        }
        entries
    }
}

/// Reports the Apply entry of a manager for the main resource.
pub fn is_ours(entry: &Value, manager: &str) -> bool {
    let subresource = entry["subresource"].as_str().unwrap_or_default();
    entry["manager"] == manager && entry["operation"] == "Apply" && subresource.is_empty()
}

/// The item of a list that an element of a field set names.
pub fn find<'a>(value: &'a Value, element: &FieldSetElement) -> Option<&'a Value> {
    match (element, value) {
        (FieldSetElement::Field(name), Value::Object(members)) => members.get(name),
        (FieldSetElement::Key(key), Value::Array(items)) => items.iter().find(|item| has_key(item, key)),
        (FieldSetElement::Item(wanted), Value::Array(items)) => items.iter().find(|item| same(item, wanted)),
        _ => None,
    }
}

/// Compares the members of a key that an item gives; the server fills in the others.
pub fn has_key(item: &Value, key: &Value) -> bool {
    let Some(key) = key.as_object() else { return false };
    let given = |(name, value): (&String, &Value)| item.get(name).is_none_or(|own| same(own, value));
    key.iter().all(given) && key.keys().any(|name| item.get(name).is_some())
}

/// Removes what an element names.
pub fn remove(value: &mut Value, element: &FieldSetElement) {
    match (element, value) {
        (FieldSetElement::Field(name), Value::Object(members)) => _ = members.remove(name),
        (FieldSetElement::Key(key), Value::Array(items)) => items.retain(|item| !has_key(item, key)),
        (FieldSetElement::Item(wanted), Value::Array(items)) => items.retain(|item| !same(item, wanted)),
        _ => {}
    }
}

fn without_surplus(live: &Value, ours: &FieldSet, others: &[&FieldSet], body: Option<&Value>) -> Value {
    let mut left = live.clone();
    for (element, below) in ours.children() {
        let Some(value) = find(live, element) else { continue };
        let held: Vec<&FieldSet> = others.iter().filter_map(|set| set.child(element)).collect();
        let desired = body.and_then(|body| find(body, element));
        let value = match desired {
            Some(_) => Some(without_surplus(value, below, &held, desired)),
            None => held_part(value, &held),
        };
        match value {
            Some(value) => replace(&mut left, element, value),
            None => remove(&mut left, element),
        }
    }
    left
}

/// The part of a value that other managers hold; none if they hold nothing of it.
fn held_part(value: &Value, sets: &[&FieldSet]) -> Option<Value> {
    if sets.is_empty() {
        return None;
    }
    if sets.iter().any(|set| set.children().is_empty()) {
        return Some(value.clone());
    }
    let below =
        |element: &FieldSetElement| -> Vec<&FieldSet> { sets.iter().filter_map(|set| set.child(element)).collect() };
    match value {
        Value::Object(members) => {
            let held = members.iter().filter_map(|(name, value)| {
                let sets = below(&FieldSetElement::Field(name.clone()));
                Some((name.clone(), held_part(value, &sets)?))
            });
            Some(Value::Object(held.collect()))
        }
        Value::Array(items) => {
            let held = items.iter().filter_map(|item| {
                let elements = sets.iter().flat_map(|set| set.children());
                let element = elements
                    .map(|(element, _)| element)
                    .find(|element| is_item(item, element))?;
                held_part(item, &below(element))
            });
            Some(Value::Array(held.collect()))
        }
        scalar => Some(scalar.clone()),
    }
}

fn is_item(item: &Value, element: &FieldSetElement) -> bool {
    match element {
        FieldSetElement::Key(key) => has_key(item, key),
        FieldSetElement::Item(wanted) => same(item, wanted),
        FieldSetElement::Field(_) | FieldSetElement::Other(_) => false,
    }
}

fn replace(value: &mut Value, element: &FieldSetElement, by: Value) {
    match (element, value) {
        (FieldSetElement::Field(name), Value::Object(members)) => _ = members.insert(name.clone(), by),
        (FieldSetElement::Key(key), Value::Array(items)) => {
            if let Some(item) = items.iter_mut().find(|item| has_key(item, key)) {
                *item = by;
            }
        }
        _ => {}
    }
}

fn overlay(live: Option<&Value>, body: &Value, shape: &Shape, types: &Types) -> Value {
    match (live, body, shape) {
        (Some(Value::Object(live)), Value::Object(body), Shape::Object { .. } | Shape::Free) => {
            let mut merged = live.clone();
            for (name, value) in body {
                let value = overlay(live.get(name), value, types.member(shape, name), types);
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Some(Value::Array(live)), Value::Array(body), Shape::Map { keys, item }) => {
            let mut merged = live.clone();
            for desired in body {
                let key = item_key(desired, keys);
                match merged.iter_mut().find(|item| item_key(item, keys) == key) {
                    Some(item_there) => *item_there = overlay(Some(item_there), desired, types.resolve(item), types),
                    None => merged.push(desired.clone()),
                }
            }
            Value::Array(merged)
        }
        (Some(Value::Array(live)), Value::Array(body), Shape::Set) => {
            let mut merged = live.clone();
            merged.extend(
                body.iter()
                    .filter(|item| !live.iter().any(|it| same(it, item)))
                    .cloned(),
            );
            Value::Array(merged)
        }
        _ => body.clone(),
    }
}

/// The key of an item of a keyed list, with the defaults of members that it does not give.
pub fn item_key(item: &Value, keys: &[(String, Option<Value>)]) -> Value {
    let member = |(name, default): &(String, Option<Value>)| {
        let value = item.get(name).or(default.as_ref())?;
        Some((name.clone(), value.clone()))
    };
    Value::Object(keys.iter().filter_map(member).collect())
}
