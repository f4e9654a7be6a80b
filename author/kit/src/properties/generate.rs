//! Generates values by a CRD's schema, within its limits, and mutates samples. It does not check that an API server
//! would store them (CEL rules included).

use fastrand::Rng;
use pilothouse_simulator::built_in_definitions;
use regex_syntax::hir::{Class, Hir, HirKind};
use serde_json::{Map, Value, json};

/// The deepest that is made.
const DEEPEST: usize = 10;

/// The most items or free members of one value, where the schema does not want more.
const MOST: usize = 4;

/// The longest text that is made, where the schema does not want a longer one.
const LONGEST: usize = 300;

/// Maximum repetitions of a part of a pattern that may be repeated without end.
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

/// One in so many drawings goes to the limits that the schema names. Such objects are large, and each takes long.
const LARGE_ONE_IN: u8 = 16;

/// The longest text that is made, in bytes, where the schema allows one of more than [`LONGEST`] letters.
const LONGEST_AT_LIMIT: usize = 256 << 10;

/// The most items or free members of one value, where the schema allows more than [`MOST`].
const MOST_AT_LIMIT: usize = 1000;

/// Total size of the values that go to limits, in bytes. etcd takes requests of 1.5 MiB, which hold metadata, too.
const ROOM: usize = 1 << 20;

/// The pattern that generators of CRDs give to quantities, from k8s.io/apimachinery.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Keywords of limits that can be large.
const LIMITS: [&str; 3] = ["maxLength", "maxItems", "maxProperties"];

/// Minimum size of an item or a member, in bytes, with its name.
const ITEM: usize = 32;

/// Source of randomness of one object, and its room.
pub(super) struct Drawing<'a> {
    pub(super) random: &'a mut Rng,
    /// Bytes that values at the limits may still fill; none where no limit is to be reached.
    room: Option<usize>,
}

impl<'a> Drawing<'a> {
    /// Draws small values, and sometimes values at the limits that the schema names.
    pub(super) fn new(random: &'a mut Rng) -> Self {
        let room = (random.u8(..LARGE_ONE_IN) == 0).then_some(ROOM);
        Self { random, room }
    }

    /// Draws small values.
    pub(super) fn small(random: &'a mut Rng) -> Self {
        Self { random, room: None }
    }

    /// Decides by chance whether the next value is as large as its schema allows.
    fn draw_large(&mut self) -> bool {
        self.room.is_some() && !self.is_full() && self.random.u8(..4) > 0
    }

    /// Returns `true` if no room is left, so that the next value has to be as small as its schema allows.
    fn is_full(&self) -> bool {
        self.room.is_some_and(|room| room < ITEM)
    }

    /// Reserves room for pieces of this size; returns as many of the wanted ones as fit.
    fn take(&mut self, wanted: usize, size: usize) -> usize {
        let Some(room) = &mut self.room else { return wanted };
        let taken = wanted.min(*room / size);
        *room -= taken * size;
        taken
    }
}

/// A value that fits the schema, without going to large limits.
pub(super) fn value(schema: &Value, random: &mut Rng) -> Value {
    drawn(schema, &mut Drawing::small(random))
}

/// A value that fits the schema.
pub(super) fn drawn(schema: &Value, drawing: &mut Drawing<'_>) -> Value {
    value_at(schema, drawing, 0)
}

fn value_at(schema: &Value, drawing: &mut Drawing<'_>, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    if let Some(choices) = schema["enum"].as_array().filter(|choices| !choices.is_empty()) {
        return choices[drawing.random.usize(..choices.len())].clone();
    }
    if let Some(default) = schema.get("default")
        && drawing.random.u8(..4) == 0
    {
        return default.clone();
    }
    if schema["nullable"] == true && drawing.random.u8(..8) == 0 {
        return Value::Null;
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return if drawing.random.bool() {
            number(schema, drawing)
        } else {
            text(schema, drawing)
        };
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        return json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "embedded"}, "data": {"a": "b"}});
    }
    match schema["type"].as_str() {
        Some("object") => object(schema, drawing, depth),
        Some("array") => list(schema, drawing, depth),
        Some("string") => text(schema, drawing),
        Some("integer") => number(schema, drawing),
        Some("number") => match number(schema, drawing).as_i64() {
            Some(whole) if drawing.random.bool() => {
                let whole = f64::from(i32::try_from(whole).unwrap_or(i32::MAX));
                within(schema, whole + f64::from(drawing.random.u8(..8)) / 8.0)
            }
            whole => json!(whole),
        },
        Some("boolean") => json!(drawing.random.bool()),
        _ => anything(drawing, depth),
    }
}

fn limit(schema: &Value, name: &str) -> Option<usize> {
    schema[name].as_u64().and_then(|limit| usize::try_from(limit).ok())
}

fn object(schema: &Value, drawing: &mut Drawing<'_>, depth: usize) -> Value {
    let mut members = Map::new();
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        if required.contains(&name.as_str()) || (!drawing.is_full() && drawing.random.bool()) {
            members.insert(name.clone(), value_at(member, drawing, depth + 1));
        }
    }
    let additional = &schema["additionalProperties"];
    let is_free = schema["x-kubernetes-preserve-unknown-fields"] == true;
    if additional.is_object() || is_free {
        let least = limit(schema, "minProperties").unwrap_or(0);
        let limit = limit(schema, "maxProperties");
        let most = limit.unwrap_or(MOST.max(least));
        let large = large_count(limit, least, drawing);
        let count = large.unwrap_or_else(|| drawing.random.usize(least..=most.max(least).min(least + MOST)));
        for index in 0..count {
            let name = if index < least || large.is_some() {
                format!("key-{index}")
            } else {
                choice(drawing).to_owned()
            };
            let member = if additional.is_object() {
                value_at(additional, drawing, depth + 1)
            } else {
                anything(drawing, depth + 1)
            };
            members.insert(name, member);
        }
    }
    Value::Object(members)
}

/// Returns the count of items or free members where the limit is to be reached, or no room is left.
fn large_count(limit: Option<usize>, least: usize, drawing: &mut Drawing<'_>) -> Option<usize> {
    if drawing.is_full() {
        return Some(least);
    }
    let limit = limit.filter(|_| drawing.draw_large())?;
    Some(drawing.take(limit.min(MOST_AT_LIMIT), ITEM).max(least))
}

fn list(schema: &Value, drawing: &mut Drawing<'_>, depth: usize) -> Value {
    let least = limit(schema, "minItems").unwrap_or(0);
    let limit = limit(schema, "maxItems");
    let most = limit.unwrap_or(usize::MAX).min(least + MOST).max(least);
    let large = large_count(limit, least, drawing);
    let count = large.unwrap_or_else(|| drawing.random.usize(least..=most));
    let mut items: Vec<Value> = (0..count)
        .map(|_| value_at(&schema["items"], drawing, depth + 1))
        .collect();
    match schema["x-kubernetes-list-type"].as_str() {
        Some("set") => {
            // So that there are as many different ones as the limit says.
            for (index, item) in items.iter_mut().enumerate().filter(|_| large.is_some()) {
                number_item(item, &schema["items"], index);
            }
            drop_doubles(&mut items, Value::clone);
        }
        Some("map") => {
            let keys: Vec<String> = schema["x-kubernetes-list-map-keys"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect();
            let first = keys.first().map(String::as_str).unwrap_or_default();
            for (index, item) in items.iter_mut().enumerate().filter(|_| large.is_some()) {
                if let Some(key) = item.get_mut(first) {
                    number_item(key, &schema["items"]["properties"][first], index);
                }
            }
            drop_doubles(&mut items, |item| keys.iter().map(|key| item[key].clone()).collect());
        }
        _ => {}
    }
    Value::Array(items)
}

/// Sets a value that no other index has in an item, where its schema is known to allow one.
fn number_item(item: &mut Value, schema: &Value, index: usize) {
    let says_more = ["enum", "pattern", "format", "multipleOf", "maximum"];
    if says_more.iter().any(|name| schema.get(name).is_some()) {
        return;
    }
    match item {
        Value::String(text) => {
            let number = index.to_string();
            let kept = text.chars().count().saturating_sub(number.len());
            let most = limit(schema, "maxLength").unwrap_or(usize::MAX);
            if number.len() <= most {
                *text = text.chars().take(kept).chain(number.chars()).collect();
            }
        }
        Value::Number(number) => *number = (schema["minimum"].as_u64().unwrap_or(0) + index as u64).into(),
        _ => {}
    }
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

fn number(schema: &Value, drawing: &mut Drawing<'_>) -> Value {
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
    let drawn = match drawing.random.u8(..8) {
        0 => least,
        1 => most,
        2..=4 => NUMBERS[drawing.random.usize(..NUMBERS.len())],
        _ => drawing
            .random
            .i64(least.max(-100)..=most.min(10_000).max(least.max(-100))),
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

fn choice(drawing: &mut Drawing<'_>) -> &'static str {
    TEXTS[drawing.random.usize(..TEXTS.len())]
}

fn text(schema: &Value, drawing: &mut Drawing<'_>) -> Value {
    let least = limit(schema, "minLength").unwrap_or(0);
    let limit = limit(schema, "maxLength");
    let most = limit.unwrap_or(usize::MAX);
    let large = limit.filter(|_| drawing.draw_large());
    if let Some(pattern) = schema["pattern"].as_str() {
        let length = large.map(|limit| drawing.take(limit.min(LONGEST_AT_LIMIT), 1));
        if let Some(mut text) = matching(pattern, length, drawing) {
            if pattern == QUANTITY {
                keep_readable(&mut text);
            }
            return text.into();
        }
    }
    if let (Some(limit), None) = (large, schema.get("format")) {
        // Limits count letters, and a plugin may count bytes.
        let letter = if drawing.random.bool() { 'x' } else { '€' };
        let count = drawing.take(limit.min(LONGEST_AT_LIMIT / letter.len_utf8()), letter.len_utf8());
        let text: String = std::iter::repeat_n(letter, count.max(least)).collect();
        return text.into();
    }
    let mut text = match schema["format"].as_str() {
        None if drawing.is_full() => String::new(),
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
        _ => match drawing.random.u8(..12) {
            0 => (0..drawing.random.usize(..20))
                .map(|_| drawing.random.char(..))
                .filter(|letter| *letter != '\0')
                .collect(),
            1 => "x".repeat(drawing.random.usize(..LONGEST)),
            2 => "x".repeat(most.min(LONGEST)),
            _ => choice(drawing).to_owned(),
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

/// Removes a form that the pattern of quantities allows and no API server reads: an exponent with a point, as in
/// "1E.5".
fn keep_readable(quantity: &mut String) {
    if let Some(exponent) = quantity.find(['e', 'E'])
        && quantity[exponent..].contains('.')
    {
        quantity.truncate(exponent);
    }
}

/// A text that matches a pattern; none where the pattern is not understood. With a length it is filled up to it, as far as
/// the pattern has parts that may be repeated so often.
fn matching(pattern: &str, length: Option<usize>, drawing: &mut Drawing<'_>) -> Option<String> {
    let hir = regex_syntax::parse(pattern).ok()?;
    let mut spare = length.map(|length| length.saturating_sub(shortest(&hir)));
    let mut text = String::new();
    write_matching(&hir, &mut spare, drawing, &mut text)?;
    Some(text)
}

/// The length of the shortest text that matches. It counts bytes, which letters that people write in patterns are.
fn shortest(hir: &Hir) -> usize {
    hir.properties().minimum_len().unwrap_or(0)
}

/// Writes a text that matches. With `spare`, so many letters are added to the required ones.
fn write_matching(hir: &Hir, spare: &mut Option<usize>, drawing: &mut Drawing<'_>, text: &mut String) -> Option<()> {
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
            let range = ranges.get(drawing.random.usize(..ranges.len().max(1)))?;
            let last = range.end().min('\u{24f}').max(range.start());
            text.push(drawing.random.char(range.start()..=last));
        }
        HirKind::Class(Class::Bytes(class)) => {
            let range = class.ranges().first()?;
            text.push(char::from(range.start()));
        }
        HirKind::Repetition(repeated) => {
            let count = if let Some(spare) = spare {
                let each = shortest(&repeated.sub).max(1);
                let most = repeated.max.unwrap_or(u32::MAX) - repeated.min;
                let further = most.min(u32::try_from(*spare / each).unwrap_or(u32::MAX));
                *spare -= further as usize * each;
                repeated.min + further
            } else {
                let most = repeated.min.saturating_add(REPEATED);
                let most = repeated.max.map_or(most, |max| max.min(most));
                drawing.random.u32(repeated.min..=most)
            };
            for _ in 0..count {
                write_matching(&repeated.sub, spare, drawing, text)?;
            }
        }
        HirKind::Capture(capture) => write_matching(&capture.sub, spare, drawing, text)?,
        HirKind::Concat(parts) => {
            for part in parts {
                write_matching(part, spare, drawing, text)?;
            }
        }
        HirKind::Alternation(choices) => {
            let choice = match spare {
                Some(_) => choices.iter().min_by_key(|choice| shortest(choice))?,
                None => &choices[drawing.random.usize(..choices.len())],
            };
            write_matching(choice, spare, drawing, text)?;
        }
    }
    Some(())
}

fn anything(drawing: &mut Drawing<'_>, depth: usize) -> Value {
    if depth > DEEPEST {
        return Value::Null;
    }
    match drawing.random.u8(..6) {
        0 => Value::Null,
        1 => number(&Value::Null, drawing),
        2 => json!(drawing.random.bool()),
        3 => (0..drawing.random.usize(..=MOST))
            .map(|_| anything(drawing, depth + 1))
            .collect(),
        4 => object(&json!({"x-kubernetes-preserve-unknown-fields": true}), drawing, depth),
        _ => text(&Value::Null, drawing),
    }
}

/// Changes one place of a value that fits the schema, if that is known: a member goes, comes or gets another value, an item
/// is doubled, dropped or moved.
pub(super) fn change(value: &mut Value, schema: &Value, drawing: &mut Drawing<'_>) {
    let has_limit = LIMITS.iter().any(|name| schema.get(name).is_some());
    if has_limit && drawing.draw_large() {
        *value = value_at(schema, drawing, 2);
        return;
    }
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
            let name = &names[drawing.random.usize(..names.len())];
            let declared = &schema["properties"][name.as_str()];
            let below = if declared.is_null() {
                &schema["additionalProperties"]
            } else {
                declared
            };
            match members.get_mut(name) {
                Some(member) if drawing.random.u8(..4) > 0 => change(member, below, drawing),
                Some(_) if drawing.random.bool() => {
                    members.remove(name);
                }
                _ => {
                    members.insert(name.clone(), value_at(below, drawing, 2));
                }
            }
        }
        Value::Array(items) if !items.is_empty() => {
            let index = drawing.random.usize(..items.len());
            match drawing.random.u8(..6) {
                0 => items.push(items[index].clone()),
                1 => drop(items.remove(index)),
                2 => items.swap(0, index),
                _ => change(&mut items[index], &schema["items"], drawing),
            }
        }
        Value::Array(items) => items.push(value_at(&schema["items"], drawing, 2)),
        Value::String(_) => *value = text(schema, drawing),
        Value::Number(_) => *value = number(schema, drawing),
        Value::Bool(is_so) => *is_so = !*is_so,
        Value::Null => *value = value_at(schema, drawing, 2),
    }
}

/// Origin of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// The author of a CRD, who says of each list whether its order has a meaning.
    Crd,
    /// Schema of Kubernetes, which also calls lists maps whose order has a meaning, see [`ORDERED`].
    BuiltIn,
}

/// Lists of Kubernetes' own kinds that are merged by key and whose order has a meaning all the same: init containers run one
/// after the other, the first container is the one that kubectl means, and a variable refers to those before it.
const ORDERED: [&str; 4] = ["containers", "env", "ephemeralContainers", "initContainers"];

/// Reorders lists whose order has no meaning by the schema. Returns `true` if there was one.
pub(super) fn reorder(value: &mut Value, schema: &Value, origin: Origin) -> bool {
    let schema = resolved(schema);
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
                let is_ordered = origin == Origin::BuiltIn && ORDERED.contains(&name.as_str());
                match (is_ordered, member) {
                    (true, Value::Array(items)) => {
                        for item in items {
                            reordered |= reorder(item, &below["items"], origin);
                        }
                    }
                    (_, member) => reordered |= reorder(member, below, origin),
                }
            }
        }
        Value::Array(items) => {
            for item in &mut *items {
                reordered |= reorder(item, &schema["items"], origin);
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

/// A schema, or the definition of Kubernetes that it refers to.
fn resolved(schema: &Value) -> &Value {
    let reference = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
    let name = reference.and_then(|reference| reference.rsplit('/').next());
    name.and_then(|name| built_in_definitions().get(name)).unwrap_or(schema)
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

    /// Values of which one in some goes to the limits.
    fn drawn_hundreds(schema: &Value) -> Vec<Value> {
        let mut random = Rng::with_seed(7);
        (0..300)
            .map(|_| drawn(schema, &mut Drawing::new(&mut random)))
            .collect()
    }

    fn longest(values: &[Value]) -> usize {
        values
            .iter()
            .map(|it| it.as_str().unwrap().chars().count())
            .max()
            .unwrap()
    }

    #[test]
    fn large_limits_are_reached_now_and_then() {
        let schema = json!({"type": "array", "maxItems": 50, "items": {"type": "string", "maxLength": 10_000}});
        let lists = drawn_hundreds(&schema);
        let lists: Vec<&Vec<Value>> = lists.iter().map(|it| it.as_array().unwrap()).collect();
        let full: Vec<_> = lists.iter().filter(|list| list.len() == 50).collect();
        assert!((5..30).contains(&full.len()), "{} of 300 are full", full.len());
        assert!(full.iter().any(|list| longest(list) == 10_000));
        assert!(
            lists
                .iter()
                .all(|list| list.len() <= 50 && list.iter().all(|it| it.as_str().unwrap().chars().count() <= 10_000))
        );

        let map = json!({"type": "object", "additionalProperties": {"type": "boolean"}, "maxProperties": 70});
        let counts: Vec<usize> = drawn_hundreds(&map)
            .iter()
            .map(|it| it.as_object().unwrap().len())
            .collect();
        assert_eq!(counts.iter().max(), Some(&70));

        let set = json!({"type": "array", "maxItems": 60, "items": {"type": "string", "maxLength": 9}, "x-kubernetes-list-type": "set"});
        let keyed = json!({"type": "array", "maxItems": 60, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 3}}}});
        for schema in [set, keyed] {
            let counts: Vec<usize> = drawn_hundreds(&schema)
                .iter()
                .map(|it| it.as_array().unwrap().len())
                .collect();
            assert_eq!(counts.iter().max(), Some(&60), "{schema}");
        }
    }

    #[test]
    fn patterns_are_filled_up_to_the_limit() {
        for (pattern, limit) in [
            ("^[a-z]([-a-z0-9]*[a-z0-9])?$", 63),
            ("^(a|bcd)+\\.[0-9]{2,3}$", 40),
            ("^([a-z]{2}:)*$", 300),
        ] {
            let schema = json!({"type": "string", "pattern": pattern, "maxLength": limit});
            let texts = drawn_hundreds(&schema);
            assert_eq!(longest(&texts), limit, "{pattern}");
        }
    }

    #[test]
    fn no_object_is_larger_than_what_an_api_server_stores() {
        let text = json!({"type": "string", "maxLength": 10_000_000});
        let list = |items: &Value| json!({"type": "array", "maxItems": 100_000, "items": items});
        let map = |member: &Value| json!({"type": "object", "maxProperties": 100_000, "additionalProperties": member});
        for schema in [list(&text), list(&list(&list(&text))), map(&map(&list(&text)))] {
            let sizes = drawn_hundreds(&schema);
            let sizes = sizes.iter().map(|it| it.to_string().len());
            let largest = sizes.max().unwrap();
            assert!((250_000..1_400_000).contains(&largest), "{largest} bytes");
        }
    }

    #[test]
    fn quantities_have_no_exponent_that_no_server_reads() {
        let quantities = drawn_hundreds(&json!({"type": "string", "pattern": QUANTITY}));
        let mut with_exponents = 0;
        for quantity in &quantities {
            let quantity = quantity.as_str().unwrap();
            with_exponents += usize::from(quantity.contains('e'));
            let exponent = quantity.split_once(['e', 'E']).map(|(_, exponent)| exponent);
            assert!(!exponent.unwrap_or_default().contains('.'), "{quantity}");
        }
        assert!(with_exponents > 0, "some have one");
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
        assert!(reorder(&mut value, &schema, Origin::Crd));
        assert_eq!(value, json!({"set": [2, 1], "list": [1, 2]}));
    }

    #[test]
    fn built_in_lists_are_reordered_where_order_has_no_meaning() {
        let schema = &built_in_definitions()["io.k8s.api.core.v1.Pod"];
        let pod = |ports: [u8; 2]| {
            let ports: Vec<Value> = ports.iter().map(|port| json!({"containerPort": port})).collect();
            let container = json!({"name": "a", "env": [{"name": "A"}, {"name": "B"}], "ports": ports});
            json!({"spec": {"initContainers": [container, {"name": "b"}], "tolerations": [{"key": "a"}, {"key": "b"}]}})
        };
        let mut value = pod([1, 2]);
        assert!(reorder(&mut value, schema, Origin::BuiltIn));
        assert_eq!(
            value,
            pod([2, 1]),
            "tolerations are atomic, variables and init containers have an order"
        );
    }
}
