//! Rust values that a setter accepts for a field of a Kubernetes object.

use serde_json::{Number, Value};

use super::value::Node;
use super::{FieldValue, IntOrString};

/// A value for a field whose type is `T`: a `T`, a value that converts to one without loss, or an `Option` of either.
/// `None` leaves the field as it is.
///
/// ```
/// use pilothouse_plugin::k8s::core::v1::ServicePort;
///
/// let node_port: Option<u16> = None;
/// let port = ServicePort::new(80u16).name("http").node_port(node_port).target_port("web");
/// assert_eq!(
///     serde_json::to_value(port).unwrap(),
///     serde_json::json!({"port": 80, "name": "http", "targetPort": "web"})
/// );
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a value for a field of type `{T}`",
    note = "strings take &str and String, numbers the integers that fit, objects their builder, and each an Option of that"
)]
pub trait Field<T> {
    /// Converts the value to JSON; `null` for none.
    fn into_value(self) -> FieldValue;
}

impl<T, F: Field<T>> Field<T> for Option<F> {
    fn into_value(self) -> FieldValue {
        self.map_or_else(FieldValue::default, F::into_value)
    }
}

impl Field<Value> for Value {
    fn into_value(self) -> FieldValue {
        self.into()
    }
}

impl Field<f64> for f64 {
    fn into_value(self) -> FieldValue {
        FieldValue(Number::from_f64(self).map_or(Node::Null, Node::Number))
    }
}

macro_rules! converts {
    ($($node:ident { $($field:ty: $($value:ty)+;)+ })+) => {
        $($($(
            impl Field<$field> for $value {
                fn into_value(self) -> FieldValue {
                    FieldValue(Node::$node(self.into()))
                }
            }
        )+)+)+
    };
}

converts! {
    Bool {
        bool: bool;
    }
    Number {
        i32: i8 u8 i16 u16 i32;
        i64: i8 u8 i16 u16 i32 u32 i64;
        IntOrString: i8 u8 i16 u16 i32;
    }
    String {
        String: &str String std::borrow::Cow<'_, str>;
        IntOrString: &str String;
    }
}

macro_rules! copies {
    ($($field:ty)+) => {
        $(
            impl Field<$field> for &String {
                fn into_value(self) -> FieldValue {
                    FieldValue(Node::String(self.into()))
                }
            }

            impl Field<$field> for &Option<String> {
                fn into_value(self) -> FieldValue {
                    FieldValue(self.as_ref().map_or(Node::Null, |string| Node::String(string.into())))
                }
            }
        )+
    };
}

copies!(String IntOrString);
