//! Generates values by a CRD's schema out of a fuzzer's bytes: mostly values that an API server would store, sometimes
//! others.

use arbitrary::{Arbitrary as _, Result, Unstructured};
use pilothouse_testkit::properties::TEXTS;
use serde_json::{Map, Value, json};

/// The deepest that is made.
const DEEPEST: u32 = 12;

/// The most items or free members of one value.
const MOST: u8 = 4;

const NUMBERS: &[i64] = &[
    0,
    1,
    2,
    80,
    443,
    65_535,
    65_536,
    -1,
    i32::MAX as i64,
    i32::MIN as i64,
    i64::MAX,
    i64::MIN,
];

/// A value that fits the schema as far as its types go.
pub fn value(schema: &Value, input: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    if depth > DEEPEST {
        return Ok(Value::Null);
    }
    if let Some(choices) = schema["enum"].as_array() {
        return input.choose(choices).cloned();
    }
    if let Some(default) = schema.get("default")
        && input.ratio(1, 4)?
    {
        return Ok(default.clone());
    }
    if schema["nullable"] == true && input.ratio(1, 8)? {
        return Ok(Value::Null);
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if bool::arbitrary(input)? {
            number(schema, input)
        } else {
            text(input)
        };
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, input, depth),
        Some("array") => {
            let count = input.int_in_range(0..=MOST)?;
            let items: Result<Vec<Value>> = (0..count).map(|_| value(&schema["items"], input, depth + 1)).collect();
            Ok(Value::Array(items?))
        }
        Some("string") => text(input),
        Some("integer") => number(schema, input),
        Some("number") => Ok(json!(f64::from(i32::arbitrary(input)?) / 8.0)),
        Some("boolean") => Ok(json!(bool::arbitrary(input)?)),
        _ => anything(input, depth),
    }
}

fn object(schema: &Value, input: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    let mut members = Map::new();
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&name.as_str()) || input.ratio(1, 2)? {
            members.insert(name.clone(), value(member, input, depth + 1)?);
        }
    }
    let additional = &schema["additionalProperties"];
    if additional.is_object() || schema["x-kubernetes-preserve-unknown-fields"] == true {
        for _ in 0..input.int_in_range(0..=MOST)? {
            let name = (*input.choose(&TEXTS)?).to_owned();
            let member = if additional.is_object() {
                value(additional, input, depth + 1)?
            } else {
                anything(input, depth + 1)?
            };
            members.insert(name, member);
        }
    }
    Ok(Value::Object(members))
}

fn number(schema: &Value, input: &mut Unstructured<'_>) -> Result<Value> {
    let number = if bool::arbitrary(input)? {
        *input.choose(NUMBERS)?
    } else {
        i64::from(i16::arbitrary(input)?)
    };
    let least = schema["minimum"].as_i64().unwrap_or(i64::MIN);
    let most = schema["maximum"].as_i64().unwrap_or(i64::MAX);
    Ok(json!(number.clamp(least, most.max(least))))
}

fn text(input: &mut Unstructured<'_>) -> Result<Value> {
    match u8::arbitrary(input)? % 8 {
        0 => Ok(json!(String::arbitrary(input)?)),
        1 => Ok(json!("x".repeat(usize::from(u16::arbitrary(input)?)))),
        _ => Ok(json!(input.choose(&TEXTS)?)),
    }
}

/// Any JSON.
pub fn anything(input: &mut Unstructured<'_>, depth: u32) -> Result<Value> {
    if depth > DEEPEST {
        return Ok(Value::Null);
    }
    match u8::arbitrary(input)? % 6 {
        0 => Ok(Value::Null),
        1 => number(&Value::Null, input),
        2 => Ok(json!(bool::arbitrary(input)?)),
        3 => {
            let count = input.int_in_range(0..=MOST)?;
            (0..count).map(|_| anything(input, depth + 1)).collect()
        }
        4 => object(&json!({"x-kubernetes-preserve-unknown-fields": true}), input, depth),
        _ => text(input),
    }
}

/// Labels or annotations, some of them of these names.
pub fn marks(names: &[String], input: &mut Unstructured<'_>) -> Result<Value> {
    let mut marks = Map::new();
    for name in names {
        if input.ratio(2, 3)? {
            marks.insert(name.clone(), text(input)?);
        }
    }
    for _ in 0..input.int_in_range(0..=MOST)? {
        marks.insert((*input.choose(&TEXTS)?).to_owned(), text(input)?);
    }
    Ok(Value::Object(marks))
}
