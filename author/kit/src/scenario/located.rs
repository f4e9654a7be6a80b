//! YAML document in which each value and each member's name knows its position. `file` interprets the values, and
//! `mistake` words the errors.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use serde_saphyr::{Location, Spanned};

/// A line and a column, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u64,
    /// The column, in characters.
    pub column: u64,
}

impl From<Location> for Place {
    fn from(location: Location) -> Self {
        Self {
            line: location.line(),
            column: location.column(),
        }
    }
}

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Located {
    pub(super) place: Place,
    pub(super) node: Node,
}

/// Form of a value.
#[derive(Debug)]
pub(super) enum Node {
    /// Neither a list nor a mapping.
    Scalar(Value),
    List(Vec<Located>),
    /// In the order in which the members are written.
    Map(Vec<(Name, Located)>),
}

/// Name of a member, and its position.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) text: String,
    pub(super) place: Place,
}

impl Located {
    /// The value without its places.
    pub(super) fn value(&self) -> Value {
        match &self.node {
            Node::Scalar(value) => value.clone(),
            Node::List(items) => items.iter().map(Self::value).collect(),
            Node::Map(members) => {
                let members = members.iter().map(|(name, value)| (name.text.clone(), value.value()));
                Value::Object(members.collect::<Map<_, _>>())
            }
        }
    }

    /// A member of a mapping.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        self.entry(name).map(|(_, value)| value)
    }

    /// A member of a mapping with its name.
    pub(super) fn entry(&self, name: &str) -> Option<&(Name, Self)> {
        match &self.node {
            Node::Map(members) => members.iter().find(|(its, _)| its.text == name),
            _ => None,
        }
    }

    /// The items of a list; of anything else none.
    pub(super) fn items(&self) -> &[Self] {
        match &self.node {
            Node::List(items) => items,
            _ => &[],
        }
    }
}

impl<'de> Deserialize<'de> for Located {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Node>::deserialize(deserializer)?;
        Ok(Self {
            place: spanned.referenced.into(),
            node: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Node, E> {
        Ok(Node::Scalar(Value::Null))
    }

    fn visit_none<E: de::Error>(self) -> Result<Node, E> {
        self.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        Node::deserialize(deserializer)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Scalar(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = sequence.next_element()? {
            items.push(item);
        }
        Ok(Node::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members = Vec::new();
        while let Some(name) = map.next_key::<Spanned<String>>()? {
            let name = Name {
                place: name.referenced.into(),
                text: name.value,
            };
            members.push((name, map.next_value()?));
        }
        Ok(Node::Map(members))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const TEXT: &str = "a: 1\nb:\n  - {c: x, d: null}\n  - true\n  - 1.5\ne: \"2\"\n";

    #[test]
    fn each_value_and_each_name_has_its_place() {
        let root: Located = serde_saphyr::from_str(TEXT).unwrap();
        let place = |line, column| Place { line, column };
        let items = root.member("b").unwrap().items();
        assert_eq!(items[0].entry("c").map(|(name, _)| name.place), Some(place(3, 6)));
        assert_eq!(items[0].member("c").map(|value| value.place), Some(place(3, 9)));
        assert_eq!(items[1].place, place(4, 5));
        assert_eq!(root.entry("e").map(|(name, _)| name.place), Some(place(6, 1)));
    }

    #[test]
    fn the_value_is_the_one_that_is_read_without_places() {
        let root: Located = serde_saphyr::from_str(TEXT).unwrap();
        assert_eq!(root.value(), serde_saphyr::from_str::<Value>(TEXT).unwrap());
        assert_eq!(root.value()["b"], json!([{"c": "x", "d": null}, true, 1.5]));
    }
}
