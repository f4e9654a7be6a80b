//! Imitates decoding an object of a built-in kind into Go types and encoding it again: wrong types are refused, unknown
//! fields are dropped, zeros vanish or appear, times and quantities take their canonical form.

use serde_json::{Map, Value, json};

use crate::quantity;
use crate::schema::{Additional, Property, Schema, Shape};

/// Unknown fields by path, in the order met.
#[derive(Debug, Default)]
pub(crate) struct Decoded {
    pub(crate) unknown: Vec<String>,
}

/// Brings the object into the form in which the server would write it. The error is that of Go's decoder.
pub(crate) fn decode(schema: &Schema, object: &mut Value) -> Result<Decoded, String> {
    let mut decoder = Decoder::default();
    decoder.value(schema, object)?;
    Ok(Decoded {
        unknown: decoder.unknown,
    })
}

#[derive(Default)]
struct Decoder {
    /// Name of the innermost struct.
    owner: String,
    /// Names of fields as Go shows them: without indexes and keys of maps.
    fields: Vec<String>,
    /// The exact path, for unknown fields.
    path: Vec<String>,
    unknown: Vec<String>,
}

impl Decoder {
    fn value(&mut self, schema: &Schema, value: &mut Value) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        match schema.name.as_deref() {
            Some(name) if name.ends_with("api.resource.Quantity") => return self.quantity(value),
            Some(name) if name.ends_with("meta.v1.Time") => return self.time(value, false),
            Some(name) if name.ends_with("meta.v1.MicroTime") => return self.time(value, true),
            Some(name) if name.ends_with("util.intstr.IntOrString") => return self.int_or_string(value),
            Some(name) if is_free(name) => return Ok(()),
            _ => {}
        }
        match schema.shape {
            Shape::Any => Ok(()),
            Shape::String if schema.format.as_deref() == Some("byte") => self.bytes(value),
            Shape::String => self.scalar(value, Value::is_string, "string"),
            Shape::Boolean => self.scalar(value, Value::is_boolean, "bool"),
            Shape::Integer => {
                let kind = if schema.format.as_deref() == Some("int64") {
                    "int64"
                } else {
                    "int32"
                };
                self.integer(value, kind)
            }
            Shape::Number => self.scalar(value, Value::is_number, "float64"),
            Shape::Array => self.list(schema, value),
            Shape::Object if schema.properties.is_empty() => self.map(schema, value),
            Shape::Object => self.structure(schema, value),
        }
    }

    fn mismatch(&self, value: &Value, kind: &str) -> String {
        let shown = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let place = self.fields.join(".");
        if place.is_empty() {
            return format!("json: cannot unmarshal {shown} into Go value of type {kind}");
        }
        format!(
            "json: cannot unmarshal {shown} into Go struct field {}.{place} of type {kind}",
            self.owner
        )
    }

    fn scalar(&self, value: &Value, fits: fn(&Value) -> bool, kind: &str) -> Result<(), String> {
        if fits(value) {
            Ok(())
        } else {
            Err(self.mismatch(value, kind))
        }
    }

    fn integer(&self, value: &mut Value, kind: &str) -> Result<(), String> {
        let whole = value.as_i64().or_else(|| {
            let number = value
                .as_f64()
                .filter(|number| number.fract() == 0.0 && number.abs() < 9e15)?;
            // Checked to be whole and small enough just before.
            #[allow(clippy::cast_possible_truncation)]
            Some(number as i64)
        });
        match whole {
            Some(whole) if kind == "int64" || i32::try_from(whole).is_ok() => {
                *value = json!(whole);
                Ok(())
            }
            _ if value.is_number() => {
                let text = self.mismatch(value, kind);
                Err(text.replacen("unmarshal number", &format!("unmarshal number {value}"), 1))
            }
            _ => Err(self.mismatch(value, kind)),
        }
    }

    fn quantity(&self, value: &mut Value) -> Result<(), String> {
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return Err(self.mismatch(value, "resource.Quantity")),
        };
        let canonical = quantity::canonical(&text)
            .ok_or("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")?;
        *value = Value::String(canonical);
        Ok(())
    }

    fn time(&self, value: &mut Value, micro: bool) -> Result<(), String> {
        let Some(text) = value.as_str() else {
            return Err(self.mismatch(value, "string"));
        };
        // Microseconds must be there, six digits of them.
        if micro
            && text
                .split_once('.')
                .is_none_or(|(_, rest)| rest.bytes().take_while(u8::is_ascii_digit).count() != 6)
        {
            let rest: String = text.chars().skip(19).collect();
            return Err(format!(
                "parsing time {text:?} as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse {rest:?} as \".000000\""
            ));
        }
        let stamp: jiff::Timestamp = text.parse().map_err(|_| {
            format!("parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\"")
        })?;
        let seconds = jiff::Timestamp::from_second(stamp.as_second())
            .unwrap_or(stamp)
            .to_string();
        *value = Value::String(if micro {
            format!(
                "{}.{:06}Z",
                seconds.trim_end_matches('Z'),
                stamp.subsec_nanosecond() / 1000
            )
        } else {
            seconds
        });
        Ok(())
    }

    fn int_or_string(&self, value: &mut Value) -> Result<(), String> {
        if value.is_string() {
            Ok(())
        } else {
            self.integer(value, "int32")
        }
    }

    fn bytes(&self, value: &mut Value) -> Result<(), String> {
        use base64::Engine as _;
        let Some(text) = value.as_str() else {
            return Err(self.mismatch(value, "[]uint8"));
        };
        match base64::engine::general_purpose::STANDARD.decode(text) {
            Ok(_) => Ok(()),
            Err(base64::DecodeError::InvalidByte(offset, _) | base64::DecodeError::InvalidLastSymbol(offset, _)) => {
                Err(format!("illegal base64 data at input byte {offset}"))
            }
            Err(_) => Err(format!(
                "illegal base64 data at input byte {}",
                text.len().saturating_sub(text.len() % 4)
            )),
        }
    }

    fn list(&mut self, schema: &Schema, value: &mut Value) -> Result<(), String> {
        let Some(item) = &schema.items else { return Ok(()) };
        let Value::Array(items) = value else {
            return Err(self.mismatch(value, &go_type(schema)));
        };
        for (index, value) in items.iter_mut().enumerate() {
            self.path.push(format!("[{index}]"));
            self.value(item.get(), value)?;
            self.path.pop();
            if value.is_null() {
                *value = zero(item.get());
            }
        }
        Ok(())
    }

    fn map(&mut self, schema: &Schema, value: &mut Value) -> Result<(), String> {
        let Additional::Of(item) = &schema.additional else {
            return Ok(());
        };
        let Value::Object(members) = value else {
            return Err(self.mismatch(value, &go_type(schema)));
        };
        for (name, value) in members {
            self.path.push(format!(".{name}"));
            self.value(item.get(), value)?;
            self.path.pop();
            if value.is_null() {
                *value = zero(item.get());
            }
        }
        Ok(())
    }

    fn structure(&mut self, schema: &Schema, value: &mut Value) -> Result<(), String> {
        let Value::Object(members) = value else {
            return Err(self.mismatch(value, &go_type(schema)));
        };
        let short = schema
            .name
            .as_deref()
            .and_then(|name| name.rsplit('.').next())
            .unwrap_or_default()
            .to_owned();
        let owner = std::mem::replace(&mut self.owner, short);
        let given = std::mem::take(members);
        for (name, mut value) in given {
            let Some(property) = schema.properties.get(&name) else {
                self.unknown.push(
                    format!("{}.{name}", self.path.concat())
                        .trim_start_matches('.')
                        .to_owned(),
                );
                continue;
            };
            self.path.push(format!(".{name}"));
            self.fields.push(name.clone());
            self.value(property.get(), &mut value)?;
            self.fields.pop();
            self.path.pop();
            if keeps(schema, &name, property, &value) {
                members.insert(name, value);
            }
        }
        for (name, property) in &schema.properties {
            if !members.contains_key(name)
                && let Some(value) = uninvited(schema, name, property)
            {
                members.insert(name.clone(), value);
            }
        }
        self.owner = owner;
        Ok(())
    }
}

/// Types that hold arbitrary JSON.
fn is_free(name: &str) -> bool {
    [
        ".RawExtension",
        ".FieldsV1",
        ".JSON",
        ".JSONSchemaPropsOrArray",
        ".JSONSchemaPropsOrBool",
        ".JSONSchemaPropsOrStringArray",
        ".WatchEvent",
    ]
    .iter()
    .any(|suffix| name.ends_with(suffix))
}

/// Returns `true` if Go writes the given value.
fn keeps(schema: &Schema, name: &str, property: &Property, value: &Value) -> bool {
    let zeros = &schema.zeros;
    if value.is_null() {
        return false;
    }
    if zeros.kept.contains(name) || zeros.always.contains(name) || !is_zero(value) {
        return true;
    }
    // Structs without a pointer are written even when empty.
    value.is_object() && property.default.as_ref().is_some_and(Value::is_object) && !zeros.dropped.contains(name)
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
    }
}

/// Returns the value that Go writes although none was given.
fn uninvited(schema: &Schema, name: &str, property: &Property) -> Option<Value> {
    let zeros = &schema.zeros;
    let structure = property.default.as_ref().is_some_and(Value::is_object) && property.get().shape == Shape::Object;
    if zeros.kept.contains(name) || zeros.dropped.contains(name) {
        return None;
    }
    if structure {
        return Some(zero(property.get()));
    }
    zeros.always.contains(name).then(|| zero(property.get()))
}

/// Go's zero value, as it is written.
fn zero(schema: &Schema) -> Value {
    match schema.name.as_deref() {
        Some(name) if name.ends_with("api.resource.Quantity") => return json!("0"),
        Some(name) if name.ends_with("util.intstr.IntOrString") => return json!(0),
        Some(name) if name.ends_with("Time") => return Value::Null,
        _ => {}
    }
    match schema.shape {
        Shape::String if schema.format.as_deref() == Some("byte") => Value::Null,
        Shape::String => json!(""),
        Shape::Integer | Shape::Number => json!(0),
        Shape::Boolean => json!(false),
        Shape::Object if !schema.properties.is_empty() => {
            let members = schema.properties.iter();
            let written: Map<String, Value> = members
                .filter_map(|(name, property)| Some((name.clone(), uninvited(schema, name, property)?)))
                .collect();
            Value::Object(written)
        }
        Shape::Any | Shape::Array | Shape::Object => Value::Null,
    }
}

/// The type's name in Go.
fn go_type(schema: &Schema) -> String {
    if let Some(name) = &schema.name {
        let mut parts = name.rsplit('.');
        let (kind, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        return format!("{package}.{kind}");
    }
    match schema.shape {
        Shape::Array => {
            let item = schema
                .items
                .as_ref()
                .map_or_else(|| "interface {}".to_owned(), |item| go_type(item.get()));
            format!("[]{item}")
        }
        Shape::Object => match &schema.additional {
            Additional::Of(item) => format!("map[string]{}", go_type(item.get())),
            _ => "map[string]interface {}".to_owned(),
        },
        Shape::String => "string".to_owned(),
        Shape::Integer => schema.format.clone().unwrap_or_else(|| "int64".to_owned()),
        Shape::Number => "float64".to_owned(),
        Shape::Boolean => "bool".to_owned(),
        Shape::Any => "interface {}".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;

    fn decoded(kind: &str, mut object: Value) -> Result<(Value, Vec<String>), String> {
        let schema = definition(kind).expect("the test names a served kind");
        let decoded = decode(schema, &mut object)?;
        Ok((object, decoded.unknown))
    }

    #[test]
    fn zeros_vanish_stay_or_appear_as_go_writes_them() {
        let spec = json!({"replicas": 0, "minReadySeconds": 0, "paused": false, "selector": {},
            "template": {"metadata": {}, "spec": {"containers": [{"name": "a", "image": "", "args": []}]}}});
        let (spec, unknown) = decoded("io.k8s.api.apps.v1.DeploymentSpec", spec).expect("the types fit");
        assert_eq!(
            spec,
            json!({"replicas": 0, "selector": {}, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": [{"name": "a", "resources": {}}]}}})
        );
        assert!(unknown.is_empty());
    }

    #[test]
    fn wrong_types_read_as_in_go_and_unknown_fields_by_path() {
        let fault = decoded("io.k8s.api.apps.v1.Deployment", json!({"spec": {"replicas": "2"}}));
        assert_eq!(
            fault,
            Err(
                "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
                    .to_owned()
            )
        );
        let (_, unknown) = decoded(
            "io.k8s.api.core.v1.PodSpec",
            json!({"containers": [{"name": "a", "imagee": "b"}], "x": 1}),
        )
        .expect("the types fit");
        assert_eq!(unknown, ["containers[0].imagee", "x"]);
    }
}
