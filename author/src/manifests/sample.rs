//! Invents an object of a kind: the fields that its CRD requires, with values that the schema admits if possible.

use serde_json::{Map, Value, json};

/// Depth to which a schema is followed; deeper required fields stay empty.
const MAX_DEPTH: usize = 20;

/// Returns an object of this version of a CRD; none if the CRD has no such version.
pub fn of(definition: &Value, version: &str) -> Option<Value> {
    let spec = &definition["spec"];
    let version = spec["versions"].as_array()?.iter().find(|it| it["name"] == version)?;
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut object = Map::new();
    let group = spec["group"].as_str().unwrap_or_default();
    let version = version["name"].as_str().unwrap_or_default();
    object.insert("apiVersion".to_owned(), format!("{group}/{version}").into());
    object.insert("kind".to_owned(), spec["names"]["kind"].clone());
    object.insert("metadata".to_owned(), json!({"name": "sample"}));
    if !schema["properties"]["spec"].is_null() {
        object.insert("spec".to_owned(), value(&schema["properties"]["spec"]));
    }
    for (name, value) in required(schema, MAX_DEPTH) {
        object.entry(name).or_insert(value);
    }
    Some(Value::Object(object))
}

/// Returns the simplest value that a schema admits.
pub fn value(schema: &Value) -> Value {
    value_at(schema, MAX_DEPTH)
}

fn value_at(schema: &Value, depth: usize) -> Value {
    for known in ["default", "example"] {
        if !schema[known].is_null() {
            return schema[known].clone();
        }
    }
    if let Some(first) = schema["enum"].get(0) {
        return first.clone();
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return json!(1);
    }
    match schema["type"].as_str() {
        Some("object") if depth > 0 => Value::Object(required(schema, depth - 1)),
        Some("object") => json!({}),
        Some("array") => {
            let count = schema["minItems"].as_u64().unwrap_or(0).min(10);
            (0..count)
                .map(|_| value_at(&schema["items"], depth.saturating_sub(1)))
                .collect()
        }
        Some("integer") => json!(integer(schema)),
        Some("number") => json!(number(schema)),
        Some("boolean") => json!(false),
        Some("string") => text(schema).into(),
        _ => Value::Null,
    }
}

fn required(schema: &Value, depth: usize) -> Map<String, Value> {
    let names = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    names
        .map(|name| (name.to_owned(), value_at(&schema["properties"][name], depth)))
        .collect()
}

/// Returns 1, or the next number within the bounds.
fn integer(schema: &Value) -> i64 {
    let bound = |name: &str, exclusive: &str, step: i64| {
        let bound = schema[name].as_i64()?;
        Some(if schema[exclusive] == true {
            bound.saturating_add(step)
        } else {
            bound
        })
    };
    let lowest = bound("minimum", "exclusiveMinimum", 1).unwrap_or(i64::MIN);
    let highest = bound("maximum", "exclusiveMaximum", -1).unwrap_or(i64::MAX);
    1.max(lowest).min(highest)
}

/// Returns such a number that need not be whole; hand-written bounds are not exclusive.
fn number(schema: &Value) -> f64 {
    let lowest = schema["minimum"].as_f64().unwrap_or(f64::MIN);
    let highest = schema["maximum"].as_f64().unwrap_or(f64::MAX);
    1_f64.max(lowest).min(highest)
}

/// Returns a text of the format, within the bounds of length. A pattern is ignored.
fn text(schema: &Value) -> String {
    let text = match schema["format"].as_str() {
        Some("date-time") => "2025-01-01T00:00:00Z",
        Some("date") => "2025-01-01",
        Some("duration") => "1m",
        Some("ipv4" | "ip") => "192.0.2.1",
        Some("ipv6") => "2001:db8::1",
        Some("cidr") => "192.0.2.0/24",
        Some("uri" | "url") => "https://example.com",
        Some("hostname") => "example.com",
        Some("email") => "somebody@example.com",
        Some("uuid") => "00000000-0000-4000-8000-000000000000",
        Some("byte") => "ZXhhbXBsZQ==",
        _ => "example",
    };
    let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
    let mut text: String = text.chars().take(bound("maxLength").unwrap_or(usize::MAX)).collect();
    while text.len() < bound("minLength").unwrap_or(0).min(1000) {
        text.push('e');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(spec: &Value) -> Value {
        json!({"spec": {
            "group": "example.com",
            "names": {"kind": "Site"},
            "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}, "required": ["spec"],
            }}}],
        }})
    }

    #[test]
    fn a_sample_has_what_is_required_and_nothing_else() {
        let spec = json!({
            "type": "object",
            "required": ["host", "port", "mode", "tags", "tls", "ratio", "replicas"],
            "properties": {
                "host": {"type": "string", "format": "hostname"},
                "port": {"type": "integer", "minimum": 1024, "exclusiveMinimum": true},
                "mode": {"type": "string", "enum": ["Fast", "Safe"]},
                "tags": {"type": "array", "minItems": 2, "items": {"type": "string", "maxLength": 2}},
                "tls": {"type": "object", "required": ["secret"], "properties": {"secret": {"type": "string", "minLength": 9}}},
                "ratio": {"type": "number", "maximum": 0.5},
                "replicas": {"type": "integer", "default": 3},
                "note": {"type": "string"},
            },
        });
        let expected = json!({
            "apiVersion": "example.com/v1", "kind": "Site", "metadata": {"name": "sample"},
            "spec": {
                "host": "example.com", "port": 1025, "mode": "Fast", "tags": ["ex", "ex"],
                "tls": {"secret": "exampleee"}, "ratio": 0.5, "replicas": 3,
            },
        });
        assert_eq!(of(&definition(&spec), "v1"), Some(expected));
    }

    #[test]
    fn a_kind_without_required_fields_still_has_a_spec() {
        let sample = of(&definition(&json!({"type": "object"})), "v1").unwrap();
        assert_eq!(sample["spec"], json!({}));
        assert_eq!(of(&definition(&json!({})), "v2"), None);
    }
}
