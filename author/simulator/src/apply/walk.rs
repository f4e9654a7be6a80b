//! Walks over one typed value: the set of its fields, and the value without some of them.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::types::{Atom, Type};
use crate::fields::{Element, Set};
use crate::schema::Listing;

/// Returns every field of the value that can have an owner.
pub(crate) fn field_set(kind: Type<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    collect(kind, value, &mut Vec::new(), &mut set);
    set
}

fn collect(kind: Type<'_>, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    match kind.atom(Some(value)) {
        Atom::Scalar(_) | Atom::List(Listing::Atomic) | Atom::Map { atomic: true } => set.insert(path),
        Atom::List(listing) => collect_items(kind, listing, value, path, set),
        Atom::Map { atomic: false } => {
            for (name, value) in value.as_object().into_iter().flatten() {
                let Some(member) = kind.member(name) else { continue };
                path.push(Element::field(name));
                collect(member, value, path, set);
                let hollow = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                if hollow || !kind.declares(name) {
                    set.insert(path);
                }
                path.pop();
            }
        }
    }
}

fn collect_items(kind: Type<'_>, listing: &Listing, value: &Value, path: &mut Vec<Element>, set: &mut Set) {
    let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
    let elements: Vec<Option<Element>> = items.iter().map(|item| kind.element(listing, item).ok()).collect();
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&Element> = elements
        .iter()
        .flatten()
        .filter(|element| !seen.insert(*element))
        .collect();
    for (item, element) in items.iter().zip(&elements) {
        let Some(element) = element else { continue };
        path.push(element.clone());
        // Items with one key are owned as a whole, as if they were a leaf.
        if !twice.contains(element) {
            collect(kind.item(), item, path, set);
        }
        set.insert(path);
        path.pop();
    }
}

/// The value without the fields of the set. None where nothing is left, which is written as null.
pub(crate) fn remove(kind: Type<'_>, value: &Value, unwanted: &Set) -> Option<Value> {
    match kind.atom(Some(value)) {
        Atom::Scalar(_) => Some(value.clone()),
        Atom::List(Listing::Atomic) | Atom::Map { atomic: true } => None,
        Atom::List(listing) => {
            let mut kept = Vec::new();
            for item in value.as_array()? {
                let element = kind.element(listing, item).ok();
                if element
                    .as_ref()
                    .is_some_and(|element| unwanted.members.contains(element))
                {
                    continue;
                }
                let rest = match element.as_ref().and_then(|element| unwanted.below(element)) {
                    Some(below) => remove(kind.item(), item, below).unwrap_or(Value::Null),
                    None => item.clone(),
                };
                kept.push(rest);
            }
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        Atom::Map { atomic: false } => {
            let mut kept = Map::new();
            for (name, value) in value.as_object()? {
                let element = Element::field(name);
                if unwanted.members.contains(&element) {
                    continue;
                }
                let rest = match (unwanted.below(&element), kind.member(name)) {
                    (Some(below), Some(member)) => remove(member, value, below).unwrap_or(Value::Null),
                    _ => value.clone(),
                };
                kept.insert(name.clone(), rest);
            }
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
    }
}

/// Adds every declared field on the path to a member: `spec` of `spec.replicas`, but no key of a map.
pub(crate) fn with_named_parents(kind: Type<'_>, set: &Set) -> Set {
    let mut result = Set {
        members: set.members.clone(),
        ..Set::default()
    };
    for (element, child) in &set.children {
        let below = match element {
            Element::Field(name) => {
                if kind.declares(name) {
                    result.members.insert(element.clone());
                }
                kind.member(name)
            }
            _ => Some(kind.item()),
        };
        result.children.insert(
            element.clone(),
            with_named_parents(below.unwrap_or(Type::Deduced), child),
        );
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;
    use serde_json::json;

    #[test]
    fn an_item_without_protocol_is_keyed_with_the_default() {
        let schema = definition("io.k8s.api.core.v1.Service").expect("services are served");
        let set = field_set(
            Type::of(schema),
            &json!({"spec": {"ports": [{"port": 53}], "selector": {"a": "b"}}}),
        );
        let key = "k:{\"port\":53,\"protocol\":\"TCP\"}";
        assert_eq!(
            set.serialise(),
            json!({"f:spec": {"f:ports": {key: {".": {}, "f:port": {}}}, "f:selector": {}}})
        );
    }

    #[test]
    fn removing_the_last_member_of_a_map_leaves_null() {
        let schema = definition("io.k8s.api.core.v1.ConfigMap").expect("config maps are served");
        let unwanted = Set::parse(&json!({"f:data": {"f:a": {}}})).expect("the set parses");
        let rest = remove(
            Type::of(schema),
            &json!({"data": {"a": "1"}, "kind": "ConfigMap"}),
            &unwanted,
        );
        assert_eq!(rest, Some(json!({"data": null, "kind": "ConfigMap"})));
    }
}
