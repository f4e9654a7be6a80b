//! Reads from a kind's OpenAPI v3 schema how server-side apply merges its values: the keyed lists with their keys, and
//! the values that are held only as a whole. Fetching a schema is left to host/cluster.
//!
//! The schema's members are those from which the server builds its own types:

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::kubernetes::key::Kind;

const REFERENCE: &str = "#/components/schemas/";

/// An arbitrary object within another one. It is held as a whole, though its schema does not say so.
const RAW_EXTENSION: &str = ".runtime.RawExtension";

/// The types of one kind.
#[derive(Clone, Debug, Default)]
pub struct Types {
    root: Shape,
    /// Shapes by the name of their definition; types may contain themselves.
    named: HashMap<String, Shape>,
}

/// The merge rule of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Shape {
    /// A scalar, or a value that is held as a whole.
    Leaf,
    /// An object whose members are held one by one.
    Object {
        /// The declared members.
        members: BTreeMap<String, Shape>,
        /// Every other member.
        others: Option<Box<Shape>>,
    },
    /// A list that is held as a whole.
    AtomicList,
    /// A list of scalars, merged as a set.
    Set,
    /// A list of objects with keys.
    Map {
        /// The key members, with their defaults.
        keys: Vec<(String, Option<Value>)>,
        /// The items.
        item: Box<Shape>,
    },
    /// A definition by its name.
    Named(String),
    /// An undescribed value: objects are merged, lists are held as a whole.
    #[default]
    Free,
}

/// The reason why a schema cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TypesError {
    /// The document is not an OpenAPI v3 document.
    #[error("the OpenAPI document cannot be read: {0}")]
    Garbled(#[from] serde_json::Error),
    /// The kind is not in the document of its version.
    #[error("the OpenAPI document does not describe {0}")]
    Unknown(Kind),
}

impl Types {
    /// Reads the types of a kind out of the OpenAPI v3 document of its group and version.
    pub fn parse(document: &str, kind: &Kind) -> Result<Self, TypesError> {
        let document: Document<'_> = serde_json::from_str(document)?;
        let schemas = document.components.schemas;
        let mut root = None;
        for (name, text) in &schemas {
            let head: SchemaHead = serde_json::from_str(text.get())?;
            if head.kinds.contains(kind) {
                root = Some(name.clone());
                break;
            }
        }
        let root = root.ok_or_else(|| TypesError::Unknown(kind.clone()))?;
        let mut named = HashMap::new();
        let mut wanted = vec![root.clone()];
        while let Some(name) = wanted.pop() {
            if named.contains_key(&name) {
                continue;
            }
            if name.ends_with(RAW_EXTENSION) {
                named.insert(name, Shape::Leaf);
                continue;
            }
            let Some(text) = schemas.get(&name) else { continue };
            let schema: Schema = serde_json::from_str(text.get())?;
            let shape = schema.shape(&schemas, &mut wanted);
            named.insert(name, shape);
        }
        Ok(Self {
            root: Shape::Named(root),
            named,
        })
    }

    /// The shape of the whole object.
    pub fn root(&self) -> &Shape {
        self.resolve(&self.root)
    }

    /// The shape of an object's member, or of an item of a keyed list.
    pub fn resolve<'a>(&'a self, shape: &'a Shape) -> &'a Shape {
        let mut shape = shape;
        // A definition that is nothing but another's name is followed; no server nests them this deep.
        for _ in 0..8 {
            match shape {
                Shape::Named(name) => shape = self.named.get(name).unwrap_or(&Shape::Free),
                other => return other,
            }
        }
        &Shape::Free
    }

    /// The shape of a member.
    pub fn member<'a>(&'a self, shape: &'a Shape, name: &str) -> &'a Shape {
        match shape {
            Shape::Object { members, others } => {
                let member = members.get(name).or(others.as_deref());
                member.map_or(&Shape::Free, |member| self.resolve(member))
            }
            _ => &Shape::Free,
        }
    }
}

impl Shape {
    /// Reports whether a member is declared, and not a key of a map.
    pub fn declares(&self, name: &str) -> bool {
        matches!(self, Self::Object { members, .. } if members.contains_key(name))
    }
}

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(borrow)]
    components: Components<'a>,
}

#[derive(Deserialize)]
struct Components<'a> {
    #[serde(borrow, default)]
    schemas: HashMap<String, &'a RawValue>,
}

#[derive(Deserialize)]
struct SchemaHead {
    #[serde(rename = "x-kubernetes-group-version-kind", default)]
    kinds: Vec<Kind>,
}

/// The members of a schema that determine the merge rule.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Schema {
    #[serde(rename = "$ref")]
    reference: Option<String>,
    all_of: Vec<Schema>,
    #[serde(rename = "type")]
    kind: Option<Value>,
    properties: BTreeMap<String, Schema>,
    additional_properties: Option<Additional>,
    items: Option<Box<Schema>>,
    default: Option<Value>,
    #[serde(rename = "x-kubernetes-list-type")]
    list_type: Option<String>,
    #[serde(rename = "x-kubernetes-list-map-keys")]
    list_map_keys: Vec<String>,
    #[serde(rename = "x-kubernetes-map-type")]
    map_type: Option<String>,
    #[serde(rename = "x-kubernetes-patch-strategy")]
    patch_strategy: Option<String>,
    #[serde(rename = "x-kubernetes-patch-merge-key")]
    patch_merge_key: Option<String>,
    #[serde(rename = "x-kubernetes-preserve-unknown-fields")]
    preserve_unknown_fields: bool,
    #[serde(rename = "x-kubernetes-int-or-string")]
    int_or_string: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Additional {
    Of(Box<Schema>),
    /// `true` or `false`.
    Said(serde::de::IgnoredAny),
}

impl Schema {
    /// The definition to which this schema only refers, perhaps with a default beside it.
    fn referred(&self) -> Option<&str> {
        let direct = self.reference.as_deref();
        let wrapped = || match self.all_of.as_slice() {
            [single] => single.reference.as_deref(),
            _ => None,
        };
        direct.or_else(wrapped)?.strip_prefix(REFERENCE)
    }

    /// The shape. Definitions that it refers to are added to `wanted`.
    fn shape(&self, schemas: &HashMap<String, &RawValue>, wanted: &mut Vec<String>) -> Shape {
        let atomic = self.map_type.as_deref() == Some("atomic");
        if atomic || self.int_or_string {
            return Shape::Leaf;
        }
        if let Some(name) = self.referred() {
            wanted.push(name.to_owned());
            return Shape::Named(name.to_owned());
        }
        match self.kind.as_ref().and_then(Value::as_str) {
            Some("array") => self.list(schemas, wanted),
            Some("object") | None if self.has_members() => {
                let members = self.properties.iter();
                let members = members
                    .map(|(name, member)| (name.clone(), member.shape(schemas, wanted)))
                    .collect();
                let others = match &self.additional_properties {
                    Some(Additional::Of(schema)) => Some(Box::new(schema.shape(schemas, wanted))),
                    Some(Additional::Said(_)) | None => None,
                };
                Shape::Object { members, others }
            }
            Some("object") | None => Shape::Free,
            Some(_) if self.preserve_unknown_fields => Shape::Free,
            Some(_) => Shape::Leaf,
        }
    }

    fn has_members(&self) -> bool {
        !self.properties.is_empty() || matches!(self.additional_properties, Some(Additional::Of(_)))
    }

    fn list(&self, schemas: &HashMap<String, &RawValue>, wanted: &mut Vec<String>) -> Shape {
        let merges = self
            .patch_strategy
            .as_deref()
            .is_some_and(|strategy| strategy.split(',').any(|word| word == "merge"));
        let keys = match (self.list_type.as_deref(), &self.patch_merge_key) {
            (Some("map"), _) => self.list_map_keys.clone(),
            (Some("set"), _) => return Shape::Set,
            (None, Some(key)) if merges => vec![key.clone()],
            (None, None) if merges => return Shape::Set,
            (Some(_) | None, _) => return Shape::AtomicList,
        };
        let Some(item) = &self.items else {
            return Shape::AtomicList;
        };
        let defaults = item.member_defaults(schemas);
        let keys = keys
            .into_iter()
            .map(|key| {
                let default = defaults.get(&key).cloned();
                (key, default)
            })
            .collect();
        Shape::Map {
            keys,
            item: Box::new(item.shape(schemas, wanted)),
        }
    }

    /// The defaults for members of an object of this schema.
    fn member_defaults(&self, schemas: &HashMap<String, &RawValue>) -> BTreeMap<String, Value> {
        let referred = self
            .referred()
            .and_then(|name| schemas.get(name))
            .and_then(|text| serde_json::from_str::<Self>(text.get()).ok());
        let schema = referred.as_ref().unwrap_or(self);
        let members = schema.properties.iter();
        members
            .filter_map(|(name, member)| Some((name.clone(), member.default.clone()?)))
            .collect()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    use super::*;

    /// The members that a real server's document has for a Service, and a custom kind with lists of each type.
    pub(crate) fn document() -> String {
        json!({"openapi": "3.0.0", "paths": {"/x": {"get": {}}}, "components": {"schemas": {
            "core.Service": {
                "type": "object",
                "properties": {
                    "apiVersion": {"type": "string"},
                    "metadata": {"allOf": [{"$ref": "#/components/schemas/meta"}], "default": {}},
                    "spec": {"allOf": [{"$ref": "#/components/schemas/core.ServiceSpec"}], "default": {}},
                },
                "x-kubernetes-group-version-kind": [{"group": "", "version": "v1", "kind": "Service"}],
            },
            "core.ServiceSpec": {"type": "object", "properties": {
                "externalIPs": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "atomic"},
                "selector": {"type": "object", "additionalProperties": {"type": "string"},
                             "x-kubernetes-map-type": "atomic"},
                "ports": {
                    "type": "array", "items": {"allOf": [{"$ref": "#/components/schemas/core.ServicePort"}]},
                    "x-kubernetes-list-map-keys": ["port", "protocol"], "x-kubernetes-list-type": "map",
                },
            }},
            "core.ServicePort": {"type": "object", "properties": {
                "name": {"type": "string"}, "port": {"type": "integer", "default": 0},
                "protocol": {"type": "string", "default": "TCP"},
                "targetPort": {"$ref": "#/components/schemas/intOrString"},
            }},
            "intOrString": {"oneOf": [{"type": "integer"}, {"type": "string"}], "format": "int-or-string"},
            "meta": {"type": "object", "properties": {
                "labels": {"type": "object", "additionalProperties": {"type": "string", "default": ""}},
                "finalizers": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            }},
            "x.Tree": {
                "type": "object",
                "properties": {
                    "children": {"type": "array", "items": {"$ref": "#/components/schemas/x.Tree"},
                                 "x-kubernetes-patch-strategy": "merge", "x-kubernetes-patch-merge-key": "name"},
                    "anything": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "list": {"type": "array", "items": {"type": "string"}},
                },
                "x-kubernetes-group-version-kind": [{"group": "x.dev", "version": "v1", "kind": "Tree"}],
            },
        }}})
        .to_string()
    }

    fn shape<'a>(types: &'a Types, path: &[&str]) -> &'a Shape {
        path.iter().fold(types.root(), |shape, name| types.member(shape, name))
    }

    #[test]
    fn keys_and_their_defaults_come_from_the_schema_of_the_items() {
        let types = Types::parse(&document(), &Kind::new("", "v1", "Service")).unwrap();
        let Shape::Map { keys, item } = shape(&types, &["spec", "ports"]) else {
            panic!("ports are keyed")
        };
        assert_eq!(
            *keys,
            [
                ("port".to_owned(), Some(json!(0))),
                ("protocol".to_owned(), Some(json!("TCP")))
            ]
        );
        assert_eq!(*types.member(types.resolve(item), "name"), Shape::Leaf);
    }

    #[test]
    fn what_is_held_as_a_whole_is_told_from_what_is_merged() {
        let types = Types::parse(&document(), &Kind::new("", "v1", "Service")).unwrap();
        assert_eq!(*shape(&types, &["spec", "externalIPs"]), Shape::AtomicList);
        assert_eq!(*shape(&types, &["spec", "selector"]), Shape::Leaf);
        assert_eq!(*shape(&types, &["metadata", "labels", "a"]), Shape::Leaf);
        assert_eq!(*shape(&types, &["metadata", "finalizers"]), Shape::Set);
    }

    #[test]
    fn a_type_may_contain_itself_and_untyped_lists_are_atomic() {
        let types = Types::parse(&document(), &Kind::new("x.dev", "v1", "Tree")).unwrap();
        let Shape::Map { keys, item } = shape(&types, &["children"]) else {
            panic!("a merge key makes a keyed list")
        };
        assert_eq!(*keys, [("name".to_owned(), None)]);
        assert_eq!(*types.member(types.resolve(item), "list"), Shape::AtomicList);
        assert_eq!(*shape(&types, &["anything", "below"]), Shape::Free);
    }

    #[test]
    fn a_kind_that_the_document_lacks_is_named() {
        let error = Types::parse(&document(), &Kind::new("x.dev", "v2", "Tree")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the OpenAPI document does not describe x.dev/v2 Tree"
        );
    }
}
