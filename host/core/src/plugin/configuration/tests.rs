//! Which configurations a schema takes, what is said of the others, and what is not judged.

use std::time::Instant;

use serde_json::json;

use super::*;

fn problems(schema: &Value, configuration: &Value) -> String {
    match check(Some(schema), "it", configuration) {
        Ok(gaps) if gaps.is_empty() => String::new(),
        Ok(gaps) => format!("unjudged: {}", gaps.join("; ")),
        Err(ManifestError::Configuration { problems }) => problems,
        Err(error) => panic!("{error}"),
    }
}

fn schema() -> Value {
    json!({
        "type": "object", "additionalProperties": false, "required": ["host"],
        "properties": {
            "host": {"type": "string", "minLength": 1, "pattern": "^[a-z.]+$"},
            "istioGateway": {"type": "string"},
            "port": {"type": "integer", "minimum": 1, "maximum": 65535, "multipleOf": 2},
            "mode": {"enum": ["on", "off"]},
            "version": {"const": 2},
            "ratio": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
            "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": true},
            "pair": {"prefixItems": [{"type": "string"}, {"type": "integer"}], "items": false},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}, "maxProperties": 2},
            "ports": {"type": "object", "patternProperties": {"^p": {"type": "integer"}}, "additionalProperties": false},
            "either": {"anyOf": [{"type": "object", "properties": {"a": {"type": "string"}}}, {"type": "null"}]},
            "one": {"oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "node": {"$ref": "#/$defs/node"},
            "tls": {
                "if": {"properties": {"on": {"const": true}}, "required": ["on"]},
                "then": {"required": ["secret"]}, "else": {"maxProperties": 0}},
            "free": {"not": {"type": "string"}},
            "int": {"x-kubernetes-int-or-string": true},
            "none": {"type": "string", "nullable": true},
        },
        "$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"type": "integer"}}}},
    })
}

/// Configurations beside what is said of each; nothing if it fits.
const CASES: &str = r#"
{"host": "a.b"} =>
{"host": "a", "port": 80.0, "none": null, "either": null, "int": "x", "pair": ["a", 1]} =>
{"host": "a", "one": {"a": 1}, "tls": {"on": true, "secret": "s"}, "ports": {"p1": 1}} =>
{"host": "a", "istioGateway": 5} => istioGateway: it is a number; give a string (in YAML perhaps in quotes)
{"host": "a", "istioGatewya": "x"} => istioGatewya: the plugin has no such member; it has either, free
{} => host: it is missing; give it
[] => it is a list; give an object with members
{"host": ""} => host: it has 0 characters; give at least 1
{"host": "A"} => host: it does not match the pattern ^[a-z.]+$; correct it
{"host": "a", "port": 1.5} => port: it is a number; give a whole number
{"host": "a", "port": 65536} => port: it is more than 65535; give less
{"host": "a", "port": 3} => port: it is no multiple of 2; give one
{"host": "a", "mode": true} => mode: it is not one of "on", "off"; give one of them
{"host": "a", "version": 1} => version: it is another value than 2; give that
{"host": "a", "ratio": 1} => ratio: it is not less than 1; give less
{"host": "a", "names": []} => names: it has 0 items; give at least 1
{"host": "a", "names": ["a", 1]} => names[1]: it is a number; give a string
{"host": "a", "names": ["a", "a"]} => names: it has an item twice; remove one
{"host": "a", "pair": ["a", 1, 2]} => pair[2]: the schema takes nothing here; remove it
{"host": "a", "labels": {"x": 1}} => labels.x: it is a number; give a string
{"host": "a", "labels": {"x": "", "y": "", "z": ""}} => labels: it has 3 members; give at most 2
{"host": "a", "ports": {"q": 1}} => ports.q: the plugin has no such member; remove it
{"host": "a", "either": {"a": 1}} => either.a: it is a number; give a string
{"host": "a", "either": 1} => either: it has none of the forms that the schema takes; correct it
{"host": "a", "one": {"a": 1, "b": 1}} => one: it fits several forms of which the schema takes one
{"host": "a", "node": {"next": {"next": {"n": "1"}}}} => node.next.next.n: it is a string; give a whole number
{"host": "a", "tls": {"on": true}} => tls.secret: it is missing; give it
{"host": "a", "tls": {"on": false}} => tls: it has 1 members; give at most 0
{"host": "a", "free": "x"} => free: the schema excludes it; change it
"#;

#[test]
fn each_member_that_does_not_fit_is_named_with_cause_and_cure() {
    let schema = schema();
    for case in CASES.lines().filter(|line| !line.is_empty()) {
        let (configuration, problem) = case.split_once(" =>").unwrap();
        let (found, problem) = (
            problems(&schema, &serde_json::from_str(configuration).unwrap()),
            problem.trim(),
        );
        let is_it = if problem.is_empty() {
            found.is_empty()
        } else {
            found.starts_with(problem)
        };
        assert!(is_it, "{configuration}: {found}");
    }
    let several = problems(&schema, &json!({"istioGateway": 5, "mode": 1}));
    assert_eq!(several.matches("; give").count(), 3, "{several}");
}

#[test]
fn a_refusal_shows_no_value_of_the_configuration() {
    let schema = json!({"properties": {
        "password": {"type": "integer", "format": "password"}, "token": {"enum": ["a"], "writeOnly": true},
        "key": {"pattern": "^k"}, "list": {"items": {"maxLength": 1}}, "other": {"const": "x"},
    }, "additionalProperties": {"not": {}}});
    let configuration = json!({
        "password": "SECRET", "token": "SECRET", "key": "SECRET", "list": ["SECRET"], "other": "SECRET", "more": "SECRET"});
    let Err(error) = check(Some(&schema), "it", &configuration) else {
        panic!("it is taken")
    };
    assert!(!error.to_string().contains("SECRET"), "{error}");
    assert!(
        error
            .to_string()
            .ends_with("; correct spec.configuration of the Plugin, or --config"),
        "{error}"
    );
}

#[test]
fn what_cannot_be_judged_is_taken_and_named() {
    let any = json!({"a": {"b": "c"}});
    for (schema, gap) in [
        (json!("nonsense"), "a schema that is a string, and not an object"),
        (
            json!({"$ref": "https://example.com/schema"}),
            "the reference https://example.com/schema, which leads out of it",
        ),
        (
            json!({"$ref": "#/$defs/absent"}),
            "the reference #/$defs/absent, which leads out of it",
        ),
        (json!({"$ref": "#"}), "more levels and steps than the host follows"),
        (json!({"unevaluatedProperties": false}), "unevaluatedProperties"),
        (
            json!({"patternProperties": {"(?!x)": {"type": "integer"}}, "additionalProperties": false}),
            "the pattern (?!x)",
        ),
        (
            json!({"not": {"$ref": "other.json"}}),
            "the reference other.json, which leads out of it",
        ),
        (
            json!({"oneOf": [{"$ref": "other.json"}, true]}),
            "the reference other.json, which leads out of it",
        ),
    ] {
        assert_eq!(problems(&schema, &any), format!("unjudged: {gap}"), "{schema}");
    }
    for schema in [
        json!({}),
        json!(true),
        json!({"type": "strange"}),
        json!({"type": 5, "required": "a", "items": 7}),
    ] {
        assert_eq!(problems(&schema, &any), "", "{schema}");
    }
}

/// Each level holds the value against the next one twice.
#[test]
fn a_schema_that_grows_without_end_is_given_up_in_time() {
    let levels: Map<String, Value> = (0..64)
        .map(|level| {
            let next = json!({"$ref": format!("#/$defs/{}", level + 1)});
            (level.to_string(), json!({"allOf": [next, next], "anyOf": [next, next]}))
        })
        .collect();
    let begun = Instant::now();
    let found = problems(&json!({"$defs": levels, "$ref": "#/$defs/0"}), &json!({"a": 1}));
    assert!(found.contains("more levels and steps than the host follows"), "{found}");
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
}

#[test]
fn a_plugin_without_a_schema_takes_no_configuration_and_none_fits_every_schema() {
    for configuration in [json!({}), json!(null)] {
        assert!(check(None, "it", &configuration).is_ok());
    }
    let refused = check(None, "it", &json!({"a": 1})).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the plugin it takes no configuration; remove the one that it is given"
    );
    assert!(check(Some(&json!({"required": ["a"]})), "it", &Value::Null).is_ok());
}
