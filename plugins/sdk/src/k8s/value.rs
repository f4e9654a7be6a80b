//! JSON below a builder: maps whose members are mostly named by the generated setters.
//!
//! `serde_json::Value` would do, but it allocates the name of each member, each string and a tree for each map, and an
//! object that is built in each call has about fifty members in twenty maps. Here names are borrowed from the setters,
//! and strings of at most 23 bytes are stored inline.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Number, Value};
use smol_str::SmolStr;

/// A JSON value that a setter puts into an object, made by [`Field::into_value`](super::Field::into_value).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldValue(pub(super) Node);

/// JSON in the form that builders use.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Node {
    #[default]
    Null,
    Bool(bool),
    Number(Number),
    String(SmolStr),
    List(Vec<Node>),
    Map(Members),
}

/// JSON object below a builder, each name once. Up to [`FEW`] members are in order of insertion, more are sorted.
#[derive(Clone, Debug, Default)]
pub(super) struct Members(Vec<(Cow<'static, str>, Node)>);

/// Number of members up to which a linear search finds one.
const FEW: usize = 16;

impl Node {
    /// Reports whether there is no value.
    pub fn is_null(&self) -> bool {
        matches!(self, Self::Null)
    }
}

impl Members {
    /// Sets a member.
    pub fn insert(&mut self, name: Cow<'static, str>, value: Node) {
        *self.member(name) = value;
    }

    /// Returns a member, which is `null` if there was none.
    pub fn member(&mut self, name: Cow<'static, str>) -> &mut Node {
        let index = match self.find(&name) {
            Ok(index) => index,
            Err(index) => {
                let index = if self.0.len() == FEW { self.sort(&name) } else { index };
                self.0.insert(index, (name, Node::Null));
                index
            }
        };
        &mut self.0[index].1
    }

    /// Sets all members of another map, and keeps the others.
    pub fn extend(&mut self, other: Self) {
        for (name, value) in other.0 {
            self.insert(name, value);
        }
    }

    /// Returns the index of the member, or the index at which it belongs.
    fn find(&self, name: &str) -> Result<usize, usize> {
        if self.0.len() <= FEW {
            let index = self.0.iter().position(|(member, _)| *member == name);
            return index.ok_or(self.0.len());
        }
        match self.0.last() {
            // Members that are inserted in order belong at the end.
            Some((last, _)) if **last < *name => Err(self.0.len()),
            _ => self.0.binary_search_by(|(member, _)| (**member).cmp(name)),
        }
    }

    /// Sorts unsorted members, and returns the index at which a further member belongs.
    fn sort(&mut self, name: &str) -> usize {
        self.0.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        self.0.partition_point(|(member, _)| **member < *name)
    }
}

/// Compares without regard to the order of members.
impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        let has = |(name, value): &(Cow<'static, str>, Node)| {
            let found = other.find(name);
            found.is_ok_and(|index| other.0[index].1 == *value)
        };
        self.0.len() == other.0.len() && self.0.iter().all(has)
    }
}

impl From<Value> for Node {
    fn from(value: Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(value),
            Value::Number(number) => Self::Number(number),
            Value::String(string) => Self::String(string.into()),
            Value::Array(items) => Self::List(items.into_iter().map(Self::from).collect()),
            Value::Object(members) => {
                let mut sorted = Members::default();
                for (name, value) in members {
                    sorted.insert(Cow::Owned(name), value.into());
                }
                Self::Map(sorted)
            }
        }
    }
}

impl From<Node> for Value {
    fn from(node: Node) -> Self {
        match node {
            Node::Null => Self::Null,
            Node::Bool(value) => Self::Bool(value),
            Node::Number(number) => Self::Number(number),
            Node::String(string) => Self::String(string.into()),
            Node::List(items) => Self::Array(items.into_iter().map(Self::from).collect()),
            Node::Map(members) => Self::Object(members.into()),
        }
    }
}

impl From<Members> for Map<String, Value> {
    fn from(members: Members) -> Self {
        let members = members.0.into_iter();
        members.map(|(name, node)| (name.into_owned(), node.into())).collect()
    }
}

impl From<Value> for FieldValue {
    fn from(value: Value) -> Self {
        Self(value.into())
    }
}

impl From<FieldValue> for Value {
    fn from(value: FieldValue) -> Self {
        value.0.into()
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Null => serializer.serialize_unit(),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Number(number) => number.serialize(serializer),
            Self::String(string) => serializer.serialize_str(string),
            Self::List(items) => serializer.collect_seq(items),
            Self::Map(members) => members.serialize(serializer),
        }
    }
}

impl Serialize for Members {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfNode;

        impl<'de> Visitor<'de> for OfNode {
            type Value = Node;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON value")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Node, E> {
                Ok(Node::Number(number.into()))
            }

            fn visit_u64<E>(self, number: u64) -> Result<Node, E> {
                Ok(Node::Number(number.into()))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Node, E> {
                let number = Number::from_f64(number);
                number
                    .map(Node::Number)
                    .ok_or_else(|| E::custom("a number in JSON is finite"))
            }

            fn visit_str<E>(self, string: &str) -> Result<Node, E> {
                Ok(Node::String(string.into()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Node::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Node, A::Error> {
                OfMembers.visit_map(members).map(Node::Map)
            }
        }

        deserializer.deserialize_any(OfNode)
    }
}

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(OfMembers)
    }
}

struct OfMembers;

impl<'de> Visitor<'de> for OfMembers {
    type Value = Members;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a map")
    }

    fn visit_unit<E>(self) -> Result<Members, E> {
        Ok(Members::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Members, A::Error> {
        let mut map = Members::default();
        while let Some((name, value)) = members.next_entry::<String, Node>()? {
            map.insert(Cow::Owned(name), value);
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(json: &str) -> Members {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn the_last_member_of_a_name_counts() {
        let members = members(r#"{"b": 1, "a": [null, true, -1, 1.5, "x"], "c": {}, "b": {"z": 2, "y": 3}}"#);
        let json = serde_json::to_string(&members).unwrap();
        assert_eq!(json, r#"{"b":{"z":2,"y":3},"a":[null,true,-1,1.5,"x"],"c":{}}"#);
    }

    #[test]
    fn members_are_the_same_in_any_order() {
        assert_eq!(members(r#"{"a": 1, "b": 2}"#), members(r#"{"b": 2, "a": 1}"#));
        assert_ne!(members(r#"{"a": 1, "b": 2}"#), members(r#"{"b": 2, "c": 1}"#));
        assert_ne!(members(r#"{"a": 1, "b": 2}"#), members(r#"{"b": 1, "a": 1}"#));
        assert_ne!(members(r#"{"a": 1, "b": 2}"#), members(r#"{"b": 2}"#));
    }

    #[test]
    fn values_pass_through_as_they_are() {
        let value = serde_json::json!({"b": [1, -1, 0.5, u64::MAX, "x", null], "a": {"": true}});
        assert_eq!(Value::from(FieldValue::from(value.clone())), value);
        assert_eq!(serde_json::to_value(Node::from(value.clone())).unwrap(), value);
    }

    #[test]
    fn a_member_is_found_among_few_and_among_many() {
        let mut members = Members::default();
        let mut expected = Map::new();
        // Each third one in turn, so that they come in no order; then each once more.
        for round in 0..6 {
            for number in (round % 3..40).step_by(3) {
                let name = format!("name-{number:02}");
                members.insert(Cow::Owned(name.clone()), Node::Number(round.into()));
                expected.insert(name, round.into());
                assert_eq!(Map::from(members.clone()), expected);
            }
        }
        assert_eq!(members.0.len(), 40);
    }
}
