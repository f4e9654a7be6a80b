//! View of a schema for field ownership: which parts are leaves, which lists are keyed and by which keys.

use serde_json::Value;

use crate::fields::{Element, Scalar};
use crate::schema::{Additional, Listing, Node, Schema, Shape};

/// The type at one place of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Type<'a> {
    Of {
        schema: &'a Schema,
        /// `x-kubernetes-map-type` where a definition is referred to; overrides the definition's own.
        atomic: Option<bool>,
        /// An ancestor says `x-kubernetes-preserve-unknown-fields`.
        preserve: bool,
    },
    /// Unknown, maps are granular and lists are leaves.
    Deduced,
    /// Unknown, everything is a leaf.
    Untyped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScalarKind {
    Any,
    Text,
    Number,
    Boolean,
}

/// Treatment of a value of a type.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Atom<'a> {
    Map { atomic: bool },
    Scalar(ScalarKind),
    List(&'a Listing),
}

impl Atom<'_> {
    /// Returns `true` if two values are of one form, so that they can be walked together.
    pub(crate) fn same_form(self, other: Self) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }
}

static ATOMIC: Listing = Listing::Atomic;

impl<'a> Type<'a> {
    pub(crate) fn of(schema: &'a Schema) -> Self {
        Self::Of {
            schema,
            atomic: None,
            preserve: schema.preserve_unknown,
        }
    }

    fn node(node: &'a Node, atomic: Option<bool>, inherited: bool) -> Self {
        let schema = node.get();
        if schema.is_named("runtime.RawExtension") {
            return Self::Untyped;
        }
        // A definition is parsed on its own: it knows nothing of who refers to it.
        let inherited = inherited && matches!(node, Node::Inline(_));
        Self::Of {
            schema,
            atomic,
            preserve: inherited || schema.preserve_unknown,
        }
    }

    /// Treats the value as one of the forms that the type allows.
    pub(crate) fn atom(self, value: Option<&Value>) -> Atom<'a> {
        let (schema, atomic) = match self {
            Self::Of { schema, atomic, .. } => (schema, atomic.or(schema.atomic).unwrap_or(false)),
            Self::Deduced => return any_atom(value, false, &ATOMIC),
            Self::Untyped => return any_atom(value, true, &ATOMIC),
        };
        if schema.is_named("api.resource.Quantity") {
            return Atom::Scalar(ScalarKind::Any);
        }
        match schema.shape {
            Shape::Any => any_atom(value, atomic, &schema.listing),
            Shape::Object => Atom::Map { atomic },
            Shape::Array => Atom::List(&schema.listing),
            Shape::Integer | Shape::Number => Atom::Scalar(ScalarKind::Number),
            Shape::Boolean => Atom::Scalar(ScalarKind::Boolean),
            Shape::String => match schema.format.as_deref() {
                None | Some("" | "byte") => Atom::Scalar(ScalarKind::Text),
                Some(_) => Atom::Scalar(ScalarKind::Any),
            },
        }
    }

    /// The type of a member; None when the schema does not declare it.
    pub(crate) fn member(self, name: &str) -> Option<Self> {
        let Self::Of { schema, preserve, .. } = self else {
            return Some(self);
        };
        if let Some(property) = schema.properties.get(name) {
            return Some(Self::node(&property.node, property.atomic, preserve));
        }
        match &schema.additional {
            Additional::Unsaid if preserve || schema.properties.is_empty() => Some(Self::Deduced),
            Additional::Unsaid | Additional::Forbidden => None,
            Additional::Anything => Some(Self::Deduced),
            Additional::Of(node) => Some(Self::node(node, None, preserve)),
        }
    }

    /// Returns `true` if the member is a declared property, not a key of a map.
    pub(crate) fn declares(self, name: &str) -> bool {
        matches!(self, Self::Of { schema, .. } if schema.properties.contains_key(name))
    }

    /// The type of a list's items.
    pub(crate) fn item(self) -> Self {
        match self {
            Self::Of { schema, preserve, .. } => schema
                .items
                .as_ref()
                .map_or(Self::Untyped, |items| Self::node(items, None, preserve)),
            Self::Deduced | Self::Untyped => Self::Untyped,
        }
    }

    /// The path element of an item of a set or map list, or why it has none.
    pub(crate) fn element(self, listing: &Listing, item: &Value) -> Result<Element, String> {
        match listing {
            Listing::Atomic => Err("invalid indexing of non-associative list".to_owned()),
            Listing::Set => match item {
                Value::Object(_) => Err("associative list without keys has an element that's a map type".to_owned()),
                Value::Array(_) => Err("not supported: associative list with lists as elements".to_owned()),
                Value::Null => Err("associative list without keys has an element that's an explicit null".to_owned()),
                scalar => Ok(Element::Value(Scalar(scalar.clone()))),
            },
            Listing::Map(names) => self.keyed_element(names, item),
        }
    }

    fn keyed_element(self, names: &[String], item: &Value) -> Result<Element, String> {
        let members = match item {
            Value::Object(members) => members,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut keys: Vec<(String, Scalar)> = Vec::new();
        for name in names {
            if let Some(value) = members.get(name).or_else(|| self.item().default_of(name)) {
                keys.push((name.clone(), Scalar(value.clone())));
            }
        }
        if keys.is_empty() {
            let names: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] (and doesn't have default \
                 values for any key fields)",
                names.join(" ")
            ));
        }
        keys.sort();
        Ok(Element::Key(keys))
    }

    fn default_of(self, name: &str) -> Option<&'a Value> {
        let Self::Of { schema, .. } = self else { return None };
        schema
            .properties
            .get(name)?
            .default
            .as_ref()
            .filter(|default| !default.is_null())
    }
}

fn any_atom<'a>(value: Option<&Value>, atomic: bool, listing: &'a Listing) -> Atom<'a> {
    match value {
        None | Some(Value::Null | Value::Object(_)) => Atom::Map { atomic },
        Some(Value::Array(_)) => Atom::List(listing),
        Some(_) => Atom::Scalar(ScalarKind::Any),
    }
}

/// Equality that does not tell 1 from 1.0.
pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one
                    .iter()
                    .all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        _ => one == other,
    }
}
