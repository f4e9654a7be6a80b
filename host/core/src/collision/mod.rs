//! Finds the fields beside ours that make an apply invalid: another member of a one-of, a second item with our name, a
//! limit below our request. Their owner is another manager, or none where the server filled in a default.
//!
//! No two kinds state their rules in the same form, and messages are free text. So the search asks the server: it sends
//! the object that the apply would leave without some of these fields as a dry run. The fields that each refusal names
//! say where the search continues. It starts close to them and ends with the fewest fields whose absence the server
//! accepts.

mod around;
mod managers;
mod merge;
mod search;

pub use around::around;
pub use managers::{holders, move_to_us};
pub use merge::{Entries, merged};
pub use search::{Search, Step};

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::kubernetes::fields::{FieldSet, FieldSetElement, value_text};
use crate::kubernetes::types::{Shape, Types};

/// The highest number of fields of one object that are searched.
const MOST_FIELDS: usize = 4096;

/// The longest location of such a field, in bytes. Each field has its own copy.
const LONGEST_LOCATION: usize = 4096;

/// A field of a live object, step by step.
pub type FieldLocation = Vec<FieldSetElement>;

/// A location as messages show it: `.spec.ports[{"port":81,"protocol":"TCP"}]`.
pub fn display(location: &[FieldSetElement]) -> String {
    location.iter().fold(String::new(), |mut text, element| {
        match element {
            FieldSetElement::Field(name) => _ = write!(text, ".{name}"),
            FieldSetElement::Key(value) | FieldSetElement::Item(value) => _ = write!(text, "[{value}]"),
            FieldSetElement::Other(other) => _ = write!(text, "[{other}]"),
        }
        text
    })
}

/// The fields of a merged object that the body does not name, each as a whole, but for the members of maps. Metadata and
/// status are never among them.
pub fn foreign_fields(merged: &Value, body: &Map<String, Value>, types: &Types) -> Vec<FieldLocation> {
    let mut found = Vec::new();
    let root = types.root();
    for (name, value) in merged.as_object().into_iter().flatten() {
        if ["apiVersion", "kind", "metadata", "status"].contains(&name.as_str()) {
            continue;
        }
        let mut location = vec![FieldSetElement::Field(name.clone())];
        collect(
            value,
            body.get(name),
            types.member(root, name),
            types,
            &mut location,
            &mut found,
        );
    }
    found
}

fn collect(
    value: &Value,
    body: Option<&Value>,
    shape: &Shape,
    types: &Types,
    location: &mut FieldLocation,
    found: &mut Vec<FieldLocation>,
) {
    match (value, body, shape) {
        // The members of a map that is not ours can be taken one by one.
        (
            Value::Object(members),
            None,
            Shape::Object {
                members: declared,
                others: Some(_),
            },
        ) if declared.is_empty() && !members.is_empty() => {
            for name in members.keys() {
                location.push(FieldSetElement::Field(name.clone()));
                add(location, found);
                location.pop();
            }
        }
        (_, None, _) => add(location, found),
        (Value::Object(members), Some(Value::Object(body)), Shape::Object { .. } | Shape::Free) => {
            for (name, value) in members {
                location.push(FieldSetElement::Field(name.clone()));
                collect(value, body.get(name), types.member(shape, name), types, location, found);
                location.pop();
            }
        }
        (Value::Array(items), Some(Value::Array(body)), Shape::Map { keys, item }) => {
            let mut by_key: HashMap<String, &Value> = HashMap::new();
            for item in body {
                by_key.entry(merge::item_key(item, keys).to_string()).or_insert(item);
            }
            for value in items {
                let key = merge::item_key(value, keys);
                let desired = by_key.get(&key.to_string()).copied();
                location.push(FieldSetElement::Key(key));
                collect(value, desired, types.resolve(item), types, location, found);
                location.pop();
            }
        }
        (Value::Array(items), Some(Value::Array(body)), Shape::Set) => {
            let body: HashSet<String> = body.iter().map(value_text).collect();
            for value in items.iter().filter(|item| !body.contains(&value_text(item))) {
                location.push(FieldSetElement::Item(value.clone()));
                add(location, found);
                location.pop();
            }
        }
        _ => {}
    }
}

/// Adds a field, unless there are too many of them or its location is too long.
fn add(location: &FieldLocation, found: &mut Vec<FieldLocation>) {
    let bytes: usize = location.iter().map(|element| element.text().len()).sum();
    if found.len() < MOST_FIELDS && bytes <= LONGEST_LOCATION {
        found.push(location.clone());
    }
}

/// The field set at a location.
fn at<'a>(set: &'a FieldSet, location: &[FieldSetElement]) -> Option<&'a FieldSet> {
    location.iter().try_fold(set, |set, element| set.child(element))
}
