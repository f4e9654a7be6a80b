//! `x-kubernetes-validations`: the CEL rules of a schema, evaluated over an object and its old version.
//!
//! A rule that cannot be evaluated (`expression.rs`) counts as kept: the simulated server then accepts what a real one may
//! refuse.

use std::collections::BTreeSet;

use cel::ExecutionError;
use serde_json::Value;

use crate::apply::types::Type;
use crate::expression;
use crate::failure::{FieldError, Wrong};
use crate::fields::Element;
use crate::schema::{Additional, Listing, Node, Rule, Schema};

/// Result of a schema's rules for an object.
#[derive(Default)]
pub(crate) struct Checked {
    /// Violated rules.
    pub(crate) errors: Vec<FieldError>,
    /// The texts of rules that could not be evaluated.
    pub(crate) unevaluated: BTreeSet<String>,
}

/// Evaluates the rules of a schema over an object.
pub(crate) fn check(schema: &Schema, object: &Value, old: Option<&Value>) -> Checked {
    let mut checked = Checked::default();
    walk(schema, object, old, "", &mut checked);
    checked
}

/// Returns `true` if the schema has rules at all.
pub(crate) fn any(schema: &Schema) -> bool {
    let additional = match &schema.additional {
        Additional::Of(node) => Some(node),
        _ => None,
    };
    !schema.rules.is_empty()
        || schema
            .properties
            .values()
            .any(|property| matches!(property.node, Node::Inline(_)) && any(property.get()))
        || schema
            .items
            .iter()
            .chain(additional)
            .any(|node| matches!(node, Node::Inline(_)) && any(node.get()))
}

fn walk(schema: &Schema, value: &Value, old: Option<&Value>, path: &str, checked: &mut Checked) {
    for rule in &schema.rules {
        match evaluate(rule, value, old, path) {
            Verdict::Kept => {}
            Verdict::Violated(error) => checked.errors.push(error),
            Verdict::Unknown => {
                checked.unevaluated.insert(rule.text.clone());
            }
        }
    }
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if let Some(member) = schema.member(name) {
                    let path = if path.is_empty() {
                        name.clone()
                    } else {
                        format!("{path}.{name}")
                    };
                    walk(member, value, old.and_then(|old| old.get(name)), &path, checked);
                }
            }
        }
        Value::Array(items) => {
            let Some(item) = &schema.items else { return };
            for (index, value) in items.iter().enumerate() {
                let old = old.and_then(|old| counterpart(schema, value, old));
                walk(item.get(), value, old, &format!("{path}[{index}]"), checked);
            }
        }
        _ => {}
    }
}

/// Returns the old version of an item: only the items of map lists can be told apart.
fn counterpart<'a>(schema: &Schema, item: &Value, old: &'a Value) -> Option<&'a Value> {
    let element = |item: &Value| -> Option<Element> { Type::of(schema).element(&schema.listing, item).ok() };
    if !matches!(schema.listing, Listing::Map(_)) {
        return None;
    }
    let wanted = element(item)?;
    old.as_array()?
        .iter()
        .find(|old| element(old).as_ref() == Some(&wanted))
}

/// Result of one rule.
enum Verdict {
    Kept,
    Violated(FieldError),
    Unknown,
}

fn evaluate(rule: &Rule, value: &Value, old: Option<&Value>, path: &str) -> Verdict {
    let transition = rule.text.contains("oldSelf");
    if transition && old.is_none() {
        return Verdict::Kept;
    }
    match run(&rule.text, value, old) {
        None => Verdict::Unknown,
        Some(Ok(cel::Value::Bool(false))) => Verdict::Violated(violation(rule, value, old, path)),
        Some(Ok(_)) => Verdict::Kept,
        Some(Err(fault)) => {
            let detail = format!("rule evaluation error: {fault} evaluating rule: {}", rule.text);
            Verdict::Violated(FieldError::with_shown(Wrong::Invalid, path, &shown(value), detail))
        }
    }
}

fn run(text: &str, value: &Value, old: Option<&Value>) -> Option<Result<cel::Value, ExecutionError>> {
    let mut variables = vec![("self", value)];
    variables.extend(old.map(|old| ("oldSelf", old)));
    expression::run(text, &variables)
}

fn violation(rule: &Rule, value: &Value, old: Option<&Value>, path: &str) -> FieldError {
    let computed = rule
        .message_expression
        .as_ref()
        .and_then(|text| match run(text, value, old)? {
            Ok(cel::Value::String(message)) => Some(message.to_string()),
            _ => None,
        });
    let message = computed
        .or_else(|| rule.message.clone())
        .unwrap_or_else(|| format!("failed rule: {}", rule.text.trim()));
    let path = format!("{path}{}", rule.field_path.as_deref().unwrap_or_default());
    match rule.reason.as_deref() {
        Some("FieldValueForbidden") => FieldError::forbidden(path, message),
        Some("FieldValueRequired") => FieldError::required(path, message),
        Some("FieldValueDuplicate") => FieldError::with_shown(Wrong::Duplicate, path, &shown(value), message),
        _ if value.is_object() || value.is_array() => FieldError::with_shown(Wrong::Invalid, path, &message, ""),
        _ => FieldError::with_shown(Wrong::Invalid, path, &shown(value), message),
    }
}

fn shown(value: &Value) -> String {
    value.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn messages(rules: &Value, value: &Value, old: Option<&Value>) -> Vec<String> {
        let properties = json!({"min": {"type": "integer"}, "max": {"type": "integer"}, "list": {"type": "array"}});
        let spec = json!({"type": "object", "properties": properties, "x-kubernetes-validations": rules});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"spec": spec}}));
        check(&schema, value, old)
            .errors
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_violated_rule_is_told_with_its_message() {
        let rules = json!([
            {"rule": "self.min <= self.max", "message": "min must not exceed max"},
            {"rule": "!has(self.list) || self.list.all(x, x > 0)", "fieldPath": ".list", "reason": "FieldValueForbidden"},
        ]);
        assert_eq!(
            messages(&rules, &json!({"spec": {"min": 5, "max": 3, "list": [0]}}), None),
            [
                "spec: Invalid value: min must not exceed max",
                "spec.list: Forbidden: failed rule: !has(self.list) || self.list.all(x, x > 0)",
            ]
        );
    }

    #[test]
    fn addresses_are_told_from_other_texts() {
        let rules = json!([{"rule": "self.list.all(text, isIP(text))", "message": "no address"}]);
        let refused = |text: &str| !messages(&rules, &json!({"spec": {"list": [text]}}), None).is_empty();
        assert!(!refused("192.168.0.1") && !refused("fd00::1"));
        for text in [
            "",
            "192.168.0",
            "192.168.0.01",
            "192.168.0.1/24",
            "::ffff:1.2.3.4",
            "fe80::1%eth0",
            "node-1",
        ] {
            assert!(refused(text), "{text}");
        }
    }

    #[test]
    fn transition_rules_look_at_what_was_before() {
        let rules = json!([{"rule": "self.min >= oldSelf.min", "message": "may only grow"}]);
        let (old, new) = (json!({"spec": {"min": 5}}), json!({"spec": {"min": 4}}));
        assert!(messages(&rules, &new, None).is_empty());
        assert_eq!(
            messages(&rules, &new, Some(&old)),
            ["spec: Invalid value: may only grow"]
        );
    }
}
