//! The object that an apply would leave, merged here because a server that refuses an apply does not show it.
//!
//! The rules are those of <https://github.com/kubernetes-sigs/structured-merge-diff>, `merge/update.go`. The model only has to
//! be good enough to find fields that collide: the apply itself decides.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use crate::kubernetes::fields::{FieldSet, FieldSetElement, ItemIndex, Likeness, value_text};
use crate::kubernetes::types::{Shape, Types};

/// The live object after an apply of the body: fields that our entry holds beyond the body are removed, unless another
/// manager holds them.
pub fn merged(live: &Value, body: &Map<String, Value>, entries: &Entries, types: &Types) -> Value {
    let kept = match &entries.ours {
        Some(ours) => {
            let others: Vec<&FieldSet> = entries.others.iter().map(|(_, set)| set).collect();
            without_surplus(live.clone(), ours, &others, Some(&Value::Object(body.clone())))
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

/// Removes the leaves of a set from a value.
pub fn remove(value: &mut Value, set: &FieldSet) {
    match value {
        Value::Object(members) => {
            for (element, below) in set.children() {
                if let FieldSetElement::Field(name) = element {
                    if below.children().is_empty() {
                        members.remove(name);
                    } else if let Some(value) = members.get_mut(name) {
                        remove(value, below);
                    }
                }
            }
        }
        Value::Array(items) => {
            let list = Value::Array(std::mem::take(items));
            let mut index = ItemIndex::new(Some(&list));
            let mut below = vec![None; list.as_array().map_or(0, Vec::len)];
            for (element, set) in set.children() {
                let found = index.find_all(element, Likeness::Given);
                let only_first = if set.children().is_empty() { usize::MAX } else { 1 };
                for position in found.into_iter().take(only_first) {
                    below[position] = Some(set);
                }
            }
            drop(index);
            let Value::Array(old) = list else { return };
            for (mut item, set) in old.into_iter().zip(below) {
                match set {
                    Some(set) if set.children().is_empty() => continue,
                    Some(set) => remove(&mut item, set),
                    None => {}
                }
                items.push(item);
            }
        }
        _ => {}
    }
}

fn without_surplus(live: Value, ours: &FieldSet, others: &[&FieldSet], body: Option<&Value>) -> Value {
    let left = |value: Value, below: &FieldSet, held: &[&FieldSet], desired: Option<&Value>| match desired {
        Some(_) => Some(without_surplus(value, below, held, desired)),
        None => held_part(&value, held),
    };
    match live {
        Value::Object(mut members) => {
            for (element, below) in ours.children() {
                let FieldSetElement::Field(name) = element else {
                    continue;
                };
                let Some(value) = members.remove(name) else { continue };
                let held: Vec<&FieldSet> = others.iter().filter_map(|set| set.below(name)).collect();
                if let Some(value) = left(value, below, &held, body.and_then(|body| body.get(name))) {
                    members.insert(name.clone(), value);
                }
            }
            Value::Object(members)
        }
        Value::Array(_) => {
            let mut index = ItemIndex::new(Some(&live));
            let mut wanted = ItemIndex::new(body);
            let others: Vec<_> = others.iter().map(|set| set.by_item()).collect();
            let mut items: Vec<Option<Value>> = live.as_array().into_iter().flatten().cloned().map(Some).collect();
            for (element, below) in ours.children() {
                let Some(position) = index.find(element, Likeness::Given) else {
                    continue;
                };
                let text = element.text();
                let held: Vec<&FieldSet> = others.iter().filter_map(|set| set.get(&text).copied()).collect();
                let desired = wanted.find(element, Likeness::Given);
                let desired = body.zip(desired).map(|(body, position)| &body[position]);
                let Some(value) = items[position].take() else { continue };
                items[position] = left(value, below, &held, desired);
                if items[position].is_none() {
                    for position in index.find_all(element, Likeness::Given) {
                        items[position] = None;
                    }
                }
            }
            Value::Array(items.into_iter().flatten().collect())
        }
        scalar => scalar,
    }
}

/// The part of a value that other managers hold; none if they hold nothing of it.
fn held_part(value: &Value, sets: &[&FieldSet]) -> Option<Value> {
    if sets.is_empty() {
        return None;
    }
    if sets.iter().any(|set| set.children().is_empty()) {
        return Some(value.clone());
    }
    match value {
        Value::Object(members) => {
            let held = members.iter().filter_map(|(name, value)| {
                let sets: Vec<&FieldSet> = sets.iter().filter_map(|set| set.below(name)).collect();
                Some((name.clone(), held_part(value, &sets)?))
            });
            Some(Value::Object(held.collect()))
        }
        Value::Array(items) => {
            let mut index = ItemIndex::new(Some(value));
            let mut names = vec![None; items.len()];
            for (element, _) in sets.iter().flat_map(|set| set.children()) {
                for position in index.find_all(element, Likeness::Given) {
                    names[position].get_or_insert(element);
                }
            }
            let sets: Vec<_> = sets.iter().map(|set| set.by_item()).collect();
            let held = items.iter().zip(names).filter_map(|(item, name)| {
                let text = name?.text();
                let below: Vec<&FieldSet> = sets.iter().filter_map(|set| set.get(&text).copied()).collect();
                held_part(item, &below)
            });
            Some(Value::Array(held.collect()))
        }
        scalar => Some(scalar.clone()),
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
            let mut positions: HashMap<String, usize> = HashMap::new();
            for (position, item) in live.iter().enumerate() {
                positions.entry(item_key(item, keys).to_string()).or_insert(position);
            }
            for desired in body {
                let key = item_key(desired, keys).to_string();
                if let Some(position) = positions.get(&key) {
                    let there = overlay(Some(&merged[*position]), desired, types.resolve(item), types);
                    merged[*position] = there;
                } else {
                    positions.insert(key, merged.len());
                    merged.push(desired.clone());
                }
            }
            Value::Array(merged)
        }
        (Some(Value::Array(live)), Value::Array(body), Shape::Set) => {
            let mut merged = live.clone();
            let there: HashSet<String> = live.iter().map(value_text).collect();
            merged.extend(body.iter().filter(|item| !there.contains(&value_text(item))).cloned());
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
