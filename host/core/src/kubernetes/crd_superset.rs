//! Decides whether a CustomResourceDefinition is a superset of another one: whether it accepts every object that the
//! other one accepts, and keeps every field that the other one knows. Names for people, printer columns and descriptions
//! do not matter. Where a comparison would need more than the two texts, such as two patterns, only equal ones pass.

use serde_json::{Map, Value};

/// Constraints that only bound from above, and those that only bound from below.
const UPPER: &[&str] = &["maximum", "maxLength", "maxItems", "maxProperties"];
const LOWER: &[&str] = &["minimum", "minLength", "minItems", "minProperties"];

/// Constraints that pass only if they are absent or equal.
const OPAQUE: &[&str] = &["pattern", "multipleOf", "allOf", "oneOf", "not"];

/// Mark of a schema that accepts integers and texts.
const ANY: &str = "x-kubernetes-int-or-string";

/// Members of a definition's spec that have to be equal.
const IDENTITY: &[&str] = &["/group", "/scope", "/names/kind", "/names/plural"];

/// The first reason why a definition is not a superset of the other one, as a path and a description; none if it is.
pub fn shortfall(wide: &Value, narrow: &Value) -> Option<String> {
    let (wide, narrow) = (&wide["spec"], &narrow["spec"]);
    let differs = |path: &&&str| {
        let wanted = narrow.pointer(path);
        wanted.is_some() && wide.pointer(path) != wanted
    };
    if let Some(path) = IDENTITY.iter().find(differs) {
        let (found, wanted) = (wide.pointer(path), narrow.pointer(path));
        let path = path.replace('/', ".");
        let [found, wanted] = [found, wanted].map(|value| value.unwrap_or(&Value::Null).clone());
        return Some(format!("spec{path} is {found} and not {wanted}"));
    }
    if narrow["preserveUnknownFields"] == true && wide["preserveUnknownFields"] != true {
        return Some("spec.preserveUnknownFields is not true".to_owned());
    }
    versions(narrow)
        .find_map(|version| version_shortfall(wide, version))
        .or_else(|| storage_shortfall(wide, narrow))
}

/// Reports whether the definition in the cluster is to stay where a version of a plugin brings another one: it is a
/// superset, and not only equal.
pub fn stays(live: &Value, brought: &Value) -> bool {
    shortfall(live, brought).is_none() && shortfall(brought, live).is_some()
}

fn versions(spec: &Value) -> impl Iterator<Item = &Value> {
    spec["versions"].as_array().into_iter().flatten()
}

fn schema(version: &Value) -> &Value {
    &version["schema"]["openAPIV3Schema"]
}

fn version_shortfall(wide: &Value, narrow: &Value) -> Option<String> {
    let path = format!("spec.versions[{}]", narrow["name"].as_str().unwrap_or_default());
    let Some(wide) = versions(wide).find(|version| version["name"] == narrow["name"]) else {
        return Some(format!("{path} is missing"));
    };
    if narrow["served"] == true && wide["served"] != true {
        return Some(format!("{path}.served is false and not true"));
    }
    for (name, wanted) in narrow["subresources"].as_object().into_iter().flatten() {
        if !wanted.is_null() && wide["subresources"].get(name) != Some(wanted) {
            return Some(format!("{path}.subresources.{name} is missing or another one"));
        }
    }
    let selectable = narrow["selectableFields"].as_array().into_iter().flatten();
    for field in selectable {
        let has = wide["selectableFields"].as_array().is_some_and(|it| it.contains(field));
        if !has {
            return Some(format!("{path}.selectableFields does not have {}", field["jsonPath"]));
        }
    }
    let path = format!("{path}.schema.openAPIV3Schema");
    node_shortfall(schema(wide), schema(narrow), &path)
}

/// Objects may be stored in a version that the other definition does not have. Without a converter they are stored as
/// they are, so the schema of that version has to keep their fields.
fn storage_shortfall(wide: &Value, narrow: &Value) -> Option<String> {
    let stored = |spec| versions(spec).find(|version| version["storage"] == true);
    let (stored_wide, stored_narrow) = (stored(wide)?, stored(narrow)?);
    let name = stored_wide["name"].as_str().unwrap_or_default();
    if versions(narrow).any(|version| version["name"] == name) {
        return None;
    }
    if wide["conversion"]["strategy"] == "Webhook" {
        return Some(format!(
            "spec.versions[{name}] is stored, and only a converter that knows it reads it"
        ));
    }
    let path = format!("spec.versions[{name}].schema.openAPIV3Schema");
    node_shortfall(schema(stored_wide), schema(stored_narrow), &path)
}

/// Reports whether a schema accepts and keeps everything.
fn is_open(schema: &Value) -> bool {
    let schema = match schema {
        Value::Bool(open) => return *open,
        Value::Object(schema) => schema,
        _ => return false,
    };
    let is_kept = schema.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    let restricts = |name: &str| {
        ![
            "description",
            "title",
            "x-kubernetes-preserve-unknown-fields",
            "nullable",
        ]
        .contains(&name)
    };
    is_kept && !schema.keys().any(|name| restricts(name))
}

/// Reports whether fields that a schema does not specify are kept.
fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn node_shortfall(wide: &Value, narrow: &Value, path: &str) -> Option<String> {
    if is_open(wide) {
        return defaulted(narrow, path);
    }
    if is_open(narrow) || !wide.is_object() {
        return Some(format!("{path} does not accept everything"));
    }
    type_shortfall(wide, narrow, path)
        .or_else(|| constraint_shortfall(wide, narrow, path))
        .or_else(|| default_shortfall(wide, narrow, path))
        .or_else(|| list_shortfall(wide, narrow, path))
        .or_else(|| members_shortfall(wide, narrow, path))
}

fn type_shortfall(wide: &Value, narrow: &Value, path: &str) -> Option<String> {
    let flag = |schema: &Value, name: &str| schema[name] == true;
    let (found, wanted) = (&wide["type"], &narrow["type"]);
    let is_either = |schema: &Value| schema == "integer" || schema == "string";
    let is_wider = found == wanted && flag(wide, ANY) >= flag(narrow, ANY)
        || found == "number" && wanted == "integer"
        || flag(wide, ANY) && (flag(narrow, ANY) || is_either(wanted))
        || found.is_null() && keeps_unknown(wide);
    if !is_wider {
        let name = |schema: &Value| match schema["type"].as_str() {
            Some(name) => name.to_owned(),
            None if flag(schema, ANY) => "int-or-string".to_owned(),
            None => "any".to_owned(),
        };
        return Some(format!("{path}.type is {} and not {}", name(wide), name(narrow)));
    }
    if flag(narrow, "nullable") && !flag(wide, "nullable") {
        return Some(format!("{path}.nullable is not true"));
    }
    let embedded = "x-kubernetes-embedded-resource";
    (flag(wide, embedded) != flag(narrow, embedded)).then(|| format!("{path}.{embedded} is another one"))
}

fn constraint_shortfall(wide: &Value, narrow: &Value, path: &str) -> Option<String> {
    let narrower = |name: &str, found: &Value, wanted: Option<&Value>| match wanted {
        Some(wanted) => Some(format!("{path}.{name} is {found} and not {wanted}")),
        None => Some(format!("{path}.{name} is {found}, and there is none")),
    };
    let bounds = UPPER.iter().map(|name| (*name, 1.0, "exclusiveMaximum"));
    let bounds = bounds.chain(LOWER.iter().map(|name| (*name, -1.0, "exclusiveMinimum")));
    for (name, sign, exclusive) in bounds {
        let Some(found) = wide[name].as_f64() else { continue };
        let wanted = narrow[name].as_f64();
        let excludes = |schema: &Value| name.ends_with("imum") && schema[exclusive] == true;
        let is_within = wanted.is_some_and(|wanted| {
            let (found, wanted) = (found * sign, wanted * sign);
            wanted < found || wanted <= found && excludes(wide) <= excludes(narrow)
        });
        // An absent lower bound of a size is 0.
        let is_nothing = wanted.is_none() && found <= 0.0 && sign < 0.0 && name != "minimum";
        if !is_within && !is_nothing {
            return narrower(name, &wide[name], narrow.get(name));
        }
    }
    for name in OPAQUE {
        let found = wide.get(*name).filter(|found| !is_empty(found));
        if let Some(found) = found
            && narrow.get(*name) != Some(found)
        {
            return narrower(name, found, narrow.get(*name));
        }
    }
    let either = wide[ANY] == true;
    if let Some(found) = wide.get("anyOf").filter(|found| !is_empty(found) && !either)
        && narrow.get("anyOf") != Some(found)
    {
        return narrower("anyOf", found, narrow.get("anyOf"));
    }
    let format = (&wide["format"], &narrow["format"]);
    let is_wider = format.0.is_null() || format.0 == format.1 || format.0 == "int64" && format.1 == "int32";
    if !is_wider {
        return narrower("format", format.0, narrow.get("format"));
    }
    if let Some(allowed) = wide["enum"].as_array().filter(|allowed| !allowed.is_empty()) {
        let Some(wanted) = narrow["enum"].as_array().filter(|wanted| !wanted.is_empty()) else {
            return narrower("enum", &wide["enum"], None);
        };
        if let Some(missing) = wanted.iter().find(|wanted| !allowed.contains(wanted)) {
            return Some(format!("{path}.enum does not have {missing}"));
        }
    }
    let rules = |schema: &'_ Value| -> Vec<Value> {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        rules.map(|rule| rule["rule"].clone()).collect()
    };
    let known = rules(narrow);
    let added = rules(wide).into_iter().find(|rule| !known.contains(rule));
    added.map(|rule| format!("{path}.x-kubernetes-validations has the rule {rule}"))
}

/// A default may be added or be another one, as long as it is a value that the other schema accepts.
fn default_shortfall(wide: &Value, narrow: &Value, path: &str) -> Option<String> {
    let (found, wanted) = (wide.get("default"), narrow.get("default"));
    let Some(found) = found else {
        return wanted.map(|_| format!("{path}.default is missing"));
    };
    if wanted == Some(found) {
        return None;
    }
    let is_of = |kind: &str| match found {
        Value::Null => narrow["nullable"] == true,
        Value::Bool(_) => kind == "boolean",
        Value::Number(number) => {
            kind == "number" || kind == "integer" && number.as_f64().is_some_and(|it| it.fract() == 0.0)
        }
        Value::String(_) => kind == "string",
        Value::Array(_) => kind == "array",
        Value::Object(_) => kind == "object",
    };
    let is_listed = narrow["enum"]
        .as_array()
        .is_none_or(|listed| listed.is_empty() || listed.contains(found));
    let is_accepted = narrow["type"].as_str().is_none_or(is_of) && is_listed;
    (!is_accepted).then(|| format!("{path}.default is {found}"))
}

/// A schema that keeps everything sets no defaults: the first one of the other schema is missing.
fn defaulted(narrow: &Value, path: &str) -> Option<String> {
    if narrow.get("default").is_some() {
        return Some(format!("{path}.default is missing"));
    }
    let members = narrow["properties"].as_object().into_iter().flatten();
    let members = members.map(|(name, schema)| (format!("{path}.properties.{name}"), schema));
    let others = ["items", "additionalProperties"].into_iter();
    let others = others.filter_map(|name| Some((format!("{path}.{name}"), narrow.get(name)?)));
    members
        .chain(others)
        .find_map(|(path, schema)| defaulted(schema, &path))
}

/// The form of lists and maps decides what is unique, and what two appliers may set.
fn list_shortfall(wide: &Value, narrow: &Value, path: &str) -> Option<String> {
    let forms = [
        ("x-kubernetes-list-type", "atomic"),
        ("x-kubernetes-map-type", "granular"),
        ("x-kubernetes-list-map-keys", ""),
    ];
    forms.into_iter().find_map(|(name, default)| {
        let default = Value::from(default);
        let [found, wanted] = [wide, narrow].map(|schema| schema.get(name).unwrap_or(&default));
        (found != wanted).then(|| format!("{path}.{name} is {found} and not {wanted}"))
    })
}

fn members_shortfall(wide: &Value, narrow: &Value, path: &str) -> Option<String> {
    let none = Map::new();
    let [own, others] = [wide, narrow].map(|schema| schema["properties"].as_object().unwrap_or(&none));
    let [of_any, others_of_any] =
        [wide, narrow].map(|schema| schema.get("additionalProperties").filter(|it| **it != false));
    for (name, wanted) in others {
        let path = format!("{path}.properties.{name}");
        let short = match (own.get(name), of_any) {
            (Some(found), _) | (None, Some(found)) => node_shortfall(found, wanted, &path),
            (None, None) if keeps_unknown(wide) => defaulted(wanted, &path),
            (None, None) => Some(format!("{path} is missing")),
        };
        if short.is_some() {
            return short;
        }
    }
    if let Some(wanted) = others_of_any {
        let path = format!("{path}.additionalProperties");
        let short = match of_any {
            Some(found) => node_shortfall(found, wanted, &path),
            None if keeps_unknown(wide) => None,
            None => Some(format!("{path} is missing")),
        };
        if short.is_some() {
            return short;
        }
    }
    if keeps_unknown(narrow) && !keeps_unknown(wide) {
        return Some(format!("{path}.x-kubernetes-preserve-unknown-fields is not true"));
    }
    // A member of any content was accepted, which the property now restricts.
    if keeps_unknown(narrow) || others_of_any.is_some() {
        let restricted = own.iter().find(|(name, found)| {
            let accepts = |wanted: &Value| node_shortfall(found, wanted, "").is_none();
            !others.contains_key(*name) && !is_open(found) && !others_of_any.is_some_and(accepts)
        });
        if let Some((name, _)) = restricted {
            return Some(format!("{path}.properties.{name} restricts a member of any content"));
        }
    }
    let required = |schema: &Value, name: &Value| schema["required"].as_array().is_some_and(|it| it.contains(name));
    let added = wide["required"].as_array().into_iter().flatten().find(|name| {
        let has_default = |name: &str| own.get(name).is_some_and(|it| it.get("default").is_some());
        !required(narrow, name) && !name.as_str().is_some_and(has_default)
    });
    if let Some(name) = added {
        return Some(format!("{path}.required has {name}"));
    }
    match (wide.get("items"), narrow.get("items")) {
        (Some(found), Some(wanted)) => node_shortfall(found, wanted, &format!("{path}.items")),
        (None, Some(_)) if !keeps_unknown(wide) => Some(format!("{path}.items is missing")),
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    value.is_null() || value.as_array().is_some_and(Vec::is_empty)
}

#[cfg(test)]
#[expect(
    clippy::needless_pass_by_value,
    reason = "`json!` makes values that nobody else needs"
)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(name: &str, is_stored: bool, field: &Value) -> Value {
        json!({
            "name": name, "served": true, "storage": is_stored, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "required": ["f"], "properties": {"f": field}}},
        })
    }

    fn crd(versions: &[Value]) -> Value {
        json!({"spec": {
            "group": "x.dev", "scope": "Namespaced", "names": {"kind": "App", "plural": "apps"}, "versions": versions,
        }})
    }

    fn of(field: &Value) -> Value {
        crd(&[version("v1", true, field)])
    }

    /// Asserts that the first schema of a field is a strict superset of the second one, with the reason for the converse.
    #[track_caller]
    fn widens(wide: Value, narrow: Value, reason: &str) {
        let (wide, narrow) = (of(&wide), of(&narrow));
        assert_eq!(shortfall(&wide, &narrow), None);
        let short = shortfall(&narrow, &wide).expect("the converse does not hold");
        assert!(short.contains(reason), "{short}");
        assert!(stays(&wide, &narrow) && !stays(&narrow, &wide));
    }

    /// Asserts that neither schema of a field is a superset of the other one.
    #[track_caller]
    fn differ(one: Value, other: Value, reason: &str) {
        let (one, other) = (of(&one), of(&other));
        let short = shortfall(&one, &other).expect("it is no superset");
        assert!(short.contains(reason), "{short}");
        assert!(shortfall(&other, &one).is_some());
        assert!(!stays(&one, &other) && !stays(&other, &one));
    }

    /// Asserts that two schemas of a field accept and keep the same.
    #[track_caller]
    fn equal(one: Value, other: Value) {
        let (one, other) = (of(&one), of(&other));
        assert_eq!((shortfall(&one, &other), shortfall(&other, &one)), (None, None));
        assert!(
            !stays(&one, &other),
            "equal definitions are applied, for what people see of them"
        );
    }

    fn object(properties: Value) -> Value {
        json!({"type": "object", "properties": properties})
    }

    fn string() -> Value {
        json!({"type": "string"})
    }

    fn with(mut schema: Value, name: &str, value: Value) -> Value {
        schema[name] = value;
        schema
    }

    #[test]
    fn an_optional_field_more_widens() {
        let more = object(json!({"a": string(), "b": {"type": "integer", "default": 3}}));
        let less = object(json!({"a": string()}));
        widens(more.clone(), less.clone(), "properties.f.properties.b is missing");
        let list = |items: &Value| json!({"type": "array", "items": items});
        widens(
            list(&list(&more)),
            list(&list(&less)),
            "f.items.items.properties.b is missing",
        );
        let map = |values: &Value| json!({"type": "object", "additionalProperties": values});
        widens(map(&more), map(&less), "f.additionalProperties.properties.b is missing");
    }

    #[test]
    fn a_required_field_narrows_unless_it_has_a_default() {
        let fields = |b: Value| object(json!({"a": string(), "b": b}));
        let required = |schema| with(schema, "required", json!(["b"]));
        widens(
            fields(string()),
            required(fields(string())),
            "properties.f.required has \"b\"",
        );
        differ(
            required(fields(string())),
            object(json!({"a": string()})),
            "required has \"b\"",
        );
        let default = with(string(), "default", json!("x"));
        widens(
            required(fields(default)),
            object(json!({"a": string()})),
            "properties.b is missing",
        );
    }

    #[test]
    fn a_default_may_be_added_or_changed_but_not_removed() {
        let size = |default: Option<Value>| match default {
            Some(default) => json!({"type": "integer", "default": default}),
            None => json!({"type": "integer"}),
        };
        equal(size(Some(json!(3))), size(Some(json!(5))));
        widens(size(Some(json!(3))), size(None), "f.default is missing");
        let word = |default: &str, words: &[&str]| json!({"type": "string", "enum": words, "default": default});
        let short = shortfall(&of(&word("auto", &["a", "auto"])), &of(&word("a", &["a"])));
        assert!(
            short.is_some_and(|it| it.ends_with("f.default is \"auto\"")),
            "the other schema does not accept it"
        );
    }

    #[test]
    fn constraints_narrow() {
        let words = |words: &[&str]| json!({"type": "string", "enum": words});
        widens(words(&["a", "b"]), words(&["a"]), "f.enum does not have \"b\"");
        widens(string(), words(&["a"]), "f.enum is");
        for (name, wide, narrow) in [
            ("maxLength", json!(20), json!(10)),
            ("minLength", json!(1), json!(2)),
            ("maximum", json!(10.5), json!(10)),
            ("minimum", json!(-1), json!(0)),
            ("maxItems", json!(4), json!(3)),
            ("minProperties", json!(1), json!(2)),
        ] {
            widens(
                json!({"type": "string", name: wide}),
                json!({"type": "string", name: narrow}),
                name,
            );
            widens(string(), json!({"type": "string", name: narrow}), "and there is none");
        }
        equal(json!({"type": "array", "minItems": 0}), json!({"type": "array"}));
        let below = |exclusive: bool| json!({"type": "integer", "maximum": 10, "exclusiveMaximum": exclusive});
        widens(below(false), below(true), "f.maximum");
        widens(string(), with(string(), "pattern", json!("^a")), "f.pattern");
        differ(
            with(string(), "pattern", json!("^a")),
            with(string(), "pattern", json!("^b")),
            "f.pattern",
        );
        widens(string(), with(string(), "format", json!("date")), "f.format");
        let number = |format: &str| json!({"type": "integer", "format": format});
        widens(number("int64"), number("int32"), "f.format");
        let rule = |rules: &[&str]| {
            let rules: Vec<Value> = rules
                .iter()
                .map(|rule| json!({"rule": rule, "message": rule.len()}))
                .collect();
            json!({"type": "string", "x-kubernetes-validations": rules})
        };
        widens(rule(&["a"]), rule(&["a", "b"]), "has the rule \"b\"");
        differ(rule(&["a"]), rule(&["b"]), "has the rule \"a\"");
        let any = |types: &[&str]| {
            with(
                string(),
                "anyOf",
                json!(types.iter().map(|it| json!({"format": it})).collect::<Vec<_>>()),
            )
        };
        widens(string(), any(&["date"]), "f.anyOf");
    }

    #[test]
    fn types_widen_to_those_that_include_them() {
        let kind = |name: &str| json!({"type": name});
        widens(kind("number"), kind("integer"), "f.type is integer and not number");
        differ(kind("string"), kind("integer"), "f.type is string and not integer");
        let either = || json!({"x-kubernetes-int-or-string": true, "anyOf": [kind("integer"), kind("string")]});
        widens(either(), kind("integer"), "f.type is integer and not int-or-string");
        widens(either(), string(), "f.type is string and not int-or-string");
        equal(either(), json!({"x-kubernetes-int-or-string": true}));
        widens(with(string(), "nullable", json!(true)), string(), "f.nullable");
        let open = || json!({"x-kubernetes-preserve-unknown-fields": true});
        widens(open(), kind("integer"), "f does not accept everything");
        let three = || json!({"type": "integer", "default": 3});
        differ(open(), three(), "f.default is missing");
        differ(
            open(),
            json!({"type": "array", "items": object(json!({"a": three()}))}),
            "f.items.properties.a.default is missing",
        );
        let embedded = |it: bool| json!({"type": "object", "x-kubernetes-embedded-resource": it});
        differ(embedded(true), embedded(false), "embedded-resource");
    }

    #[test]
    fn unknown_fields_are_kept_or_vanish() {
        let kept = |schema| with(schema, "x-kubernetes-preserve-unknown-fields", json!(true));
        let plain = || object(json!({"a": string()}));
        widens(kept(plain()), plain(), "preserve-unknown-fields is not true");
        widens(kept(object(json!({}))), plain(), "preserve-unknown-fields is not true");
        let more = kept(object(json!({"a": string(), "b": string()})));
        widens(kept(plain()), more, "properties.b restricts a member of any content");
        let defaulted = object(json!({"a": string(), "b": with(string(), "default", json!("x"))}));
        differ(kept(plain()), defaulted, "properties.b.default is missing");
        let map = json!({"type": "object", "additionalProperties": string()});
        widens(map.clone(), plain(), "additionalProperties is missing");
        differ(
            map.clone(),
            object(json!({"a": {"type": "integer"}})),
            "properties.a.type is string and not integer",
        );
        widens(
            json!({"type": "object", "additionalProperties": true, "x-kubernetes-preserve-unknown-fields": true}),
            map,
            "additionalProperties does not accept everything",
        );
    }

    #[test]
    fn the_form_of_a_list_is_the_same() {
        let list = |form: Option<&str>| match form {
            Some(form) => json!({"type": "array", "items": string(), "x-kubernetes-list-type": form}),
            None => json!({"type": "array", "items": string()}),
        };
        equal(list(None), list(Some("atomic")));
        differ(list(None), list(Some("set")), "list-type is \"atomic\" and not \"set\"");
    }

    #[test]
    fn what_only_people_see_does_not_matter() {
        equal(
            with(string(), "description", json!("a")),
            with(string(), "description", json!("b")),
        );
        let mut columns = of(&string());
        columns["spec"]["versions"][0]["additionalPrinterColumns"] = json!([{"name": "A"}]);
        columns["spec"]["names"]["shortNames"] = json!(["a"]);
        columns["spec"]["conversion"] = json!({"strategy": "None"});
        columns["status"] = json!({"storedVersions": ["v1"]});
        assert_eq!(shortfall(&columns, &of(&string())), None);
        assert_eq!(shortfall(&of(&string()), &columns), None);
    }

    #[test]
    fn versions_and_subresources_may_be_added() {
        let one = of(&string());
        let two = |is_stored: bool| {
            crd(&[
                version("v1", !is_stored, &string()),
                version("v2", is_stored, &string()),
            ])
        };
        assert!(stays(&two(false), &one));
        assert_eq!(
            shortfall(&one, &two(false)).as_deref(),
            Some("spec.versions[v2] is missing")
        );
        assert!(stays(&two(true), &one), "what is stored as v2 keeps its fields");
        let mut converted = two(true);
        converted["spec"]["conversion"] = json!({"strategy": "Webhook"});
        let short = shortfall(&converted, &one).unwrap();
        assert!(short.contains("only a converter that knows it"), "{short}");
        let narrower = crd(&[
            version("v1", false, &string()),
            version("v2", true, &json!({"type": "integer"})),
        ]);
        assert!(
            shortfall(&narrower, &one)
                .unwrap()
                .starts_with("spec.versions[v2].schema")
        );
        assert_eq!(shortfall(&two(true), &two(false)), None);
        assert!(
            !stays(&two(true), &two(false)),
            "the storage version changes when it is meant to"
        );
        let mut unserved = one.clone();
        unserved["spec"]["versions"][0]["served"] = json!(false);
        assert!(shortfall(&unserved, &one).unwrap().contains("served is false"));
        assert_eq!(shortfall(&one, &unserved), None);
        let mut bare = one.clone();
        bare["spec"]["versions"][0]["subresources"] = json!({});
        assert!(shortfall(&bare, &one).unwrap().contains("subresources.status"));
        assert_eq!(shortfall(&one, &bare), None);
        let mut selectable = one.clone();
        selectable["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".f"}]);
        assert!(shortfall(&one, &selectable).unwrap().contains("selectableFields"));
        assert_eq!(shortfall(&selectable, &one), None);
    }

    #[test]
    fn another_scope_or_name_is_another_definition() {
        for (path, value) in [
            ("scope", json!("Cluster")),
            ("group", json!("y.dev")),
            ("names", json!({"kind": "B", "plural": "apps"})),
        ] {
            let mut other = of(&string());
            other["spec"][path] = value;
            let short = shortfall(&other, &of(&string())).unwrap();
            assert!(short.starts_with(&format!("spec.{path}")), "{short}");
        }
    }
}
