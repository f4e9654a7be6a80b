//! A value that is a number or a string, such as a port or a percentage.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::value::Node;
use super::{Field, FieldValue};
use crate::fields::{self, Fields};

/// A number or a string, for example a port's number or its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntOrString {
    /// A number.
    Int(i32),
    /// A string.
    String(String),
}

impl Field<IntOrString> for IntOrString {
    fn into_value(self) -> FieldValue {
        FieldValue(match self {
            Self::Int(number) => Node::Number(number.into()),
            Self::String(string) => Node::String(string.into()),
        })
    }
}

impl Field<IntOrString> for &IntOrString {
    fn into_value(self) -> FieldValue {
        self.clone().into_value()
    }
}

impl Fields for IntOrString {
    fn fields_at(path: &str, fields: &mut Vec<String>) {
        fields::whole(path, fields);
    }
}

/// Written by hand, because the derived form for untagged enums first copies the input, and adds code for it.
impl<'de> Deserialize<'de> for IntOrString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = IntOrString;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a number or a string")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<IntOrString, E> {
                i32::try_from(value)
                    .map(IntOrString::Int)
                    .map_err(|_| E::invalid_value(de::Unexpected::Signed(value), &self))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<IntOrString, E> {
                i32::try_from(value)
                    .map(IntOrString::Int)
                    .map_err(|_| E::invalid_value(de::Unexpected::Unsigned(value), &self))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<IntOrString, E> {
                Ok(IntOrString::String(value.to_owned()))
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(feature = "crd")]
impl schemars::JsonSchema for IntOrString {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IntOrString".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"x-kubernetes-int-or-string": true})
    }
}

impl Serialize for IntOrString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(number) => serializer.serialize_i32(*number),
            Self::String(string) => serializer.serialize_str(string),
        }
    }
}
