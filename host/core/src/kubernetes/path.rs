//! Parses field paths (`.spec.ports[].port`), and projects an object to the fields that they name.
//!
//! A projection works on JSON text and copies the visible parts byte for byte, so a whole subtree costs one copy.

use std::borrow::{Borrow, Cow};
use std::collections::BTreeMap;
use std::fmt;

pub use pilothouse_description::FieldStep;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::kubernetes::key::Kind;

/// The highest number of steps in a path.
const MAX_STEPS: usize = 32;

/// Metadata that no plugin sees: it changes with every write, or records managers.
const HIDDEN_METADATA: [&str; 2] = ["resourceVersion", "managedFields"];

/// A path such as `.spec.ports[].port` or `.metadata.annotations["a.b/c"]`; `.` is everything.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FieldPath {
    steps: Vec<FieldStep>,
}

/// The text is not a path.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{path:?} is not a field path at byte {position}: {problem}; write it like .spec.ports[].port, .metadata.annotations[\"a.b/c\"], or . for everything"
)]
pub struct PathError {
    path: String,
    position: usize,
    problem: &'static str,
}

impl FieldPath {
    /// Parses a path.
    pub fn parse(path: &str) -> Result<Self, PathError> {
        let fail = |position: usize, problem: &'static str| PathError {
            path: path.to_owned(),
            position,
            problem,
        };
        if path == "." {
            return Ok(Self { steps: Vec::new() });
        }
        let mut steps = Vec::new();
        let mut position = 0;
        while position < path.len() {
            let rest = &path[position..];
            if rest.starts_with("[]") {
                steps.push(FieldStep::Each);
                position += 2;
            } else if let Some(quoted) = rest.strip_prefix("[\"") {
                let end = quoted
                    .find("\"]")
                    .ok_or_else(|| fail(position, "the bracket is not closed"))?;
                steps.push(FieldStep::Field(quoted[..end].to_owned()));
                position += end + 4;
            } else if let Some(name) = rest.strip_prefix('.') {
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 {
                    return Err(fail(position, "a name is missing after the dot"));
                }
                if name[..end].contains(|letter: char| letter.is_whitespace() || "]\"'".contains(letter)) {
                    return Err(fail(position, "a name with other characters goes into [\"\"]"));
                }
                steps.push(FieldStep::Field(name[..end].to_owned()));
                position += end + 1;
            } else {
                return Err(fail(position, "a step begins with a dot or a bracket"));
            }
            if steps.len() > MAX_STEPS {
                return Err(fail(position, "it has more than 32 steps"));
            }
        }
        if !matches!(steps.first(), Some(FieldStep::Field(_))) {
            return Err(fail(0, "it must begin with the name of a field"));
        }
        Ok(Self { steps })
    }

    /// The path of one label.
    pub fn label(key: &str) -> Self {
        let steps = ["metadata", "labels", key];
        Self {
            steps: steps.map(|name| FieldStep::Field(name.to_owned())).into(),
        }
    }

    /// The steps from the root.
    pub fn steps(&self) -> &[FieldStep] {
        &self.steps
    }

    /// The names of the members on the way; none for a step into a list.
    pub fn names(&self) -> impl Iterator<Item = Option<&str>> {
        self.steps.iter().map(|step| match step {
            FieldStep::Field(name) => Some(name.as_str()),
            FieldStep::Each => None,
        })
    }

    /// The value at a path of members; none if a step leads into a list.
    pub fn member_of<'a>(&self, object: &'a Map<String, Value>) -> Option<&'a Value> {
        let mut names = self.names();
        let first = object.get(names.next()??)?;
        names.try_fold(first, |value, name| value.get(name?))
    }

    /// Reports whether this path is `other` or lies below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.steps.starts_with(&other.steps)
    }

    /// The values at this path, one for each way through lists.
    pub fn values<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        let mut found = vec![object];
        for step in &self.steps {
            found = match step {
                FieldStep::Field(name) => found.into_iter().filter_map(|value| value.get(name)).collect(),
                FieldStep::Each => found.into_iter().filter_map(Value::as_array).flatten().collect(),
            };
        }
        found
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.steps.is_empty() {
            return formatter.write_str(".");
        }
        for step in &self.steps {
            match step {
                FieldStep::Each => formatter.write_str("[]")?,
                FieldStep::Field(name) if name.contains(['.', '[', ']', '"', '/', ' ']) => {
                    write!(formatter, "[\"{name}\"]")?;
                }
                FieldStep::Field(name) => write!(formatter, ".{name}")?,
            }
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for FieldPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&Cow::<'de, str>::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for FieldPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl JsonSchema for FieldPath {
    fn schema_name() -> Cow<'static, str> {
        "FieldPath".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "description": "A field path: .spec.ports[].port, .metadata.annotations[\"a.b/c\"]; a whole subtree by its root; . is everything.",
            "pattern": "^\\..*$"
        })
    }
}

/// The visible part of an object: the union of field paths, and always the metadata.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Projection {
    root: Node,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Node {
    whole: bool,
    fields: BTreeMap<String, Node>,
    each: Option<Box<Node>>,
}

impl Node {
    fn add(&mut self, steps: &[FieldStep]) {
        if self.whole {
            return;
        }
        match steps.split_first() {
            None => {
                *self = Self {
                    whole: true,
                    ..Self::default()
                }
            }
            Some((FieldStep::Field(name), rest)) => self.fields.entry(name.clone()).or_default().add(rest),
            Some((FieldStep::Each, rest)) => self.each.get_or_insert_default().add(rest),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        self.whole
            || (!other.whole
                && other
                    .fields
                    .iter()
                    .all(|(name, node)| self.fields.get(name).is_some_and(|own| own.covers(node)))
                && other
                    .each
                    .as_ref()
                    .is_none_or(|node| self.each.as_ref().is_some_and(|own| own.covers(node))))
    }

    fn merge(&mut self, other: &Self) {
        if self.whole {
            return;
        }
        if other.whole {
            *self = other.clone();
            return;
        }
        for (name, node) in &other.fields {
            self.fields.entry(name.clone()).or_default().merge(node);
        }
        if let Some(node) = &other.each {
            self.each.get_or_insert_default().merge(node);
        }
    }
}

impl Projection {
    /// Shows the metadata and the fields at the paths.
    pub fn new<'a>(paths: impl IntoIterator<Item = &'a FieldPath>) -> Self {
        let mut root = Node::default();
        for path in paths {
            root.add(path.steps());
        }
        Self { root }
    }

    /// Shows everything.
    pub fn whole() -> Self {
        Self {
            root: Node {
                whole: true,
                ..Node::default()
            },
        }
    }

    /// Reports whether nothing but the metadata is shown.
    pub fn is_metadata_only(&self) -> bool {
        !self.root.whole && self.root.each.is_none() && self.root.fields.keys().all(|name| name == "metadata")
    }

    /// Reports whether this projection shows everything that `other` shows.
    pub fn covers(&self, other: &Self) -> bool {
        self.root.covers(&other.root)
    }

    /// Shows the fields of both.
    #[must_use]
    pub fn union(mut self, other: &Self) -> Self {
        self.root.merge(&other.root);
        self
    }

    /// Reports whether the values at a path are shown.
    pub fn shows(&self, path: &FieldPath) -> bool {
        let asked = Self::new([path]);
        self.covers(&asked) || matches!(path.steps().first(), Some(FieldStep::Field(name)) if name == "metadata")
    }

    /// The visible part of an object's JSON text: the kind, the metadata without resourceVersion and managedFields, and
    /// the projected fields in the order of the text.
    ///
    /// The kind is written from what is known, because the items of a list do not carry it.
    pub fn project(&self, object: &RawValue, kind: &Kind) -> Result<String, serde_json::Error> {
        let Members(mut members) = serde_json::from_str(object.get())?;
        let metadata = members.iter().position(|(name, _)| name == "metadata");
        let metadata = metadata.map(|position| members.remove(position).1);
        let metadata: Option<Members<'_>> = metadata.map(|text| serde_json::from_str(text.get())).transpose()?;
        self.project_parts(metadata.as_ref().map(|it| it.0.as_slice()), &members, kind)
    }

    /// The same for an object that has been split already: the members of its metadata, and all others.
    pub fn project_parts(
        &self,
        metadata: Option<&[Member<'_>]>,
        others: &[Member<'_>],
        kind: &Kind,
    ) -> Result<String, serde_json::Error> {
        let whole = Node {
            whole: true,
            ..Node::default()
        };
        let length = |members: &[Member<'_>]| -> usize {
            let lengths = members.iter().map(|(name, text)| name.len() + text.get().len() + 4);
            lengths.sum()
        };
        let shown = if self.root.whole { length(others) } else { 0 };
        let mut text = String::with_capacity(128 + metadata.map_or(0, length) + shown);
        let mut first = true;
        text.push('{');
        push_name(&mut text, &mut first, "apiVersion");
        push_quoted(&mut text, &kind.api_version());
        push_name(&mut text, &mut first, "kind");
        push_quoted(&mut text, &kind.kind);
        if let Some(metadata) = metadata {
            push_name(&mut text, &mut first, "metadata");
            project_metadata(metadata, &mut text);
        }
        for (name, value) in others.iter().filter(|(name, _)| name != "apiVersion" && name != "kind") {
            let node = if self.root.whole {
                Some(&whole)
            } else {
                self.root.fields.get(name.as_ref())
            };
            if let Some(node) = node {
                push_name(&mut text, &mut first, name);
                project_node(node, value, &mut text)?;
            }
        }
        text.push('}');
        Ok(text)
    }
}

/// A member of a JSON object: its name, and its value as text.
pub type Member<'a> = (Cow<'a, str>, &'a RawValue);

/// The members of a JSON object in their order, values left as text.
struct Members<'a>(Vec<Member<'a>>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::with_capacity(map.size_hint().unwrap_or(8));
                while let Some((BorrowedText(name), value)) = map.next_entry::<BorrowedText<'de>, &RawValue>()? {
                    members.push((name, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

/// A member's name, borrowed where the text has no escapes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub(crate) struct BorrowedText<'a>(pub(crate) Cow<'a, str>);

impl Borrow<str> for BorrowedText<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for BorrowedText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = BorrowedText<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a member's name")
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Self::Value, E> {
                Ok(BorrowedText(Cow::Borrowed(name)))
            }

            fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
                Ok(BorrowedText(Cow::Owned(name.to_owned())))
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

fn push_name(text: &mut String, first: &mut bool, name: &str) {
    if !std::mem::take(first) {
        text.push(',');
    }
    push_quoted(text, name);
    text.push(':');
}

fn push_quoted(text: &mut String, value: &str) {
    // Nearly every name is like this, and need not be copied on the way.
    if value.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        text.push('"');
        text.push_str(value);
        text.push('"');
    } else {
        text.push_str(&serde_json::to_string(value).expect("a string is always JSON"));
    }
}

fn project_metadata(members: &[Member<'_>], text: &mut String) {
    text.push('{');
    let mut first = true;
    for (name, value) in members {
        if !HIDDEN_METADATA.contains(&name.as_ref()) {
            push_name(text, &mut first, name);
            text.push_str(value.get());
        }
    }
    text.push('}');
}

fn project_node(node: &Node, value: &RawValue, text: &mut String) -> Result<(), serde_json::Error> {
    if node.whole {
        text.push_str(value.get());
        return Ok(());
    }
    match value.get().as_bytes().first() {
        Some(b'{') => {
            let members: Members<'_> = serde_json::from_str(value.get())?;
            text.push('{');
            let mut first = true;
            for (name, value) in members.0 {
                if let Some(node) = node.fields.get(name.as_ref()) {
                    push_name(text, &mut first, &name);
                    project_node(node, value, text)?;
                }
            }
            text.push('}');
        }
        Some(b'[') => {
            let items: Vec<&RawValue> = serde_json::from_str(value.get())?;
            text.push('[');
            for (index, item) in items.into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                match &node.each {
                    Some(node) => project_node(node, item, text)?,
                    None => text.push_str("null"),
                }
            }
            text.push(']');
        }
        // A scalar in the middle of a path: the object does not have the declared structure, and nothing of it was
        // declared.
        _ => text.push_str("null"),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn path(text: &str) -> FieldPath {
        FieldPath::parse(text).unwrap()
    }

    fn project(paths: &[&str], object: &str) -> String {
        let paths: Vec<_> = paths.iter().map(|it| path(it)).collect();
        let raw = RawValue::from_string(object.to_owned()).unwrap();
        Projection::new(&paths)
            .project(&raw, &Kind::new("", "v1", "S"))
            .unwrap()
    }

    #[test]
    fn paths_survive_printing() {
        for text in [
            ".",
            ".spec",
            ".spec.ports[].port",
            ".metadata.annotations[\"a.b/c\"]",
            ".a[][].b",
        ] {
            assert_eq!(path(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_path_is_refused_with_an_example() {
        for text in [
            "",
            "spec",
            ".spec.",
            ".spec[",
            ".spec[\"a",
            "..",
            "[].a",
            ".a b",
            ".a[0]",
        ] {
            let error = FieldPath::parse(text).unwrap_err().to_string();
            assert!(error.contains(".spec.ports[].port"), "{error}");
        }
    }

    const OBJECT: &str = r#"{"kind":"S","apiVersion":"v1","metadata":{"name":"a","resourceVersion":"7","managedFields":[],"labels":{"x":"y"}},"spec":{"ports":[{"port":80,"name":"w"},{"port":81}],"type":"T"},"status":{"a":1}}"#;

    #[test]
    fn metadata_is_always_visible_except_volatile_members() {
        assert_eq!(
            project(&[], OBJECT),
            r#"{"apiVersion":"v1","kind":"S","metadata":{"name":"a","labels":{"x":"y"}}}"#
        );
    }

    #[test]
    fn only_declared_fields_are_visible() {
        assert_eq!(
            project(&[".spec.ports[].port"], OBJECT),
            r#"{"apiVersion":"v1","kind":"S","metadata":{"name":"a","labels":{"x":"y"}},"spec":{"ports":[{"port":80},{"port":81}]}}"#
        );
        assert!(project(&["."], OBJECT).contains(r#""status":{"a":1}"#));
        assert!(!project(&["."], OBJECT).contains("resourceVersion"));
    }

    #[test]
    fn a_scalar_in_the_way_shows_nothing() {
        assert!(!project(&[".spec.type.deeper"], OBJECT).contains("\"T\""));
    }

    #[test]
    fn covering_follows_subtrees_and_unions() {
        let spec = Projection::new(&[path(".spec")]);
        let port = Projection::new(&[path(".spec.ports[].port")]);
        let status = Projection::new(&[path(".status")]);
        assert!(spec.covers(&port) && !port.covers(&spec));
        let both = port.clone().union(&status);
        assert!(both.covers(&port) && both.covers(&status) && !both.covers(&spec));
        assert!(both.shows(&path(".metadata.labels")) && !both.shows(&path(".spec.type")));
        assert!(Projection::whole().covers(&both));
    }

    #[test]
    fn values_are_found_through_lists() {
        let object = json!({"a": [{"b": 1}, {"c": 2}, {"b": 3}]});
        assert_eq!(path(".a[].b").values(&object), [&json!(1), &json!(3)]);
    }
}
