//! Owns whether a plugin's configuration fits the schema in its manifest, so that the field that does not is named before
//! the plugin is asked.
//!
//! Of JSON Schema (<https://json-schema.org/draft/2020-12/json-schema-validation>) that part is known which generators
//! write for configurations: types, bounds, members, items, alternatives and local references. What is not known, formats
//! and patterns among it, is left to the plugin, which reads its configuration anyway: a schema comes from a guest, and
//! a regular expression of a guest's is not run in the host.

use std::cell::Cell;
use std::cmp::Ordering;

use serde_json::Value;

/// The deepest that schemas are followed, references included.
const DEEPEST: usize = 64;

/// The most schemas that are looked at, since alternatives within alternatives multiply.
const MOST_STEPS: u32 = 100_000;

/// The longest value that a message shows, in characters.
const LONGEST_SHOWN: usize = 60;

/// A configuration that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the configuration does not fit the plugin's schema: {field} {problem}; correct it")]
pub struct ConfigurationError {
    /// The field, such as `.ports[0].name`; `.` is the whole.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub problem: String,
}

/// Holds a configuration against the schema of a manifest, which has none when the plugin takes no configuration.
pub fn check(schema: Option<&Value>, config: Option<&Value>) -> Result<(), ConfigurationError> {
    let Some(config) = config else { return Ok(()) };
    let Some(schema) = schema else {
        let is_empty = config.as_object().is_some_and(serde_json::Map::is_empty) || config.is_null();
        return if is_empty {
            Ok(())
        } else {
            Err(wrong("", "is given, but the plugin takes no configuration"))
        };
    };
    let checker = Checker {
        root: schema,
        steps: Cell::new(MOST_STEPS),
    };
    checker.check(schema, config, "", DEEPEST)
}

fn wrong(field: &str, problem: impl Into<String>) -> ConfigurationError {
    ConfigurationError {
        field: or_whole(field).to_owned(),
        problem: problem.into(),
    }
}

/// The field, or `.` where it is the whole document.
fn or_whole(field: &str) -> &str {
    if field.is_empty() { "." } else { field }
}

struct Checker<'a> {
    root: &'a Value,
    /// How many more schemas are looked at.
    steps: Cell<u32>,
}

impl Checker<'_> {
    fn check(&self, schema: &Value, value: &Value, field: &str, depth: usize) -> Result<(), ConfigurationError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(wrong(field, format!("is nested deeper than {DEEPEST} schemas")));
        };
        let Some(steps) = self.steps.get().checked_sub(1) else {
            return Err(wrong(field, format!("takes more than {MOST_STEPS} steps to check")));
        };
        self.steps.set(steps);
        match schema {
            Value::Bool(false) => return Err(wrong(field, "is not allowed")),
            Value::Object(_) => {}
            _ => return Ok(()),
        }
        if let Some(target) = schema["$ref"]
            .as_str()
            .and_then(|reference| reference.strip_prefix('#'))
        {
            let Some(target) = self.root.pointer(target) else {
                return Err(wrong(
                    field,
                    format!("has a schema that refers to #{target}, which is not there"),
                ));
            };
            self.check(target, value, field, depth)?;
        }
        if value.is_null() && schema["nullable"] == true {
            return Ok(());
        }
        check_type(schema, value, field)?;
        check_scalar(schema, value, field)?;
        self.check_alternatives(schema, value, field, depth)?;
        self.check_members(schema, value, field, depth)?;
        self.check_items(schema, value, field, depth)
    }

    fn check_alternatives(
        &self,
        schema: &Value,
        value: &Value,
        field: &str,
        depth: usize,
    ) -> Result<(), ConfigurationError> {
        for all in schemas(schema, "allOf") {
            self.check(all, value, field, depth)?;
        }
        for (keyword, exactly_one) in [("anyOf", false), ("oneOf", true)] {
            let alternatives = schemas(schema, keyword);
            if alternatives.is_empty() {
                continue;
            }
            let mut errors = Vec::new();
            for alternative in alternatives {
                errors.extend(self.check(alternative, value, field, depth).err());
            }
            let fitting = alternatives.len() - errors.len();
            if fitting == 0 {
                // The one that came furthest is most likely the one that was meant.
                let nearest = errors.into_iter().max_by_key(|error| error.field.len());
                return Err(nearest.unwrap_or_else(|| wrong(field, "fits none of what is allowed")));
            }
            if exactly_one && fitting > 1 {
                return Err(wrong(
                    field,
                    format!("fits {fitting} alternatives of which it may fit one"),
                ));
            }
        }
        Ok(())
    }

    fn check_members(
        &self,
        schema: &Value,
        value: &Value,
        field: &str,
        depth: usize,
    ) -> Result<(), ConfigurationError> {
        let Some(members) = value.as_object() else {
            return Ok(());
        };
        let properties = schema["properties"].as_object();
        for (name, member) in members {
            let field = format!("{field}.{name}");
            if let Some(schema) = properties.and_then(|properties| properties.get(name)) {
                self.check(schema, member, &field, depth)?;
            } else if schema["additionalProperties"] == false {
                let known: Vec<_> = properties
                    .into_iter()
                    .flatten()
                    .map(|(name, _)| name.as_str())
                    .collect();
                return Err(wrong(&field, format!("is unknown; known are [{}]", known.join(", "))));
            } else {
                self.check(&schema["additionalProperties"], member, &field, depth)?;
            }
        }
        let required = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        match required.into_iter().find(|name| !members.contains_key(*name)) {
            Some(missing) => Err(wrong(&format!("{field}.{missing}"), "is missing")),
            None => Ok(()),
        }
    }

    fn check_items(&self, schema: &Value, value: &Value, field: &str, depth: usize) -> Result<(), ConfigurationError> {
        let Some(items) = value.as_array() else { return Ok(()) };
        let bound = |name: &str| schema[name].as_u64().and_then(|bound| usize::try_from(bound).ok());
        if let Some(least) = bound("minItems").filter(|least| items.len() < *least) {
            return Err(wrong(
                field,
                format!("has {} items; the fewest are {least}", items.len()),
            ));
        }
        if let Some(most) = bound("maxItems").filter(|most| items.len() > *most) {
            return Err(wrong(field, format!("has {} items; the most are {most}", items.len())));
        }
        let list = or_whole(field);
        let mut checked = items.iter().enumerate();
        checked.try_for_each(|(index, item)| self.check(&schema["items"], item, &format!("{list}[{index}]"), depth))
    }
}

fn schemas<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema[keyword].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn check_type(schema: &Value, value: &Value, field: &str) -> Result<(), ConfigurationError> {
    let allowed: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => return Ok(()),
    };
    let fits = |name: &&str| match *name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => true,
    };
    if allowed.iter().any(fits) {
        return Ok(());
    }
    Err(wrong(
        field,
        format!("is {}; it must be {}", shown(value), allowed.join(" or ")),
    ))
}

fn check_scalar(schema: &Value, value: &Value, field: &str) -> Result<(), ConfigurationError> {
    let constant = schema.get("const").map(std::slice::from_ref);
    let allowed = schema["enum"].as_array().map(Vec::as_slice).or(constant);
    if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(value)) {
        let allowed: Vec<_> = allowed.iter().map(Value::to_string).collect();
        return Err(wrong(
            field,
            format!("is {}; it must be one of {}", shown(value), allowed.join(", ")),
        ));
    }
    if let Some(number) = value.as_f64() {
        for (keyword, words, wanted) in [
            ("minimum", "at least", &[Ordering::Greater, Ordering::Equal][..]),
            ("exclusiveMinimum", "more than", &[Ordering::Greater]),
            ("maximum", "at most", &[Ordering::Less, Ordering::Equal]),
            ("exclusiveMaximum", "less than", &[Ordering::Less]),
        ] {
            let Some(bound) = schema[keyword].as_f64() else {
                continue;
            };
            if !number.partial_cmp(&bound).is_some_and(|order| wanted.contains(&order)) {
                return Err(wrong(field, format!("is {value}; it must be {words} {bound}")));
            }
        }
    }
    if let Some(text) = value.as_str() {
        let length = text.chars().count() as u64;
        if let Some(least) = schema["minLength"].as_u64().filter(|least| length < *least) {
            return Err(wrong(field, format!("has {length} characters; the fewest are {least}")));
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            return Err(wrong(field, format!("has {length} characters; the most are {most}")));
        }
    }
    Ok(())
}

/// A value for people: what it is, and itself where that is short. A configuration holds no secrets, but a long one tells
/// nobody anything.
fn shown(value: &Value) -> String {
    match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        scalar => crate::answer::shorten(scalar.to_string(), LONGEST_SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object", "additionalProperties": false, "required": ["name"],
            "properties": {
                "name": {"type": "string", "minLength": 1, "maxLength": 5},
                "size": {"type": ["integer", "null"], "minimum": 1, "maximum": 10},
                "mode": {"enum": ["fast", "slow"]},
                "ports": {"type": "array", "maxItems": 2, "items": {"$ref": "#/$defs/port"}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "either": {"anyOf": [{"$ref": "#/$defs/port"}, {"type": "null"}]},
            },
            "$defs": {"port": {"type": "object", "required": ["port"], "properties": {"port": {"type": "integer"}}}},
        })
    }

    #[test]
    fn what_fits_passes() {
        for config in [
            json!({"name": "a"}),
            json!({"name": "a", "size": null, "mode": "fast", "ports": [{"port": 1}], "labels": {"a": "b"}}),
            json!({"name": "a", "size": 3.0, "either": null}),
        ] {
            assert_eq!(check(Some(&schema()), Some(&config)), Ok(()), "{config}");
        }
        assert_eq!(
            check(Some(&schema()), None),
            Ok(()),
            "the plugin has defaults of its own"
        );
    }

    #[test]
    fn the_field_that_does_not_fit_is_named_with_what_would() {
        for (config, field, words) in [
            (json!({}), ".name", "is missing"),
            (json!({"name": ""}), ".name", "the fewest are 1"),
            (json!({"name": "abcdef"}), ".name", "the most are 5"),
            (
                json!({"name": "a", "size": "big"}),
                ".size",
                "is \"big\"; it must be integer or null",
            ),
            (json!({"name": "a", "size": 11}), ".size", "it must be at most 10"),
            (json!({"name": "a", "size": 1.5}), ".size", "it must be integer"),
            (
                json!({"name": "a", "mode": "soon"}),
                ".mode",
                "one of \"fast\", \"slow\"",
            ),
            (
                json!({"name": "a", "ports": [{"port": 1}, {"port": "x"}]}),
                ".ports[1].port",
                "it must be integer",
            ),
            (json!({"name": "a", "ports": [{}]}), ".ports[0].port", "is missing"),
            (
                json!({"name": "a", "labels": {"a": 1}}),
                ".labels.a",
                "it must be string",
            ),
            (
                json!({"name": "a", "either": {"port": "x"}}),
                ".either.port",
                "it must be integer",
            ),
            (json!({"name": "a", "naem": 1}), ".naem", "is unknown; known are ["),
            (json!([]), ".", "is a list; it must be object"),
        ] {
            let error = check(Some(&schema()), Some(&config)).expect_err(&config.to_string());
            assert_eq!(error.field, field, "{error}");
            assert!(error.problem.contains(words), "{error}");
        }
    }

    #[test]
    fn an_item_of_a_document_that_is_a_list_has_a_field() {
        let schema = json!({"items": {"required": ["port"], "properties": {"port": {"type": "integer"}}}});
        let field = |config: Value| check(Some(&schema), Some(&config)).unwrap_err().field;
        assert_eq!(field(json!([{"port": 1}, {}])), ".[1].port");
        assert_eq!(field(json!([{"port": "x"}])), ".[0].port");
    }

    #[test]
    fn a_plugin_without_a_schema_takes_nothing() {
        assert_eq!(check(None, Some(&json!({}))), Ok(()));
        assert!(
            check(None, Some(&json!({"a": 1})))
                .unwrap_err()
                .to_string()
                .contains("takes no configuration")
        );
    }

    #[test]
    fn a_schema_that_refers_to_itself_comes_to_an_end() {
        let schema = json!({"$ref": "#"});
        assert!(
            check(Some(&schema), Some(&json!({})))
                .unwrap_err()
                .problem
                .contains("deeper")
        );
        let schema = json!({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]});
        assert!(check(Some(&schema), Some(&json!({}))).is_err(), "and soon");
    }
}
