//! Splits the server's JSON of an object in one pass over the text: managedFields, which are the larger part of many
//! objects, are parsed in place, and everything else stays text.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use pilothouse_core::Name;
use pilothouse_core::kubernetes::path::Member;
use pilothouse_core::text::depth::Bounded;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::object::facts::{FactKeys, MetadataFacts};

/// An object, split into members.
#[derive(Debug)]
pub struct RawObject<'a> {
    pub(crate) metadata: RawMetadata<'a>,
    /// All members but the metadata.
    pub(crate) others: Vec<Member<'a>>,
}

/// The metadata of an object.
#[derive(Debug, Default)]
pub(crate) struct RawMetadata<'a> {
    pub(crate) resource_version: Cow<'a, str>,
    pub(crate) managed_fields: Vec<ManagedFieldsEntry<'a>>,
    /// All members but those above.
    pub(crate) others: Vec<Member<'a>>,
}

/// One entry of managedFields.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ManagedFieldsEntry<'a> {
    #[serde(borrow, default)]
    pub(crate) manager: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) operation: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) api_version: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) subresource: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    pub(crate) fields_v1: Option<&'a RawValue>,
}

/// A text, borrowed where it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
pub(crate) struct BorrowedText<'a>(#[serde(borrow)] pub(crate) Cow<'a, str>);

impl<'a> RawObject<'a> {
    /// The text of a member beside the metadata; none if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, text) = self.others.iter().find(|(known, _)| known == name)?;
        Some(*text).filter(|text| text.get() != "null")
    }

    /// The object's namespace and name, if it has them.
    pub(crate) fn name(&self) -> Option<Name> {
        let text = |name| self.metadata.parse::<BorrowedText<'_>>(name).ok().flatten();
        let (BorrowedText(name), namespace) = (text("name")?, text("namespace"));
        let namespace = namespace.map(|BorrowedText(namespace)| namespace);
        Some(Name::new(namespace.as_deref(), &name))
    }

    /// The object as a value, without managedFields; levels that are too deep are null.
    pub(crate) fn value(&self) -> Result<Value, serde_json::Error> {
        let parsed = |members: &[Member<'_>]| -> Result<Map<String, Value>, serde_json::Error> {
            let parsed = members.iter().map(|(name, text)| {
                let Bounded(value) = serde_json::from_str(text.get())?;
                Ok((name.clone().into_owned(), value))
            });
            parsed.collect()
        };
        let mut object = parsed(&self.others)?;
        object.insert("metadata".to_owned(), Value::Object(parsed(&self.metadata.others)?));
        Ok(Value::Object(object))
    }
}

impl<'a> RawMetadata<'a> {
    /// The text of a member; none if it is missing or null.
    pub(crate) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let (_, text) = self.others.iter().find(|(known, _)| known == name)?;
        Some(*text).filter(|text| text.get() != "null")
    }

    /// The facts for lanes.
    pub(crate) fn facts(&self, keys: Arc<FactKeys>) -> MetadataFacts {
        let [finalizers, labels, annotations] = ["finalizers", "labels", "annotations"].map(|name| self.get(name));
        MetadataFacts::read(keys, finalizers, labels, annotations)
    }

    /// A parsed member; none if it is missing or null.
    pub(crate) fn parse<T: Deserialize<'a>>(&self, name: &str) -> Result<Option<T>, serde_json::Error> {
        self.get(name).map(|text| serde_json::from_str(text.get())).transpose()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawObject<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ObjectVisitor;
        impl<'de> Visitor<'de> for ObjectVisitor {
            type Value = RawObject<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a Kubernetes object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawObject<'de>, A::Error> {
                let mut metadata = None;
                let mut others = Vec::with_capacity(8);
                while let Some(BorrowedText(name)) = map.next_key()? {
                    if name == "metadata" {
                        metadata = Some(map.next_value()?);
                    } else {
                        others.push((name, map.next_value()?));
                    }
                }
                let metadata = metadata.ok_or_else(|| A::Error::missing_field("metadata"))?;
                Ok(RawObject { metadata, others })
            }
        }
        deserializer.deserialize_map(ObjectVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for RawMetadata<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MetadataVisitor;
        impl<'de> Visitor<'de> for MetadataVisitor {
            type Value = RawMetadata<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("the metadata of an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawMetadata<'de>, A::Error> {
                let mut metadata = RawMetadata {
                    others: Vec::with_capacity(12),
                    ..RawMetadata::default()
                };
                while let Some(BorrowedText(name)) = map.next_key()? {
                    match name.as_ref() {
                        "resourceVersion" => {
                            let version: Option<BorrowedText<'de>> = map.next_value()?;
                            metadata.resource_version =
                                version.map(|BorrowedText(version)| version).unwrap_or_default();
                        }
                        "managedFields" => {
                            let managed: Option<Vec<ManagedFieldsEntry<'de>>> = map.next_value()?;
                            metadata.managed_fields = managed.unwrap_or_default();
                        }
                        _ => metadata.others.push((name, map.next_value()?)),
                    }
                }
                Ok(metadata)
            }
        }
        deserializer.deserialize_map(MetadataVisitor)
    }
}
