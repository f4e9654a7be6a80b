//! Validates custom resources against their JSON schema, with the server's messages.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::apply::types::{Type, same};
use crate::failure::{FieldError, Wrong};
use crate::schema::{Listing, Schema, Shape};

/// Every violation; empty when the object fits.
pub(crate) fn validate(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk(schema, object, "", &mut errors);
    errors
}

fn walk(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if value.is_null() && schema.nullable {
        return;
    }
    if !fits(schema, value) {
        errors.push(type_error(schema, value, path));
        if let (true, Shape::Integer, Some(format)) = (value.is_number(), schema.shape, &schema.format) {
            errors.push(out_of_format(schema, format, path));
        }
        return;
    }
    enumeration(schema, value, path, errors);
    if schema.embedded {
        embedded(value, path, errors);
    }
    match value {
        Value::Object(members) => object(schema, members, path, errors),
        Value::Array(items) => array(schema, items, path, errors),
        Value::String(text) => string(schema, text, path, errors),
        Value::Number(_) => number(schema, value, path, errors),
        _ => {}
    }
    combinations(schema, value, path, errors);
}

/// Checks that a resource within a resource has an apiVersion and a kind.
fn embedded(value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for name in ["apiVersion", "kind"] {
        if value[name].as_str().is_none_or(str::is_empty) {
            errors.push(FieldError::required(format!("{path}.{name}"), "must not be empty"));
        }
    }
    let finalizers = value["metadata"]["finalizers"].as_array();
    for finalizer in finalizers.into_iter().flatten().filter(|finalizer| *finalizer == "") {
        let place = format!("{path}.metadata.finalizers");
        errors.push(FieldError::invalid(&place, finalizer, "name part must be non-empty"));
    }
}

fn fits(schema: &Schema, value: &Value) -> bool {
    if schema.int_or_string {
        return value.is_string() || is_integer(value);
    }
    match schema.shape {
        Shape::Any => true,
        Shape::Object => value.is_object(),
        Shape::Array => value.is_array(),
        Shape::String => value.is_string(),
        Shape::Boolean => value.is_boolean(),
        Shape::Integer => is_integer(value),
        Shape::Number => value.is_number(),
    }
}

fn is_integer(value: &Value) -> bool {
    value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0)
}

fn type_error(schema: &Schema, value: &Value, path: &str) -> FieldError {
    let actual = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) if is_integer(value) => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let format = schema
        .format
        .as_deref()
        .filter(|_| actual == "number" && schema.shape == Shape::Integer);
    let (expected, actual) = match format {
        _ if schema.int_or_string => ("integer,string", actual),
        Some(format) => (format, "float64"),
        None => (schema.shape.name(), actual),
    };
    let detail = format!("{path} in body must be of type {expected}: {actual:?}");
    FieldError::with_shown(Wrong::Type, shown_path(path), &format!("{actual:?}"), detail)
}

fn shown_path(path: &str) -> String {
    if path.is_empty() {
        "<nil>".to_owned()
    } else {
        path.to_owned()
    }
}

fn enumeration(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if schema.enumeration.is_empty() || schema.enumeration.iter().any(|allowed| same(allowed, value)) {
        return;
    }
    let words: Vec<String> = schema
        .enumeration
        .iter()
        .map(|allowed| allowed.as_str().map_or_else(|| allowed.to_string(), str::to_owned))
        .collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    errors.push(FieldError::not_supported(path, value, &words));
}

fn object(schema: &Schema, members: &Map<String, Value>, path: &str, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let count = members.len() as u64;
    if let Some(least) = bounds.min_properties.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} properties");
        errors.push(FieldError::invalid(shown_path(path), &json!(count), detail));
    }
    if let Some(most) = bounds.max_properties.filter(|most| count > *most) {
        errors.push(FieldError::too_many(shown_path(path), members.len(), usize_of(most)));
    }
    for name in &schema.required {
        if !members.contains_key(name) {
            errors.push(FieldError::required(join(path, name), ""));
        }
    }
    for (name, value) in members {
        let skipped = path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
        if let (Some(member), false) = (schema.member(name), skipped) {
            walk(member, value, &join(path, name), errors);
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

fn usize_of(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

fn array(schema: &Schema, items: &[Value], path: &str, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let count = items.len() as u64;
    if let Some(least) = bounds.min_items.filter(|least| count < *least) {
        let detail = format!("{path} in body should have at least {least} items");
        errors.push(FieldError::invalid(path, &json!(count), detail));
    }
    if let Some(most) = bounds.max_items.filter(|most| count > *most) {
        errors.push(FieldError::too_many(path, items.len(), usize_of(most)));
    }
    if bounds.unique_items
        && items
            .iter()
            .enumerate()
            .any(|(index, item)| items[..index].iter().any(|other| same(item, other)))
    {
        errors.push(FieldError::invalid(
            path,
            &json!(items),
            format!("{path} in body shouldn't contain duplicates"),
        ));
    }
    if let Some(item) = &schema.items {
        for (index, value) in items.iter().enumerate() {
            walk(item.get(), value, &format!("{path}[{index}]"), errors);
        }
    }
}

fn string(schema: &Schema, text: &str, path: &str, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let length = text.chars().count() as u64;
    // Only the first of these is told.
    if let Some(most) = bounds.max_length.filter(|most| length > *most) {
        errors.push(FieldError::too_long(path, usize_of(most)));
    } else if let Some(least) = bounds.min_length.filter(|least| length < *least) {
        let detail = format!("{path} in body should be at least {least} chars long");
        errors.push(FieldError::invalid(path, &json!(text), detail));
    } else if let Some(pattern) = &bounds.pattern
        && !Regex::new(pattern).is_ok_and(|regex| regex.is_match(text))
    {
        let detail = format!("{path} in body should match '{pattern}'");
        errors.push(FieldError::invalid(path, &json!(text), detail));
    }
    if let Some(format) = &schema.format
        && !format_fits(format, text)
    {
        let detail = format!("{path} in body must be of type {format}: {text:?}");
        errors.push(FieldError::invalid(path, &json!(text), detail));
    }
}

/// Formats that the server checks; unknown ones are let pass.
fn format_fits(format: &str, text: &str) -> bool {
    match format {
        "date-time" => text.parse::<jiff::Timestamp>().is_ok(),
        "date" => text.parse::<jiff::civil::Date>().is_ok(),
        "ipv4" => text.parse::<std::net::Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<std::net::Ipv6Addr>().is_ok(),
        "byte" => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(text).is_ok()
        }
        "uuid" => text.len() == 36 && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit()),
        _ => true,
    }
}

fn number(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let bounds = &schema.bounds;
    let Some(number) = value.as_f64() else { return };
    let mut refuse = |detail: String| errors.push(FieldError::invalid(path, value, format!("{path} in body {detail}")));
    if let Some(least) = bounds.minimum {
        if bounds.exclusive_minimum && number <= least {
            refuse(format!("should be greater than {least}"));
        } else if number < least {
            refuse(format!("should be greater than or equal to {least}"));
        }
    }
    if let Some(most) = bounds.maximum {
        if bounds.exclusive_maximum && number >= most {
            refuse(format!("should be less than {most}"));
        } else if number > most {
            refuse(format!("should be less than or equal to {most}"));
        }
    }
    if let Some(factor) = bounds.multiple_of
        && (number / factor).fract() != 0.0
    {
        refuse(format!("should be a multiple of {factor}"));
    }
    if let Some(format @ "int32") = schema.format.as_deref()
        && value.as_i64().is_some_and(|whole| i32::try_from(whole).is_err())
    {
        errors.push(out_of_format(schema, format, path));
    }
}

/// The server names neither the field nor the value, but in the text.
fn out_of_format(schema: &Schema, format: &str, path: &str) -> FieldError {
    let type_ = schema.shape.name();
    let detail = format!("Checked value must be of type {type_} with format {format} in {path}");
    FieldError::invalid("<nil>", &json!(""), detail)
}

/// Checks the combinations. The server names the field and the value of a refusal only in the text, and adds the errors
/// of the first alternative.
fn combinations(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let faults = |option: &Schema| {
        let mut found = Vec::new();
        walk(option, value, path, &mut found);
        found
    };
    let refuse = |detail: String| FieldError::invalid("<nil>", &json!(""), format!("{path:?} {detail}"));
    // int-or-string says anyOf integer, string; that was checked with the type.
    if !schema.any_of.is_empty() && !schema.int_or_string {
        let alternatives: Vec<_> = schema.any_of.iter().map(faults).collect();
        if alternatives.iter().all(|faults| !faults.is_empty()) {
            errors.push(refuse("must validate at least one schema (anyOf)".to_owned()));
            errors.extend(alternatives.into_iter().next().unwrap_or_default());
        }
    }
    if !schema.one_of.is_empty() {
        let alternatives: Vec<_> = schema.one_of.iter().map(faults).collect();
        let found = match alternatives.iter().filter(|faults| faults.is_empty()).count() {
            0 => Some("none valid".to_owned()),
            1 => None,
            count => Some(format!("{count} valid alternatives")),
        };
        if let Some(found) = found {
            let none = found == "none valid";
            errors.push(refuse(format!(
                "must validate one and only one schema (oneOf). Found {found}"
            )));
            errors.extend(alternatives.into_iter().next().filter(|_| none).unwrap_or_default());
        }
    }
    let parts: Vec<_> = schema.all_of.iter().map(faults).collect();
    let failed = parts.iter().filter(|faults| !faults.is_empty()).count();
    if failed > 0 {
        let none = if failed == parts.len() { ". None validated" } else { "" };
        errors.push(refuse(format!("must validate all the schemas (allOf){none}")));
        errors.extend(parts.into_iter().flatten());
    }
    if schema.not.as_ref().is_some_and(|not| faults(not).is_empty()) {
        errors.push(refuse("must not validate the schema (not)".to_owned()));
    }
}

/// Items of set and map lists that occur twice.
pub(crate) fn lists(schema: &Schema, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    duplicates(schema, object, "", &mut errors);
    errors
}

fn duplicates(schema: &Schema, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if let Some(member) = schema.member(name) {
                    duplicates(member, value, &join(path, name), errors);
                }
            }
        }
        Value::Array(items) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let path = format!("{path}[{index}]");
                if let Some(items) = &schema.items {
                    duplicates(items.get(), item, &path, errors);
                }
                if schema.listing == Listing::Atomic {
                    continue;
                }
                let Ok(element) = Type::of(schema).element(&schema.listing, item) else {
                    continue;
                };
                if !seen.insert(element) {
                    errors.push(FieldError::duplicate(path, &identity(&schema.listing, item)));
                }
            }
        }
        _ => {}
    }
}

/// Returns the value by which a duplicate is shown: the keys of a map list's item, or the item itself.
fn identity(listing: &Listing, item: &Value) -> Value {
    match listing {
        Listing::Map(keys) => keys
            .iter()
            .filter_map(|key| Some((key.clone(), item.get(key)?.clone())))
            .collect::<Map<_, _>>()
            .into(),
        _ => item.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(schema: &Value, object: &Value) -> Vec<String> {
        validate(&Schema::parse(schema), object)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn violations_are_told_in_the_servers_words() {
        let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "required": ["image"], "properties": {
            "size": {"type": "integer", "minimum": 0},
            "name": {"type": "string", "minLength": 1, "pattern": "^a"},
            "flag": {"type": "string", "enum": ["last", "break"]},
        }}}});
        assert_eq!(
            messages(&schema, &json!({"spec": {"size": "x", "name": "", "flag": "no"}})),
            [
                "spec.image: Required value",
                "spec.flag: Unsupported value: \"no\": supported values: \"last\", \"break\"",
                "spec.name: Invalid value: \"\": spec.name in body should be at least 1 chars long",
                "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
            ]
        );
    }

    #[test]
    fn duplicates_in_map_lists_are_told_by_their_keys() {
        let schema = Schema::parse(&json!({"type": "object", "properties": {"ports": {"type": "array",
            "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port"],
            "items": {"type": "object", "properties": {"port": {"type": "integer"}}}}}}));
        let errors = lists(&schema, &json!({"ports": [{"port": 1}, {"port": 2}, {"port": 1}]}));
        let messages: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(messages, ["ports[2]: Duplicate value: {\"port\":1}"]);
    }
}
