//! Reads `openapi.json`: the types that are built, and the argument of each field's setter.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::GROUPS;

/// The schemas by their names.
pub type Schemas = BTreeMap<String, Schema>;

/// Part of a schema that is kept.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Schema {
    pub description: String,
    pub properties: BTreeMap<String, Schema>,
    pub required: Vec<String>,
    #[serde(rename = "type")]
    pub type_: String,
    pub format: String,
    #[serde(rename = "enum")]
    pub values: Vec<String>,
    pub items: Option<Box<Schema>>,
    #[serde(rename = "additionalProperties")]
    pub entries: Option<Box<Schema>>,
    #[serde(rename = "$ref")]
    pub reference: Option<String>,
    #[serde(rename = "x-kubernetes-group-version-kind")]
    pub kind: Option<Kind>,
}

/// The kind of an object.
#[derive(Clone, Debug, Deserialize)]
pub struct Kind {
    pub group: String,
    pub version: String,
    #[serde(rename = "kind")]
    pub name: String,
}

/// Type of a setter's argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Type {
    /// A type that the SDK implements `Field` for, or another builder.
    One(String),
    /// Several of one type.
    List(String),
    /// Several of one type by their names.
    Map(String),
}

/// The types that are built: objects with members.
pub fn is_built(schema: &Schema) -> bool {
    !schema.properties.is_empty()
}

/// Returns the type of the argument of a field's setter.
pub fn type_of(schema: &Schema, schemas: &Schemas) -> Type {
    if let Some(items) = &schema.items {
        return match type_of(items, schemas) {
            Type::One(item) => Type::List(item),
            Type::List(_) | Type::Map(_) => json(),
        };
    }
    if let Some(entries) = &schema.entries {
        return match type_of(entries, schemas) {
            Type::One(entry) => Type::Map(entry),
            Type::List(_) | Type::Map(_) => json(),
        };
    }
    if let Some(reference) = &schema.reference {
        if reference.ends_with(".IntOrString") {
            return Type::One("IntOrString".to_owned());
        }
        if reference.ends_with(".Quantity") {
            return Type::One("String".to_owned());
        }
        let referred = &schemas[reference];
        return if is_built(referred) {
            Type::One(path_of(reference))
        } else {
            type_of(referred, schemas)
        };
    }
    let scalar = match (schema.type_.as_str(), schema.format.as_str()) {
        ("string", _) => "String",
        ("boolean", _) => "bool",
        ("integer", "int64") => "i64",
        ("integer", _) => "i32",
        ("number", _) => "f64",
        _ => return json(),
    };
    Type::One(scalar.to_owned())
}

/// Returns `true` if a required field of this type is an argument of the constructor: a text or a number, as names and
/// ports are.
pub fn is_identity(type_: &Type) -> bool {
    matches!(type_, Type::One(name) if ["String", "i32", "IntOrString"].contains(&name.as_str()))
}

fn json() -> Type {
    Type::One("Value".to_owned())
}

/// The path of a type from its module's file: `super::core::v1::Container`.
pub fn path_of(reference: &str) -> String {
    let name = reference.rsplit('.').next().expect("a name has a last part");
    let group = GROUPS
        .iter()
        .find(|group| reference.strip_prefix(group.prefix) == Some(name))
        .unwrap_or_else(|| panic!("{reference} is of no group that is built"));
    format!("{}::{name}", group.module)
}
