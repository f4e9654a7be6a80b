//! Checks an applied object against its schema, with the messages of the server's type errors.

use std::collections::BTreeSet;

use serde_json::Value;

use super::types::{Atom, ScalarKind, Type};
use crate::schema::Listing;

/// Every fault of the value, as `path: message`; empty when it fits.
pub(crate) fn check(kind: Type<'_>, value: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    walk(kind, value, "", &mut faults);
    faults
}

fn walk(kind: Type<'_>, value: &Value, path: &str, faults: &mut Vec<String>) {
    match kind.atom(Some(value)) {
        Atom::Scalar(scalar) => {
            if let Some(fault) = scalar_fault(scalar, value) {
                faults.push(format!("{path}: {fault}"));
            }
        }
        Atom::List(listing) => match value {
            Value::Null => {}
            Value::Array(items) => list(kind, listing, items, path, faults),
            other => faults.push(format!("{path}: expected list, got {}", wrapped(other))),
        },
        Atom::Map { .. } => match value {
            Value::Null => {}
            Value::Object(members) => {
                for (name, value) in members {
                    let path = format!("{path}.{name}");
                    match kind.member(name) {
                        Some(kind) => walk(kind, value, &path, faults),
                        None => faults.push(format!("{path}: field not declared in schema")),
                    }
                }
            }
            other => faults.push(format!("{path}: expected map, got {}", wrapped(other))),
        },
    }
}

fn list(kind: Type<'_>, listing: &Listing, items: &[Value], path: &str, faults: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (index, item) in items.iter().enumerate() {
        let step = if *listing == Listing::Atomic {
            format!("[{index}]")
        } else {
            match kind.element(listing, item) {
                Ok(element) => {
                    let step = element.to_string();
                    if !seen.insert(element) {
                        faults.push(format!("{path}: duplicate entries for key {step}"));
                    }
                    step
                }
                Err(fault) => {
                    faults.push(format!("{path}: element {index}: {fault}"));
                    return;
                }
            }
        };
        walk(kind.item(), item, &format!("{path}{step}"), faults);
    }
}

fn scalar_fault(kind: ScalarKind, value: &Value) -> Option<String> {
    match (kind, value) {
        (_, Value::Null)
        | (ScalarKind::Any, Value::Number(_) | Value::String(_) | Value::Bool(_))
        | (ScalarKind::Number, Value::Number(_))
        | (ScalarKind::Text, Value::String(_))
        | (ScalarKind::Boolean, Value::Bool(_)) => None,
        (ScalarKind::Number, other) => Some(format!("expected numeric (int or float), got {}", go_type(other))),
        (ScalarKind::Text, other) => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            go_syntax(other)
        )),
        (ScalarKind::Boolean, other) => Some(format!("expected boolean, got {}", wrapped(other))),
        (ScalarKind::Any, other) => Some(format!("expected any scalar, got {}", wrapped(other))),
    }
}

/// `%v` of the server's wrapper around a value.
fn wrapped(value: &Value) -> String {
    format!("&{{{}}}", go_plain(value))
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Go's `%#v`.
fn go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_syntax).collect();
            format!("[]interface {{}}{{{}}}", items.join(", "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{name:?}:{}", go_syntax(value)))
                .collect();
            format!("map[string]interface {{}}{{{}}}", members.join(", "))
        }
        scalar => scalar.to_string(),
    }
}

/// Go's `%v`.
fn go_plain(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(go_plain).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(members) => {
            let members: Vec<String> = members
                .iter()
                .map(|(name, value)| format!("{name}:{}", go_plain(value)))
                .collect();
            format!("map[{}]", members.join(" "))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::definition;
    use serde_json::json;

    fn faults(kind: &str, value: &Value) -> Vec<String> {
        let schema = definition(kind).expect("the test names a served kind");
        check(Type::of(schema), value)
    }

    #[test]
    fn unknown_fields_wrong_types_and_duplicates_are_told_apart() {
        let port = json!({"port": 80, "protocol": "TCP"});
        let service = json!({"spec": {"nope": 1, "clusterIP": 7, "ports": [port, {"port": 80}]}});
        assert_eq!(
            faults("io.k8s.api.core.v1.Service", &service),
            [
                ".spec.clusterIP: expected string, got &value.valueUnstructured{Value:7}",
                ".spec.nope: field not declared in schema",
                ".spec.ports: duplicate entries for key [port=80,protocol=\"TCP\"]",
            ]
        );
    }
}
