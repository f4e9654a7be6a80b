//! Owns values that are made by a CRD's schema, within its limits, and changes to samples. Whether an API server would store
//! them, CEL rules included, is asked elsewhere.

use fastrand::Rng;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value, json};

/// The deepest that is made.
const DEEPEST: usize = 10;

/// The most items or free members of one value, where the schema does not want more.
const MOST: usize = 4;

/// The longest text that is made, where the schema does not want a longer one.
const LONGEST: usize = 300;

/// How often a part of a pattern that may be repeated without end is repeated at most.
const REPEATED: u32 = 4;

/// Texts that mean something somewhere, for values without a schema that says more.
pub const TEXTS: [&str; 34] = [
    "",
    "a",
    "web",
    "default",
    "web-1",
    "80",
    "-1",
    "0",
    "443",
    "TCP",
    "UDP",
    "http",
    "https",
    "example.com",
    "*.example.com",
    "http://example.com:8080/path",
    "10.0.0.1",
    "::1",
    "/",
    "/a b",
    "~ ^/(.*)$",
    "nginx:1.7.9",
    "true",
    "50%",
    "1h",
    "500m",
    "1Gi",
    "{}",
    "$host",
    "a;b}",
    "line\nline",
    "ü€",
    "2026-01-02T03:04:05Z",
    "example.com/name",
];

const NUMBERS: [i64; 11] = [
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
    9_007_199_254_740_993,
];

/// A value that fits the schema.
pub(super) fn value(schema: &Value, random: &mut Rng) -> Value {
    value_at(schema, random, 0)
}

fn value_at(schema: &Value, random: &mut Rng, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    if let Some(choices) = schema["enum"].as_array().filter(|choices| !choices.is_empty()) {
        return choices[random.usize(..choices.len())].clone();
    }
    if let Some(default) = schema.get("default")
        && random.u8(..4) == 0
    {
        return default.clone();
    }
    if schema["nullable"] == true && random.u8(..8) == 0 {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if random.bool() {
            number(schema, random)
        } else {
            text(schema, random)
        };
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        return json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "embedded"}, "data": {"a": "b"}});
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, random, depth),
        Some("array") => list(schema, random, depth),
        Some("string") => text(schema, random),
        Some("integer") => number(schema, random),
        Some("number") => match number(schema, random).as_i64() {
            Some(whole) if random.bool() => {
                let whole = f64::from(i32::try_from(whole).unwrap_or(i32::MAX));
                within(schema, whole + f64::from(random.u8(..8)) / 8.0)
            }
            whole => json!(whole),
        },
        Some("boolean") => json!(random.bool()),
        _ => anything(random, depth),
    }
}

fn limit(schema: &Value, name: &str) -> Option<usize> {
    schema[name].as_u64().and_then(|limit| usize::try_from(limit).ok())
}

fn object(schema: &Value, random: &mut Rng, depth: usize) -> Value {
    let mut members = Map::new();
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&name.as_str()) || random.bool() {
            members.insert(name.clone(), value_at(member, random, depth + 1));
        }
    }
    let additional = &schema["additionalProperties"];
    let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if additional.is_object() || is_free {
        let least = limit(schema, "minProperties").unwrap_or(0);
        let most = limit(schema, "maxProperties").unwrap_or(MOST.max(least));
        for index in 0..random.usize(least..=most.max(least).min(least + MOST)) {
            let name = if index < least {
                format!("key-{index}")
            } else {
                choice(random).to_owned()
            };
            let member = if additional.is_object() {
                value_at(additional, random, depth + 1)
            } else {
                anything(random, depth + 1)
            };
            members.insert(name, member);
        }
    }
    Value::Object(members)
}

fn list(schema: &Value, random: &mut Rng, depth: usize) -> Value {
    let least = limit(schema, "minItems").unwrap_or(0);
    let most = limit(schema, "maxItems")
        .unwrap_or(usize::MAX)
        .min(least + MOST)
        .max(least);
    let count = random.usize(least..=most);
    let mut items: Vec<Value> = (0..count)
        .map(|_| value_at(&schema["items"], random, depth + 1))
        .collect();
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => drop_doubles(&mut items, Value::clone),
        Some("map") => {
            let keys: Vec<String> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect();
            drop_doubles(&mut items, |item| keys.iter().map(|key| item[key].clone()).collect());
        }
        _ => {}
    }
    Value::Array(items)
}

fn drop_doubles(items: &mut Vec<Value>, key: impl Fn(&Value) -> Value) {
    let mut seen = Vec::new();
    items.retain(|item| {
        let key = key(item);
        let is_new = !seen.contains(&key);
        seen.push(key);
        is_new
    });
}

fn number(schema: &Value, random: &mut Rng) -> Value {
    let is_short = schema["format"] == "int32";
    let bound = |name: &str, exclusive: &str, step: i64| {
        let bound = schema[name].as_i64();
        bound.map(|bound| if schema[exclusive] == true { bound + step } else { bound })
    };
    let least =
        bound("minimum", "exclusiveMinimum", 1).unwrap_or(if is_short { i32::MIN.into() } else { i64::MIN / 2 });
    let most =
        bound("maximum", "exclusiveMaximum", -1).unwrap_or(if is_short { i32::MAX.into() } else { i64::MAX / 2 });
    let most = most.max(least);
    let drawn = match random.u8(..8) {
        0 => least,
        1 => most,
        2..=4 => NUMBERS[random.usize(..NUMBERS.len())],
        _ => random.i64(least.max(-100)..=most.min(10_000).max(least.max(-100))),
    };
    let drawn = drawn.clamp(least, most);
    match schema["multipleOf"].as_i64().filter(|step| *step > 0) {
        Some(step) => json!(drawn - drawn.rem_euclid(step)),
        None => json!(drawn),
    }
}

fn within(schema: &Value, number: f64) -> Value {
    let least = schema["minimum"].as_f64().unwrap_or(f64::MIN);
    let most = schema["maximum"].as_f64().unwrap_or(f64::MAX);
    json!(number.clamp(least, most.max(least)))
}

fn choice(random: &mut Rng) -> &'static str {
    TEXTS[random.usize(..TEXTS.len())]
}

fn text(schema: &Value, random: &mut Rng) -> Value {
    let least = limit(schema, "minLength").unwrap_or(0);
    let most = limit(schema, "maxLength").unwrap_or(usize::MAX);
    if let Some(pattern) = schema["pattern"].as_str()
        && let Some(text) = matching(pattern, random)
    {
        return text.into();
    }
    let mut text = match schema["format"].as_str() {
        Some("date-time") => "2026-01-02T03:04:05Z".to_owned(),
        Some("date") => "2026-01-02".to_owned(),
        Some("duration") => "1h30m0s".to_owned(),
        Some("ipv4") => "10.0.0.1".to_owned(),
        Some("ipv6") => "fd00::1".to_owned(),
        Some("cidr") => "10.0.0.0/8".to_owned(),
        Some("uri") => "http://example.com/a".to_owned(),
        Some("hostname") => "example.com".to_owned(),
        Some("email") => "a@example.com".to_owned(),
        Some("byte") => "aGVsbG8=".to_owned(),
        Some("uuid" | "uuid4") => "f81d4fae-7dec-41d0-a765-00a0c91e6bf6".to_owned(),
        _ => match random.u8(..12) {
            0 => (0..random.usize(..20))
                .map(|_| random.char(..))
                .filter(|letter| *letter != '\0')
                .collect(),
            1 => "x".repeat(random.usize(..LONGEST)),
            2 => "x".repeat(most.min(LONGEST)),
            _ => choice(random).to_owned(),
        },
    };
    let length = text.chars().count();
    if length < least {
        text.extend(std::iter::repeat_n('x', least - length));
    }
    if length > most {
        text = text.chars().take(most).collect();
    }
    text.into()
}

/// A text that matches a pattern; none where the pattern is not understood.
fn matching(pattern: &str, random: &mut Rng) -> Option<String> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let mut text = String::new();
    write_matching(&hir, random, &mut text)?;
    Some(text)
}

fn write_matching(hir: &Hir, random: &mut Rng, text: &mut String) -> Option<()> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => text.push_str(std::str::from_utf8(&literal.0).ok()?),
        HirKind::Class(Class::Unicode(class)) => {
            // Letters that people write are likelier to mean something than those at the end of Unicode.
            let ranges: Vec<_> = class
                .ranges()
                .iter()
                .filter(|range| range.start() < '\u{250}')
                .collect();
            let range = ranges.get(random.usize(..ranges.len().max(1)))?;
            text.push(random.char(range.start()..=range.end().min('\u{24f}').max(range.start())));
        }
        HirKind::Class(Class::Bytes(class)) => {
            let range = class.ranges().first()?;
            text.push(char::from(range.start()));
        }
        HirKind::Repetition(repeated) => {
            let most = repeated
                .max
                .unwrap_or(repeated.min + REPEATED)
                .min(repeated.min + REPEATED);
            for _ in 0..random.u32(repeated.min..=most) {
                write_matching(&repeated.sub, random, text)?;
            }
        }
        HirKind::Capture(capture) => write_matching(&capture.sub, random, text)?,
        HirKind::Concat(parts) => parts.iter().try_for_each(|part| write_matching(part, random, text))?,
        HirKind::Alternation(choices) => write_matching(&choices[random.usize(..choices.len())], random, text)?,
    }
    Some(())
}

fn anything(random: &mut Rng, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    match random.u8(..6) {
        0 => Value::Null,
        1 => number(&Value::Null, random),
        2 => json!(random.bool()),
        3 => (0..random.usize(..=MOST))
            .map(|_| anything(random, depth + 1))
            .collect(),
        4 => object(&json!({"x-kubernetes-preserve-unknown-fields": true}), random, depth),
        _ => text(&Value::Null, random),
    }
}

/// Changes one place of a value that fits the schema, if that is known: a member goes, comes or gets another value, an item
/// is doubled, dropped or moved.
pub(super) fn change(value: &mut Value, schema: &Value, random: &mut Rng) {
    match value {
        Value::Object(members) => {
            let known = schema["properties"].as_object();
            let mut names: Vec<String> = members.keys().cloned().collect();
            names.extend(known.into_iter().flatten().map(|(name, _)| name.clone()));
            names.sort();
            names.dedup();
            if names.is_empty() {
                return;
            }
            let name = &names[random.usize(..names.len())];
            let declared = &schema["properties"][name.as_str()];
            let below = if declared.is_null() {
                &schema["additionalProperties"]
            } else {
                declared
            };
            match members.get_mut(name) {
                Some(member) if random.u8(..4) > 0 => change(member, below, random),
                Some(_) if random.bool() => {
                    members.remove(name);
                }
                _ => {
                    members.insert(name.clone(), value_at(below, random, 2));
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let index = random.usize(..items.len());
            match random.u8(..6) {
                0 => items.push(items[index].clone()),
                1 => drop(items.remove(index)),
                2 => items.swap(0, index),
                _ => change(&mut items[index], &schema["items"], random),
            }
        }
        Value::Array(items) => items.push(value_at(&schema["items"], random, 2)),
        Value::String(_) => *value = text(schema, random),
        Value::Number(_) => *value = number(schema, random),
        Value::Bool(is_so) => *is_so = !*is_so,
        Value::Null => *value = value_at(schema, random, 2),
    }
}

/// Puts lists whose order has no meaning, as the schema says, into another order. Says whether there was one.
pub(super) fn reorder(value: &mut Value, schema: &Value) -> bool {
    let mut reordered = false;
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let declared = &schema["properties"][name.as_str()];
                let below = if declared.is_null() {
                    &schema["additionalProperties"]
                } else {
                    declared
                };
                reordered |= reorder(member, below);
            }
        }
        Value::Array(items) => {
            for item in &mut *items {
                reordered |= reorder(item, &schema["items"]);
            }
            if matches!(schema["x-kubernetes-list-type"].as_str(), Some("map" | "set")) && items.len() > 1 {
                items.reverse();
                reordered = true;
            }
        }
        _ => {}
    }
    reordered
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hundred(schema: &Value) -> Vec<Value> {
        let mut random = Rng::with_seed(7);
        (0..100).map(|_| value(schema, &mut random)).collect()
    }

    #[test]
    fn limits_of_the_schema_are_kept_and_reached() {
        let numbers = hundred(&json!({"type": "integer", "minimum": 1, "maximum": 9, "exclusiveMaximum": true}));
        assert!(numbers.iter().all(|it| (1..=8).contains(&it.as_i64().unwrap())));
        assert!(numbers.contains(&json!(1)) && numbers.contains(&json!(8)));
        let texts = hundred(&json!({"type": "string", "minLength": 3, "maxLength": 5}));
        assert!(
            texts
                .iter()
                .all(|it| (3..=5).contains(&it.as_str().unwrap().chars().count()))
        );
        let lists = hundred(
            &json!({"type": "array", "minItems": 1, "maxItems": 2, "items": {"enum": ["a", "b"]}, "x-kubernetes-list-type": "set"}),
        );
        assert!(lists.iter().all(|it| (1..=2).contains(&it.as_array().unwrap().len())));
        let objects = hundred(
            &json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}, "b": {"type": "boolean"}}}),
        );
        assert!(objects.iter().all(|it| it["a"].is_boolean()));
        assert!(objects.iter().any(|it| it.get("b").is_none()) && objects.iter().any(|it| it["b"].is_boolean()));
        let either = hundred(&json!({"x-kubernetes-int-or-string": true}));
        assert!(either.iter().any(Value::is_string) && either.iter().any(Value::is_number));
    }

    #[test]
    fn patterns_are_matched() {
        let pattern = "^[a-z]([-a-z0-9]*[a-z0-9])?(\\.[a-z]{2,3})+$";
        let texts = hundred(&json!({"type": "string", "pattern": pattern}));
        for text in &texts {
            let text = text.as_str().unwrap();
            assert!(
                text.contains('.') && text.starts_with(|it: char| it.is_ascii_lowercase()),
                "{text}"
            );
        }
    }

    #[test]
    fn the_same_seed_makes_the_same_values() {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(hundred(&schema), hundred(&schema));
    }

    #[test]
    fn only_lists_without_order_are_reordered() {
        let schema = json!({"properties": {"set": {"x-kubernetes-list-type": "set"}, "list": {}}});
        let mut value = json!({"set": [1, 2], "list": [1, 2]});
        assert!(reorder(&mut value, &schema));
        assert_eq!(value, json!({"set": [2, 1], "list": [1, 2]}));
    }
}
