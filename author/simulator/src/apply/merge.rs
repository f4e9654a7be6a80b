//! Merges an applied value into a live one.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde_json::{Map, Value};

use super::types::{Atom, Type};
use crate::fields::Element;
use crate::schema::Listing;

/// The live value with the applied one's fields written over it. None where both are empty.
pub(crate) fn merge(kind: Type<'_>, live: Option<&Value>, applied: Option<&Value>) -> Result<Option<Value>, String> {
    let atom = kind.atom(applied.or(live));
    let keep_applied = || applied.or(live).cloned();
    match atom {
        Atom::Scalar(_) | Atom::List(Listing::Atomic) | Atom::Map { atomic: true } => Ok(keep_applied()),
        Atom::List(listing) => {
            let live_items = live.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let applied_items = applied.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            if live_items.is_empty() && applied_items.is_empty() {
                return Ok(keep_applied());
            }
            items(kind, listing, live_items, applied_items)
        }
        Atom::Map { atomic: false } => {
            let nothing = Map::new();
            let live_members = live.and_then(Value::as_object).unwrap_or(&nothing);
            let applied_members = applied.and_then(Value::as_object).unwrap_or(&nothing);
            if live_members.is_empty() && applied_members.is_empty() {
                return Ok(keep_applied());
            }
            let mut merged = Map::new();
            let added = applied_members.keys().filter(|name| !live_members.contains_key(*name));
            for name in live_members.keys().chain(added) {
                let member = kind.member(name).unwrap_or(Type::Deduced);
                let value = merge(member, live_members.get(name), applied_members.get(name))
                    .map_err(|fault| format!(".{name}{fault}"))?;
                if let Some(value) = value {
                    merged.insert(name.clone(), value);
                }
            }
            Ok((!merged.is_empty()).then_some(Value::Object(merged)))
        }
    }
}

/// Applied items stand in the applied order; live ones that are not applied keep their place among them.
fn items(kind: Type<'_>, listing: &Listing, live: &[Value], applied: &[Value]) -> Result<Option<Value>, String> {
    let element = |index: usize, item: &Value| {
        kind.element(listing, item)
            .map_err(|fault| format!(": element {index}: {fault}"))
    };
    let mut applied_order = Vec::new();
    let mut applied_by_element = BTreeMap::new();
    for (index, item) in applied.iter().enumerate() {
        let element = element(index, item)?;
        if applied_by_element.insert(element.clone(), item).is_some() {
            return Err(format!(": duplicate entries for key {element}"));
        }
        applied_order.push(element);
    }
    let mut live_order = Vec::new();
    let mut live_by_element: BTreeMap<Element, Option<&Value>> = BTreeMap::new();
    for (index, item) in live.iter().enumerate() {
        let element = element(index, item)?;
        // Which of several live items with one key is meant, nobody can say: none of them is merged.
        live_by_element
            .entry(element.clone())
            .and_modify(|found| *found = None)
            .or_insert(Some(item));
        live_order.push(element);
    }
    let mut shared: VecDeque<&Element> = applied_order
        .iter()
        .filter(|element| live_by_element.contains_key(*element))
        .collect();
    let mut next_shared = shared.pop_front();
    let mut done = BTreeSet::new();
    let mut out = Vec::new();
    let mut put = |element: &Element, live_item: Option<&Value>, applied_item: Option<&Value>| {
        merge(kind.item(), live_item, applied_item)
            .map(|value| out.extend(value))
            .map_err(|fault| format!("{element}{fault}"))
    };
    let (mut at_live, mut at_applied) = (0, 0);
    while at_live < live_order.len() || at_applied < applied_order.len() {
        if at_live < live_order.len() && at_applied < applied_order.len() {
            let element = &live_order[at_live];
            if *element == applied_order[at_applied] {
                done.insert(element.clone());
                put(
                    element,
                    live_by_element[element],
                    applied_by_element.get(element).copied(),
                )?;
                at_live += 1;
                at_applied += 1;
                next_shared = shared.pop_front();
                continue;
            }
            if applied_by_element.contains_key(element) && next_shared.is_some_and(|next| next != element) {
                at_live += 1;
                continue;
            }
        }
        if at_live < live_order.len() {
            let element = &live_order[at_live];
            if !applied_by_element.contains_key(element) {
                put(element, Some(&live[at_live]), None)?;
                at_live += 1;
                continue;
            }
            if done.contains(element) {
                at_live += 1;
            }
        }
        if at_applied < applied_order.len() {
            let element = &applied_order[at_applied];
            done.insert(element.clone());
            let live_item = live_by_element.get(element).copied().flatten();
            put(element, live_item, applied_by_element.get(element).copied())?;
            at_applied += 1;
            if next_shared == Some(element) {
                next_shared = shared.pop_front();
            }
        }
    }
    Ok((!out.is_empty()).then_some(Value::Array(out)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;
    use serde_json::json;

    fn names(live: &[&str], applied: &[&str]) -> Vec<String> {
        let schema = definition("io.k8s.api.core.v1.PodSpec").expect("pods are served");
        let spec = |names: &[&str]| {
            let containers: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
            json!({"containers": containers})
        };
        let merged = merge(Type::of(schema), Some(&spec(live)), Some(&spec(applied)));
        let merged = merged.expect("the lists merge").expect("something is left");
        let containers = merged["containers"].as_array().expect("containers is a list").clone();
        containers
            .iter()
            .map(|item| item["name"].as_str().expect("a name is text").to_owned())
            .collect()
    }

    #[test]
    fn the_applied_order_wins_and_strangers_keep_their_place() {
        assert_eq!(names(&["a", "x", "b"], &["b", "a"]), ["x", "b", "a"]);
        assert_eq!(names(&["a", "x"], &["a", "b"]), ["a", "x", "b"]);
        assert_eq!(names(&[], &["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn unapplied_members_of_maps_stay() {
        let schema = definition("io.k8s.api.core.v1.ConfigMap").expect("config maps are served");
        let merged = merge(
            Type::of(schema),
            Some(&json!({"data": {"a": "1", "b": "2"}})),
            Some(&json!({"data": {"b": "3"}})),
        );
        assert_eq!(merged, Ok(Some(json!({"data": {"a": "1", "b": "3"}}))));
    }
}
