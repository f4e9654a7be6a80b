//! Field paths of manifests and queries: `.spec.ports[].port`, `.metadata.annotations["a.b/c"]`, `.`.

use pilothouse_description::FieldStep as Step;
use serde_json::{Map, Value};

/// A parsed path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPath(Vec<Step>);

impl FieldPath {
    /// Parses a path, or returns the reason why it is invalid.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no field path; paths look like .spec.ports[].port or .a[\"b.c/d\"]");
        if text == "." {
            return Ok(Self(Vec::new()));
        }
        let mut steps = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            if let Some(quoted) = rest.strip_prefix("[\"") {
                let (name, after) = quoted.split_once("\"]").ok_or_else(wrong)?;
                steps.push(Step::Field(name.to_owned()));
                rest = after;
            } else if let Some(after) = rest.strip_prefix("[]") {
                steps.push(Step::Each);
                rest = after;
            } else {
                let name = rest.strip_prefix('.').ok_or_else(wrong)?;
                let end = name.find(['.', '[']).unwrap_or(name.len());
                if end == 0 {
                    return Err(wrong());
                }
                steps.push(Step::Field(name[..end].to_owned()));
                rest = &name[end..];
            }
        }
        if let Some(Step::Field(_)) = steps.first() {
            Ok(Self(steps))
        } else {
            Err(wrong())
        }
    }

    /// Returns its steps.
    pub(super) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// Reports whether the value at the other path is, or is part of, the value at this one.
    pub(super) fn covers(&self, other: &Self) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Reports whether any value at the path has this text.
    pub(super) fn has_value(&self, object: &Value, text: &str) -> bool {
        fn any(value: &Value, steps: &[Step], text: &str) -> bool {
            match steps {
                [] => match value {
                    Value::String(string) => string == text,
                    Value::Number(number) => number.to_string() == text,
                    Value::Bool(bool) => text == if *bool { "true" } else { "false" },
                    Value::Null | Value::Array(_) | Value::Object(_) => false,
                },
                [Step::Field(name), rest @ ..] => value.get(name).is_some_and(|value| any(value, rest, text)),
                [Step::Each, rest @ ..] => value
                    .as_array()
                    .is_some_and(|items| items.iter().any(|item| any(item, rest, text))),
            }
        }
        any(object, &self.0, text)
    }
}

/// Returns an object with only these paths, and the members that all objects have.
pub(super) fn visible(object: &Value, paths: &[FieldPath]) -> Value {
    let always = ["apiVersion", "kind", "metadata"].map(|name| FieldPath(vec![Step::Field(name.to_owned())]));
    let all: Vec<&[Step]> = paths.iter().chain(&always).map(|path| path.0.as_slice()).collect();
    let mut visible = keep(object, &all).unwrap_or_default();
    if let Some(metadata) = visible.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("resourceVersion");
        metadata.remove("managedFields");
    }
    visible
}

fn keep(value: &Value, paths: &[&[Step]]) -> Option<Value> {
    if paths.iter().any(|path| path.is_empty()) {
        return Some(value.clone());
    }
    match value {
        Value::Object(members) => {
            let kept: Map<_, _> = members
                .iter()
                .filter_map(|(name, member)| {
                    let below: Vec<_> = paths.iter().filter_map(|path| below_member(path, name)).collect();
                    if below.is_empty() {
                        None
                    } else {
                        keep(member, &below).map(|kept| (name.clone(), kept))
                    }
                })
                .collect();
            Some(Value::Object(kept))
        }
        Value::Array(items) => {
            let below: Vec<_> = paths
                .iter()
                .filter_map(|path| path.strip_prefix(&[Step::Each]))
                .collect();
            Some(Value::Array(
                items.iter().filter_map(|item| keep(item, &below)).collect(),
            ))
        }
        // The path leads on, but the object has a plain value here: no part of it was declared.
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

fn below_member<'a>(path: &'a [Step], name: &str) -> Option<&'a [Step]> {
    match path {
        [Step::Field(member), rest @ ..] if member == name => Some(rest),
        _ => None,
    }
}
