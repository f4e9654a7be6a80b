//! Writes into the JSON map below a builder.
//!
//! Setters are generic over their arguments, these functions are not, so a component has each of them once.

use std::borrow::Cow;

use smol_str::SmolStr;

use super::FieldValue;
use super::value::{Members, Node};

/// Names of the members that lead to a field. They are part of the component, and never copied.
pub(super) type FieldPath = &'static [&'static str];

/// Sets the member at a path. `null` leaves it as it is, so that an `Option` can be passed directly.
#[inline(never)]
pub(super) fn put(members: &mut Members, path: FieldPath, value: FieldValue) {
    put_node(members, path, value.0);
}

/// Sets the list at a path. An empty one leaves it as it is, since Kubernetes treats an empty list as none.
#[inline(never)]
pub(super) fn put_list(members: &mut Members, path: FieldPath, mut items: Vec<Node>) {
    items.retain(|item| !item.is_null());
    if !items.is_empty() {
        put_node(members, path, Node::List(items));
    }
}

/// Adds an element to the list at a path.
#[inline(never)]
pub(super) fn push(members: &mut Members, path: FieldPath, value: FieldValue) {
    if value.0.is_null() {
        return;
    }
    let (parent, name) = parent(members, path);
    match parent.member(Cow::Borrowed(name)) {
        Node::List(list) => list.push(value.0),
        other => *other = Node::List(vec![value.0]),
    }
}

/// Sets an entry of the map at a path.
#[inline(never)]
pub(super) fn insert(members: &mut Members, path: FieldPath, key: String, value: FieldValue) {
    if !value.0.is_null() {
        member(members, path).insert(Cow::Owned(key), value.0);
    }
}

/// Sets members of the map at a path, and keeps the others.
#[inline(never)]
pub(super) fn merge(members: &mut Members, path: FieldPath, value: FieldValue) {
    if let Node::Map(value) = value.0 {
        member(members, path).extend(value);
    }
}

/// Sets a member that has no setter.
#[inline(never)]
pub(super) fn put_other(members: &mut Members, name: &str, value: FieldValue) {
    if !value.0.is_null() {
        members.insert(Cow::Owned(name.to_owned()), value.0);
    }
}

/// Returns an object of a kind with its name.
#[inline(never)]
pub(super) fn object(api_version: &'static str, kind: &'static str, name: FieldValue) -> Members {
    let mut members = Members::default();
    put_node(
        &mut members,
        &["apiVersion"],
        Node::String(SmolStr::new_static(api_version)),
    );
    put_node(&mut members, &["kind"], Node::String(SmolStr::new_static(kind)));
    put_node(&mut members, &["metadata", "name"], name.0);
    members
}

fn put_node(members: &mut Members, path: FieldPath, value: Node) {
    if !value.is_null() {
        let (parent, name) = parent(members, path);
        parent.insert(Cow::Borrowed(name), value);
    }
}

fn parent(members: &mut Members, path: FieldPath) -> (&mut Members, &'static str) {
    let (name, above) = path.split_last().expect("a setter names its field");
    (member(members, above), name)
}

/// Returns the map at a path, which is made if it is missing.
fn member(mut members: &mut Members, path: FieldPath) -> &mut Members {
    for name in path {
        let member = members.member(Cow::Borrowed(name));
        if !matches!(member, Node::Map(_)) {
            *member = Node::Map(Members::default());
        }
        let Node::Map(below) = member else {
            unreachable!("it was just made one")
        };
        members = below;
    }
    members
}
