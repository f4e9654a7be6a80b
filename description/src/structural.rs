//! Checks that a schema is structural, as API servers do before they accept a CRD. The rules are those of
//! apiextensions.k8s.io/v1:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.
//! Patterns, CEL rules and default values are left to the server.

use serde_json::{Map, Value};

/// Types that a schema may have.
const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Members of JSON Schema that no schema of a CRD may have.
const FORBIDDEN: [&str; 7] = [
    "$ref",
    "additionalItems",
    "definitions",
    "dependencies",
    "id",
    "patternProperties",
    "$defs",
];

/// Members that a schema below allOf, anyOf, oneOf or not may not have: they describe a value rather than restrict it.
const NOT_NESTED: [&str; 13] = [
    "type",
    "additionalProperties",
    "default",
    "title",
    "description",
    "nullable",
    "externalDocs",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

/// Returns the problems of the schema of a CRD's version, each with the path of its field, such as `.spec.ports[]`.
pub fn problems(schema: &Value) -> Vec<String> {
    let mut found = Problems(Vec::new());
    found.check(schema, "", Level::Root);
    found.0
}

/// Position of a schema.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Inner,
}

struct Problems(Vec<String>);

impl Problems {
    fn add(&mut self, path: &str, problem: impl AsRef<str>) {
        let path = if path.is_empty() { "the root" } else { path };
        self.0.push(format!("{path} {}", problem.as_ref()));
    }

    fn check(&mut self, schema: &Value, path: &str, level: Level) {
        let Some(members) = schema.as_object() else {
            self.add(
                path,
                format!("has {schema} in place of a schema; any value is {PRESERVE}: true"),
            );
            return;
        };
        self.check_type(members, path, level);
        self.check_members(members, path);
        self.check_list(members, path);
        self.check_map(members, path, level);
        for (name, property) in object(members, "properties") {
            self.check(property, &format!("{path}.{name}"), Level::Inner);
        }
        match members.get("items") {
            None | Some(Value::Null) if members.get("type") == Some(&"array".into()) => {
                self.add(path, "is a list whose items have no schema; give it items");
            }
            Some(Value::Array(_)) => self.add(path, "has a list of schemas as items; give it one"),
            None | Some(Value::Null) => {}
            Some(items) => self.check(items, &format!("{path}[]"), Level::Inner),
        }
        if let Some(others) = members.get("additionalProperties").filter(|it| it.is_object()) {
            self.check(others, &format!("{path}.*"), Level::Inner);
        }
        let is_either = is_int_or_string(members);
        for (place, variant) in nested(members) {
            let is_first = place == "allOf[0]";
            if is_either && (place.starts_with("anyOf") || is_first && is_int_or_string_pattern(&variant["anyOf"])) {
                continue;
            }
            self.check_nested(variant, schema, path, &place);
        }
    }

    fn check_type(&mut self, members: &Map<String, Value>, path: &str, level: Level) {
        let type_ = members.get("type").filter(|type_| !type_.is_null());
        let is_open = is_true(members, PRESERVE) || is_true(members, INT_OR_STRING);
        match type_ {
            Some(Value::String(type_)) if TYPES.contains(&type_.as_str()) => {
                if level == Level::Root && type_ != "object" {
                    self.add(path, format!("has the type {type_}; it is object"));
                }
                if is_true(members, EMBEDDED) && type_ != "object" {
                    self.add(
                        path,
                        format!("has the type {type_} and {EMBEDDED}: true, which needs type: object"),
                    );
                }
            }
            Some(Value::String(type_)) if type_ == "null" => {
                self.add(path, "has the type null; a value that may be null is nullable: true");
            }
            Some(type_) => self.add(
                path,
                format!("has the type {type_}, which is none of {}", TYPES.join(", ")),
            ),
            None if is_true(members, EMBEDDED) => {
                self.add(path, format!("has {EMBEDDED}: true, which needs type: object"));
            }
            None if !is_open || level == Level::Root && !is_true(members, PRESERVE) => {
                self.add(path, format!("has no type; a value of any type is {PRESERVE}: true"));
            }
            None => {}
        }
        if is_true(members, INT_OR_STRING) && (is_true(members, PRESERVE) || is_true(members, EMBEDDED)) {
            self.add(
                path,
                format!("has {INT_OR_STRING}: true beside {PRESERVE} or {EMBEDDED}; keep one of them"),
            );
        }
    }

    fn check_members(&mut self, members: &Map<String, Value>, path: &str) {
        for name in FORBIDDEN.into_iter().filter(|name| members.contains_key(*name)) {
            self.add(path, format!("has {name}, which no schema of a CRD has"));
        }
        if is_true(members, "uniqueItems") {
            self.add(
                path,
                "has uniqueItems: true; a list without repetitions is x-kubernetes-list-type: set",
            );
        }
        let others = members.get("additionalProperties").filter(|it| !it.is_null());
        if others == Some(&Value::Bool(false)) {
            self.add(
                path,
                "has additionalProperties: false; leave it out, since fields that are not declared are dropped",
            );
        } else if others.is_some() && object(members, "properties").next().is_some() {
            self.add(path, "has properties and additionalProperties; keep one of them");
        }
        if others.is_some() && path.is_empty() {
            self.add(
                path,
                "has additionalProperties, which the root of an object cannot have",
            );
        }
        if is_true(members, EMBEDDED) && !is_true(members, PRESERVE) && object(members, "properties").next().is_none() {
            self.add(
                path,
                format!("has {EMBEDDED}: true and no properties; give it {PRESERVE}: true"),
            );
        }
    }

    fn check_list(&mut self, members: &Map<String, Value>, path: &str) {
        let keys: Vec<&str> = members
            .get("x-kubernetes-list-map-keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let list_type = members.get("x-kubernetes-list-type").and_then(Value::as_str);
        let items = members.get("items").and_then(Value::as_object);
        if list_type.is_some() && members.get("type") != Some(&"array".into()) {
            self.add(path, "has x-kubernetes-list-type and is no list");
        }
        match list_type {
            Some("map") if keys.is_empty() => {
                self.add(
                    path,
                    "has x-kubernetes-list-type: map and no x-kubernetes-list-map-keys",
                );
            }
            Some("map") => {
                let Some(items) = items else { return };
                for key in keys {
                    let property = object(items, "properties").find(|(name, _)| *name == key);
                    let is_required = items
                        .get("required")
                        .and_then(Value::as_array)
                        .is_some_and(|required| required.iter().any(|it| it == key));
                    match property {
                        None => self.add(path, format!("has the key {key}, which its items do not declare")),
                        Some((_, it)) if it["type"] == "object" || it["type"] == "array" => {
                            self.add(path, format!("has the key {key}, which is no scalar"));
                        }
                        Some((_, it)) if it["nullable"] == true => {
                            self.add(
                                path,
                                format!("has the key {key}, which may be null; leave nullable out"),
                            );
                        }
                        Some((_, it)) if !is_required && it.get("default").is_none() => {
                            self.add(
                                path,
                                format!("has the key {key}, which is neither required nor has a default"),
                            );
                        }
                        Some(_) => {}
                    }
                }
            }
            Some("set") => {
                let is_whole = |items: &Map<String, Value>| match items.get("type").and_then(Value::as_str) {
                    Some("object") => items.get("x-kubernetes-map-type") == Some(&"atomic".into()),
                    Some("array") => matches!(
                        items.get("x-kubernetes-list-type").and_then(Value::as_str),
                        None | Some("atomic")
                    ),
                    _ => true,
                };
                if items.is_some_and(|items| !is_whole(items)) {
                    self.add(
                        path,
                        "has x-kubernetes-list-type: set, whose items are scalars or atomic",
                    );
                }
            }
            Some("atomic") | None if !keys.is_empty() => {
                self.add(
                    path,
                    "has x-kubernetes-list-map-keys without x-kubernetes-list-type: map",
                );
            }
            Some("atomic") | None => {}
            Some(other) => self.add(
                path,
                format!("has x-kubernetes-list-type: {other}, which is none of atomic, map, set"),
            ),
        }
    }

    fn check_map(&mut self, members: &Map<String, Value>, path: &str, level: Level) {
        if let Some(map_type) = members.get("x-kubernetes-map-type").and_then(Value::as_str) {
            if !["atomic", "granular"].contains(&map_type) {
                self.add(
                    path,
                    format!("has x-kubernetes-map-type: {map_type}, which is none of atomic, granular"),
                );
            }
            if members.get("type") != Some(&"object".into()) {
                self.add(path, "has x-kubernetes-map-type and is no object");
            }
        }
        let is_whole = level == Level::Root || is_true(members, EMBEDDED);
        for (name, property) in object(members, "properties").filter(|_| is_whole) {
            let expected = match name {
                "apiVersion" | "kind" => "string",
                "metadata" => "object",
                _ => continue,
            };
            if property["type"] != expected {
                self.add(&format!("{path}.{name}"), format!("has another type than {expected}"));
            }
        }
        let metadata = members
            .get("properties")
            .and_then(|it| it.get("metadata"))
            .filter(|_| level == Level::Root);
        let Some(metadata) = metadata.and_then(Value::as_object) else {
            return;
        };
        let known = ["type", "properties", "default", "description"];
        let is_known = metadata
            .keys()
            .all(|name| known.contains(&name.as_str()) && name != "description");
        let mut names = object(metadata, "properties").map(|(name, _)| name);
        if !is_known || !names.all(|name| ["name", "generateName"].contains(&name)) {
            self.add(
                ".metadata",
                "declares more than name and generateName; the rest is the server's",
            );
        }
    }

    /// Checks a schema below allOf, anyOf, oneOf or not; `whole` is the schema that describes the value.
    fn check_nested(&mut self, schema: &Value, whole: &Value, path: &str, place: &str) {
        let Some(members) = schema.as_object() else {
            self.add(path, format!("has {schema} at {place} in place of a schema"));
            return;
        };
        for name in NOT_NESTED {
            let is_set = members
                .get(name)
                .is_some_and(|value| !value.is_null() && *value != Value::Bool(false));
            if is_set {
                self.add(
                    path,
                    format!("has {name} at {place}, where only values are checked; write it outside of {place}"),
                );
            }
        }
        if members
            .get("x-kubernetes-validations")
            .is_some_and(|rules| rules != &Value::Array(Vec::new()))
        {
            self.add(
                path,
                format!("has x-kubernetes-validations at {place}; write them outside of {place}"),
            );
        }
        for (name, property) in object(members, "properties") {
            let inner = format!("{path}.{name}");
            if name == "metadata" {
                self.add(&inner, format!("is at {place}, where metadata cannot be"));
            }
            match whole["properties"].get(name) {
                Some(outside) => self.check_nested(property, outside, &inner, place),
                None => self.add(
                    &inner,
                    format!("is declared at {place} alone; declare it in properties outside of {place}, too"),
                ),
            }
        }
        if let Some(items) = members.get("items").filter(|items| !items.is_null()) {
            let inner = format!("{path}[]");
            match whole.get("items") {
                Some(outside) => self.check_nested(items, outside, &inner, place),
                None => self.add(
                    &inner,
                    format!("has a schema at {place} alone; declare items outside of {place}, too"),
                ),
            }
        }
        for (deeper, variant) in nested(members) {
            self.check_nested(variant, whole, path, &format!("{place}.{deeper}"));
        }
    }
}

fn is_true(members: &Map<String, Value>, name: &str) -> bool {
    members.get(name) == Some(&Value::Bool(true))
}

fn object<'a>(members: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = (&'a str, &'a Value)> {
    let inner = members.get(name).and_then(Value::as_object);
    inner.into_iter().flatten().map(|(name, value)| (name.as_str(), value))
}

/// Returns the schemas that only restrict values, with their places.
fn nested(members: &Map<String, Value>) -> impl Iterator<Item = (String, &Value)> {
    let lists = ["allOf", "anyOf", "oneOf"].into_iter().flat_map(move |name| {
        let variants = members.get(name).and_then(Value::as_array).into_iter().flatten();
        variants
            .enumerate()
            .map(move |(index, variant)| (format!("{name}[{index}]"), variant))
    });
    let not = members.get("not").filter(|not| !not.is_null());
    lists.chain(not.map(|not| ("not".to_owned(), not)))
}

/// Reports whether it is the one form in which a choice may name types.
fn is_int_or_string(members: &Map<String, Value>) -> bool {
    let first = members.get("allOf").and_then(|all| all.get(0));
    members.get("anyOf").is_some_and(is_int_or_string_pattern)
        || first.is_some_and(|first| is_int_or_string_pattern(&first["anyOf"]))
}

fn is_int_or_string_pattern(choice: &Value) -> bool {
    *choice == serde_json::json!([{"type": "integer"}, {"type": "string"}])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the problems of a schema of the spec.
    fn of_spec(schema: &Value) -> Vec<String> {
        problems(&json!({"type": "object", "properties": {"spec": schema}}))
    }

    #[test]
    fn structural_schemas_pass() {
        for schema in [
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}}}}),
            json!({"type": "object", "additionalProperties": {"type": "integer"}}),
            json!({"type": "object", "additionalProperties": true}),
            json!({"x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object", "properties": {"any": {"x-kubernetes-preserve-unknown-fields": true, "description": "It."}}}),
            json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^a"}),
            json!({"x-kubernetes-int-or-string": true, "allOf": [{"anyOf": [{"type": "integer"}, {"type": "string"}]}]}),
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                   "oneOf": [{"required": ["a"]}, {"properties": {"b": {"pattern": "^x"}}, "required": ["b"]}],
                   "not": {"properties": {"a": {"enum": ["z"]}}}}),
            json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["port", "protocol"],
                   "items": {"type": "object", "required": ["port"], "properties": {
                       "port": {"type": "integer"}, "protocol": {"type": "string", "default": "TCP"}}}}),
            json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}),
            json!({"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "string", "nullable": true, "default": "a", "format": "date-time"}),
        ] {
            assert_eq!(of_spec(&schema), [""; 0], "{schema}");
        }
        let named = json!({"type": "object", "properties": {
            "apiVersion": {"type": "string"}, "kind": {"type": "string"},
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}}}}});
        assert_eq!(problems(&named), [""; 0]);
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "one case after another")]
    fn each_rule_that_is_broken_is_told_with_its_field() {
        for (schema, words) in [
            (
                json!({"type": "array", "items": true}),
                ".spec[] has true in place of a schema",
            ),
            (
                json!({"type": "array", "items": {}}),
                ".spec[] has no type; a value of any type is x-kubernetes-preserve",
            ),
            (json!({"type": "array"}), ".spec is a list whose items have no schema"),
            (
                json!({"type": "object", "properties": {"a": {"description": "Any."}}}),
                ".spec.a has no type",
            ),
            (
                json!({"type": "object", "additionalProperties": {"properties": {}}}),
                ".spec.* has no type",
            ),
            (
                json!({"type": ["string", "null"]}),
                ".spec has the type [\"string\",\"null\"], which is none of",
            ),
            (
                json!({"type": "null"}),
                ".spec has the type null; a value that may be null is nullable: true",
            ),
            (json!({"$ref": "#/definitions/A", "type": "object"}), ".spec has $ref"),
            (
                json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true}),
                ".spec has uniqueItems: true",
            ),
            (
                json!({"type": "object", "additionalProperties": false}),
                ".spec has additionalProperties: false",
            ),
            (
                json!({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": {"type": "string"}}),
                ".spec has properties and additionalProperties",
            ),
            (
                json!({"type": "object", "oneOf": [{"properties": {"a": {}}}]}),
                ".spec.a is declared at oneOf[0] alone",
            ),
            (
                json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}),
                ".spec has no type",
            ),
            (
                json!({"type": "string", "anyOf": [{"type": "string"}]}),
                ".spec has type at anyOf[0], where only values",
            ),
            (
                json!({"type": "string", "allOf": [{"description": "It."}]}),
                ".spec has description at allOf[0]",
            ),
            (
                json!({"type": "object", "not": {"x-kubernetes-validations": [{"rule": "true"}]}}),
                ".spec has x-kubernetes-validations at not",
            ),
            (
                json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "map"}),
                ".spec has x-kubernetes-list-type: map and no x-kubernetes-list-map-keys",
            ),
            (
                json!({"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}},
                       "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"]}),
                ".spec has the key a, which is neither required nor has a default",
            ),
            (
                json!({"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"}),
                ".spec has x-kubernetes-list-type: set, whose items are scalars or atomic",
            ),
            (
                json!({"type": "string", "x-kubernetes-list-type": "set"}),
                ".spec has x-kubernetes-list-type and is no list",
            ),
            (
                json!({"type": "string", "x-kubernetes-map-type": "atomic"}),
                ".spec has x-kubernetes-map-type and is no object",
            ),
            (
                json!({"x-kubernetes-embedded-resource": true}),
                ".spec has x-kubernetes-embedded-resource: true, which needs",
            ),
            (
                json!({"x-kubernetes-int-or-string": true, "x-kubernetes-preserve-unknown-fields": true}),
                ".spec has x-kubernetes-int-or-string: true beside",
            ),
        ] {
            let found = of_spec(&schema);
            assert!(
                found.iter().any(|problem| problem.starts_with(words)),
                "{schema}: {found:?}"
            );
        }
        for (root, words) in [
            (json!({"properties": {}}), "the root has no type"),
            (
                json!({"type": "array", "items": {"type": "string"}}),
                "the root has the type array; it is object",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "string"}}),
                "the root has additionalProperties",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {"type": "object", "properties": {"labels": {"type": "object"}}}}}),
                ".metadata declares more than name and generateName",
            ),
            (
                json!({"type": "object", "properties": {"kind": {"type": "integer"}}}),
                ".kind has another type than string",
            ),
        ] {
            let found = problems(&root);
            assert!(
                found.iter().any(|problem| problem.starts_with(words)),
                "{root}: {found:?}"
            );
        }
    }
}
