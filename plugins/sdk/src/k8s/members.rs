//! Owns writing into the JSON map below a builder.
//!
//! Setters are generic over what they take, these functions are not: a component has each of them once, however many
//! setters it calls.

use serde_json::{Map, Value};

/// The JSON map below a builder.
pub(super) type Members = Map<String, Value>;

/// Sets the member at a path. `null` leaves it as it is, so that an `Option` can be passed on.
#[inline(never)]
pub(super) fn put(members: &mut Members, path: &[&str], value: Value) {
    if !value.is_null() {
        let (parent, name) = parent(members, path);
        parent.insert(name.to_owned(), value);
    }
}

/// Sets the list at a path. An empty one leaves it as it is, as an empty list is none to Kubernetes.
#[inline(never)]
pub(super) fn put_list(members: &mut Members, path: &[&str], mut items: Vec<Value>) {
    items.retain(|item| !item.is_null());
    if !items.is_empty() {
        put(members, path, Value::Array(items));
    }
}

/// Adds an element to the list at a path.
#[inline(never)]
pub(super) fn push(members: &mut Members, path: &[&str], value: Value) {
    if value.is_null() {
        return;
    }
    let (parent, name) = parent(members, path);
    match parent.get_mut(name) {
        Some(Value::Array(list)) => list.push(value),
        _ => drop(parent.insert(name.to_owned(), Value::Array(vec![value]))),
    }
}

/// Sets an entry of the map at a path.
#[inline(never)]
pub(super) fn insert(members: &mut Members, path: &[&str], key: String, value: Value) {
    if !value.is_null() {
        member(members, path).insert(key, value);
    }
}

/// Sets members of the map at a path, and leaves the others.
#[inline(never)]
pub(super) fn merge(members: &mut Members, path: &[&str], value: Value) {
    if let Value::Object(value) = value {
        member(members, path).extend(value);
    }
}

/// An object of a kind with its name.
#[inline(never)]
pub(super) fn object(api_version: &str, kind: &str, name: Value) -> Members {
    let mut members = Members::new();
    put(&mut members, &["apiVersion"], api_version.into());
    put(&mut members, &["kind"], kind.into());
    put(&mut members, &["metadata", "name"], name);
    members
}

fn parent<'a, 'b>(members: &'a mut Members, path: &[&'b str]) -> (&'a mut Members, &'b str) {
    let (name, above) = path.split_last().expect("a setter names its field");
    (member(members, above), name)
}

/// The map at a path, which is made where there is none.
fn member<'a>(mut members: &'a mut Members, path: &[&str]) -> &'a mut Members {
    for name in path {
        let member = members.entry(*name).or_insert_with(|| Value::Object(Members::new()));
        if !member.is_object() {
            *member = Value::Object(Members::new());
        }
        members = member.as_object_mut().expect("it was just made one");
    }
    members
}
