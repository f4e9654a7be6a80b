//! Splits an object into the fields that can be held one by one, and assembles objects from such fields.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::path::{Path, PathElement, parsed};
use crate::kubernetes::fields::{FieldSet, FieldSetElement, ItemIndex, Likeness};
use crate::kubernetes::types::{Shape, Types};
use crate::text::printable::shorten;

/// The longest path of a field, in bytes. Each field has its own copy, so a long name is stored once per field.
const LONGEST_PATH: usize = 8192;

/// The content at a path.
#[derive(Clone, Debug, PartialEq)]
pub enum Leaf {
    /// A value that is held as a whole.
    Value(Value),
    /// An item of a list exists; its key identifies it.
    Present,
}

impl Leaf {
    /// Reports whether other managers may hold fields below.
    pub fn is_container(&self) -> bool {
        match self {
            Self::Present => true,
            Self::Value(value) => value.as_object().is_some_and(Map::is_empty),
        }
    }
}

/// Fields of one object.
pub type Leaves = BTreeMap<Path, Leaf>;

/// The reason why fields cannot be contributed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeavesError {
    /// The item's list only has one holder (it is atomic).
    #[error("{path} is a list that is only held as a whole (atomic), so no part of it can be contributed")]
    Atomic {
        /// The list.
        path: Path,
    },
    /// The item lacks a member of its key.
    #[error("an item of {path} lacks {key}, by which the items of this list are told apart")]
    Keyless {
        /// The list.
        path: Path,
        /// The missing member.
        key: String,
    },
    /// The field's path is too long.
    #[error("the path {path} of a field has more than {LONGEST_PATH} bytes; shorten its names")]
    TooLong {
        /// The beginning of the path.
        path: String,
    },
    /// Two items have the same key.
    #[error("{path} is there twice")]
    Twice {
        /// The item.
        path: Path,
    },
}

/// Splits a contributed object into fields. Its `apiVersion`, `kind`, namespace and name are not among them.
pub fn take_apart(object: &Map<String, Value>, types: &Types) -> Result<Leaves, LeavesError> {
    let mut leaves = Leaves::new();
    let root = Path::default();
    for (name, value) in object {
        let path = root.to_field(name);
        let shape = types.member(types.root(), name);
        match (name.as_str(), value) {
            ("apiVersion" | "kind", _) => {}
            ("metadata", Value::Object(metadata)) => {
                for (name, value) in metadata {
                    if !matches!(name.as_str(), "name" | "namespace" | "generateName") {
                        let shape = types.member(shape, name);
                        walk(types, shape, value, path.to_field(name), &mut leaves)?;
                    }
                }
            }
            _ => walk(types, shape, value, path, &mut leaves)?,
        }
    }
    Ok(leaves)
}

fn walk(types: &Types, shape: &Shape, value: &Value, path: Path, leaves: &mut Leaves) -> Result<(), LeavesError> {
    if path.bytes() > LONGEST_PATH {
        let path = shorten(path.to_string(), 100);
        return Err(LeavesError::TooLong { path });
    }
    match (shape, value) {
        (Shape::Object { .. } | Shape::Free, Value::Object(members)) if !members.is_empty() => {
            for (name, value) in members {
                walk(types, types.member(shape, name), value, path.to_field(name), leaves)?;
            }
        }
        // A list with nothing in it contributes nothing.
        (Shape::Map { .. } | Shape::Set | Shape::AtomicList | Shape::Free, Value::Array(items)) if items.is_empty() => {
        }
        (Shape::AtomicList | Shape::Free, Value::Array(_)) => return Err(LeavesError::Atomic { path }),
        (Shape::Set, Value::Array(items)) => {
            for item in items {
                leaves.insert(path.to(PathElement::item(item)), Leaf::Present);
            }
        }
        (Shape::Map { keys, item: shape }, Value::Array(items)) => {
            let shape = types.resolve(shape);
            let mut seen = BTreeSet::new();
            for item in items {
                let place = place(&path, keys, item)?;
                if !seen.insert(place.clone()) {
                    return Err(LeavesError::Twice { path: place });
                }
                leaves.insert(place.clone(), Leaf::Present);
                for (name, value) in item.as_object().into_iter().flatten() {
                    if keys.iter().all(|(key, _)| key != name) {
                        walk(types, types.member(shape, name), value, place.to_field(name), leaves)?;
                    }
                }
            }
        }
        // A value of the wrong type is left for the server to refuse, with its own message.
        _ => {
            leaves.insert(path, Leaf::Value(value.clone()));
        }
    }
    Ok(())
}

/// The path of an item in a keyed list. Missing key members get their defaults, as on the server.
fn place(list: &Path, keys: &[(String, Option<Value>)], item: &Value) -> Result<Path, LeavesError> {
    let mut members = Vec::with_capacity(keys.len());
    for (key, default) in keys {
        let given = item.get(key).filter(|value| !value.is_null());
        let Some(value) = given.or(default.as_ref()) else {
            return Err(LeavesError::Keyless {
                path: list.clone(),
                key: key.clone(),
            });
        };
        members.push((key, value));
    }
    Ok(list.to(PathElement::key(members)))
}

/// The fields of a field set, with the values that they have in the live object.
pub fn held(fields: &FieldSet, live: &Value) -> Leaves {
    let mut leaves = Leaves::new();
    collect(fields, None, live, &Path::default(), &mut leaves);
    leaves
}

/// Collects the fields below a path. The members of an item's key are not fields of their own.
fn collect(set: &FieldSet, key: Option<&Map<String, Value>>, live: &Value, path: &Path, leaves: &mut Leaves) {
    let mut items = ItemIndex::new(Some(live));
    for (element, below) in set.children() {
        match element {
            element if path.bytes() + element.text().len() > LONGEST_PATH => {}
            FieldSetElement::Field(name) if key.is_some_and(|key| key.contains_key(name)) => {}
            FieldSetElement::Field(name) => {
                let Some(value) = live.get(name) else { continue };
                let path = path.to_field(name);
                if below.children().is_empty() {
                    leaves.insert(path, Leaf::Value(value.clone()));
                } else {
                    collect(below, None, value, &path, leaves);
                }
            }
            FieldSetElement::Key(Value::Object(key)) => {
                let Some(item) = items.find(element, Likeness::Exact) else {
                    continue;
                };
                let path = path.to(PathElement::key(key));
                collect(below, Some(key), &live[item], &path, leaves);
                leaves.insert(path, Leaf::Present);
            }
            FieldSetElement::Item(value) => {
                if items.find(element, Likeness::Exact).is_some() {
                    leaves.insert(path.to(PathElement::item(value)), Leaf::Present);
                }
            }
            FieldSetElement::Key(_) | FieldSetElement::Other(_) => {}
        }
    }
}

/// Assembles an object from fields.
pub fn assemble(leaves: &Leaves) -> Map<String, Value> {
    let mut object = Value::Object(Map::new());
    for (path, leaf) in leaves {
        put(&mut object, path.steps(), leaf);
    }
    match object {
        Value::Object(object) => object,
        _ => unreachable!("every path begins with a member"),
    }
}

/// Inserts a field. In the order of paths all fields of one list item are adjacent, so an existing item is the last.
fn put(place: &mut Value, steps: &[PathElement], leaf: &Leaf) {
    let Some((step, rest)) = steps.split_first() else {
        match leaf {
            Leaf::Value(value) if place.is_null() => *place = value.clone(),
            Leaf::Value(_) | Leaf::Present => {}
        }
        return;
    };
    match step {
        PathElement::Field(name) => {
            if !place.is_object() {
                *place = Value::Object(Map::new());
            }
            put(&mut place[name.as_str()], rest, leaf);
        }
        PathElement::Key(key) => {
            let items = list(place);
            let members = PathElement::key_members(key);
            let is_last = items
                .last()
                .is_some_and(|last| members.iter().all(|(name, value)| last.get(name) == Some(value)));
            if !is_last {
                items.push(Value::Object(members));
            }
            put(items.last_mut().expect("it was put there just now"), rest, leaf);
        }
        PathElement::Item(text) => list(place).push(parsed(text)),
    }
}

fn list(place: &mut Value) -> &mut Vec<Value> {
    if !place.is_array() {
        *place = Value::Array(Vec::new());
    }
    place.as_array_mut().expect("it was made one a line above")
}
