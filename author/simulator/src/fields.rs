//! Sets of field paths (FieldsV1): their algebra, their serialised form, and the text of paths.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use serde_json::{Map, Value};

/// A scalar that can be compared and ordered, numbers before strings before booleans before the rest.
#[derive(Debug, Clone)]
pub(crate) struct Scalar(pub(crate) Value);

impl Scalar {
    fn rank(&self) -> u8 {
        match self.0 {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        }
    }
}

impl Ord for Scalar {
    fn cmp(&self, other: &Self) -> Ordering {
        match (&self.0, &other.0) {
            (Value::Number(one), Value::Number(two)) => one
                .as_f64()
                .unwrap_or_default()
                .total_cmp(&two.as_f64().unwrap_or_default()),
            (Value::String(one), Value::String(two)) => one.cmp(two),
            (Value::Bool(one), Value::Bool(two)) => one.cmp(two),
            (one, two) => self
                .rank()
                .cmp(&other.rank())
                .then_with(|| one.to_string().cmp(&two.to_string())),
        }
    }
}

impl PartialOrd for Scalar {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scalar {}

/// One step of a path. The order of the variants is the order in which members are listed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    Field(String),
    /// An item of a map list by its keys, sorted by name.
    Key(Vec<(String, Scalar)>),
    /// An item of a set list.
    Value(Scalar),
    Index(usize),
}

impl Element {
    pub(crate) fn field(name: &str) -> Self {
        Self::Field(name.to_owned())
    }

    fn serialise(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = keys
                    .iter()
                    .map(|(name, value)| (name.clone(), value.0.clone()))
                    .collect();
                format!("k:{}", Value::Object(keys))
            }
            Self::Value(value) => format!("v:{}", value.0),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        match kind {
            "f" => Some(Self::field(rest)),
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).ok()?;
                Some(Self::Key(
                    keys.into_iter().map(|(name, value)| (name, Scalar(value))).collect(),
                ))
            }
            "v" => serde_json::from_str(rest).ok().map(|value| Self::Value(Scalar(value))),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(formatter, ".{name}"),
            Self::Key(keys) => {
                let keys: Vec<String> = keys.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                write!(formatter, "[{}]", keys.join(","))
            }
            Self::Value(value) => write!(formatter, "[={}]", value.0),
            Self::Index(index) => write!(formatter, "[{index}]"),
        }
    }
}

/// A set of paths. Being a parent of a member does not make a path a member.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Set {
    pub(crate) members: BTreeSet<Element>,
    pub(crate) children: BTreeMap<Element, Self>,
}

impl Set {
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            // The whole object is nobody's.
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    /// Creates a set of field names, for the tables of fields that requests may not own.
    pub(crate) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut result = self.clone();
        result.extend(other);
        result
    }

    pub(crate) fn extend(&mut self, other: &Self) {
        self.members.extend(other.members.iter().cloned());
        for (element, child) in &other.children {
            self.children.entry(element.clone()).or_default().extend(child);
        }
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let both = child.intersection(other.children.get(element)?);
            (!both.is_empty()).then(|| (element.clone(), both))
        });
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Members of this set that are not members of the other one; a parent in the other one takes no children away.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(element, child)| {
            let rest = match other.children.get(element) {
                Some(taken) => child.difference(taken),
                None => child.clone(),
            };
            (!rest.is_empty()).then(|| (element.clone(), rest))
        });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Like [`Self::difference`], but a member of the other set takes its whole subtree away.
    pub(crate) fn difference_with_subtrees(&self, other: &Self) -> Self {
        let children = self
            .children
            .iter()
            .filter(|(element, _)| !other.members.contains(element))
            .filter_map(|(element, child)| {
                let rest = match other.children.get(element) {
                    Some(taken) => child.difference_with_subtrees(taken),
                    None => child.clone(),
                };
                (!rest.is_empty()).then(|| (element.clone(), rest))
            });
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: children.collect(),
        }
    }

    /// Returns the set below an element.
    pub(crate) fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|child| !child.is_empty())
    }

    /// Every member, parents before children, members before subtrees.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        let mut paths = Vec::new();
        self.collect(&mut Vec::new(), &mut paths);
        paths
    }

    fn collect(&self, prefix: &mut Vec<Element>, into: &mut Vec<Vec<Element>>) {
        for member in &self.members {
            prefix.push(member.clone());
            into.push(prefix.clone());
            prefix.pop();
        }
        for (element, child) in &self.children {
            prefix.push(element.clone());
            child.collect(prefix, into);
            prefix.pop();
        }
    }

    /// FieldsV1.
    pub(crate) fn serialise(&self) -> Value {
        let mut object = Map::new();
        for member in &self.members {
            object.insert(member.serialise(), Value::Object(Map::new()));
        }
        for (element, child) in &self.children {
            if child.is_empty() {
                continue;
            }
            let Value::Object(mut inner) = child.serialise() else {
                continue;
            };
            if self.members.contains(element) {
                inner.insert(".".to_owned(), Value::Object(Map::new()));
            }
            object.insert(element.serialise(), Value::Object(inner));
        }
        Value::Object(object)
    }

    /// Reads FieldsV1; None when it is not an object or has an element that does not parse.
    pub(crate) fn parse(text: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (name, inner) in text.as_object()? {
            // Elements of a kind that only a later server knows are passed over.
            if name == "." || !["f", "k", "v", "i"].contains(&name.split_once(':')?.0) {
                continue;
            }
            let element = Element::parse(name)?;
            let inner_object = inner.as_object()?;
            if inner_object.is_empty() || inner_object.contains_key(".") {
                set.members.insert(element.clone());
            }
            if inner_object.keys().any(|key| key != ".") {
                set.children.insert(element, Self::parse(inner)?);
            }
        }
        Some(set)
    }
}

/// A path as error messages show it: `.spec.ports[port=80,protocol="TCP"].name`.
pub(crate) fn shown(path: &[Element]) -> String {
    let mut text = String::new();
    for element in path {
        write!(text, "{element}").expect("writing into a string does not fail");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn set(text: &Value) -> Set {
        Set::parse(text).expect("the test's set parses")
    }

    #[test]
    fn a_set_survives_serialisation() {
        let text = json!({"f:spec": {"f:ports": {".": {}, "k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}}}},
            "f:metadata": {"f:finalizers": {"v:\"a/b\"": {}}}});
        assert_eq!(set(&text).serialise(), text);
    }

    #[test]
    fn a_difference_keeps_children_of_what_is_taken_away() {
        let whole = set(&json!({"f:a": {".": {}, "f:b": {}}}));
        let parent = set(&json!({"f:a": {}}));
        assert_eq!(whole.difference(&parent), set(&json!({"f:a": {"f:b": {}}})));
        assert!(whole.difference_with_subtrees(&parent).is_empty());
    }

    #[test]
    fn paths_are_shown_like_the_server_does() {
        let keyed = set(&json!({"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {"f:name": {}}}}));
        let shown: Vec<String> = keyed.paths().iter().map(|path| shown(path)).collect();
        assert_eq!(shown, [".ports[port=80,protocol=\"TCP\"].name"]);
    }
}
