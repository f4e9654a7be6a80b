//! Converts schemas of schemars to structural schemas, the form that CustomResourceDefinitions require.
//!
//! Rules:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.
//! The result equals that of kube's derive, so that a definition does not change for authors who migrate from it.

use serde_json::{Map, Value, json};

/// Makes a schema and all schemas below it structural.
pub(super) fn make_structural(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    if let Some(inner) = members.get_mut("not") {
        make_structural(inner);
    }
    if let Some(items) = members.get_mut("items") {
        make_structural_value(items);
    }
    if let Some(others) = members.get_mut("additionalProperties").filter(|it| it.is_object()) {
        make_structural_value(others);
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(make_structural_value);
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(variants)) = members.get_mut(name) {
            variants.iter_mut().for_each(make_structural);
        }
    }
    // The name of the Rust type, and members that the API server does not accept.
    for name in ["title", "uniqueItems", "$schema", "components"] {
        members.remove(name);
    }
    if members.get("default") == Some(&Value::Null) {
        members.remove("default");
    }
    // Unsigned formats do not exist in OpenAPI; their bounds stay.
    if members
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint"))
    {
        members.remove("format");
    }
    if let Some(Value::Array(required)) = members.get_mut("required") {
        required.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
    }
    take_optional(members);
    gather_constants(members);
    gather_properties(members, "oneOf", true);
    gather_properties(members, "anyOf", false);
    close(members);
    allow_null_for_either(members);
}

/// Makes a schema that describes a value structural. One of any value, as of `serde_json::Value`, is empty, or `true`.
fn make_structural_value(schema: &mut Value) {
    const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
    if *schema == Value::Bool(true) {
        *schema = json!({});
    }
    make_structural(schema);
    let says = |name: &String| !["description", "default", "nullable"].contains(&name.as_str());
    if let Some(members) = schema.as_object_mut()
        && !members.keys().any(says)
    {
        // Any value may be null.
        members.remove("nullable");
        members.insert(PRESERVE.to_owned(), true.into());
    }
}

/// Converts an `Option` of an enum: schemars makes it a choice between the enum and `null`.
fn take_optional(members: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = members.get("anyOf") else {
        return;
    };
    let [first, second] = variants.as_slice() else { return };
    if second.get("nullable") != Some(&json!(true)) || second.get("enum") != Some(&json!([null])) {
        return;
    }
    let Value::Object(first) = first.clone() else { return };
    members.remove("anyOf");
    for (name, member) in first {
        // The description of the field has precedence over that of its type.
        members.entry(name).or_insert(member);
    }
    members.insert("nullable".to_owned(), true.into());
}

/// Converts an enum of strings whose variants have descriptions: schemars makes it a choice of constants.
fn gather_constants(members: &mut Map<String, Value>) {
    let Some(Value::Array(variants)) = members.get_mut("oneOf") else {
        return;
    };
    let mut constants = Vec::new();
    let mut type_ = None;
    variants.retain(|variant| {
        let Some(values) = variant.get("enum").and_then(Value::as_array) else {
            return true;
        };
        constants.extend(values.iter().cloned());
        type_ = type_.take().or_else(|| variant.get("type").cloned());
        false
    });
    let is_empty = variants.is_empty();
    if constants.is_empty() {
        return;
    }
    if is_empty {
        members.remove("oneOf");
    }
    members.insert("enum".to_owned(), constants.into());
    if let Some(type_) = type_ {
        members.entry("type").or_insert(type_);
    }
}

/// Converts variants with data: they are objects, whose properties have to be outside of the choice.
fn gather_properties(members: &mut Map<String, Value>, choice: &str, describe: bool) {
    let Some(Value::Array(mut variants)) = members.remove(choice) else {
        return;
    };
    for variant in variants.iter_mut().filter_map(Value::as_object_mut) {
        let description = variant.remove("description");
        let type_ = variant.remove("type");
        variant.remove("additionalProperties");
        let Some(Value::Object(mut properties)) = variant.remove("properties") else {
            continue;
        };
        if let (true, Some(description), 1) = (describe, description, properties.len()) {
            for property in properties.values_mut() {
                property["description"] = description.clone();
            }
        }
        if let Some(type_) = type_ {
            members.entry("type").or_insert(type_);
        }
        let all = members.entry("properties").or_insert_with(|| json!({}));
        for (name, property) in properties {
            let known = all.get(&name);
            assert!(
                known.is_none_or(|known| *known == property),
                "the member {name} has two schemas, in two variants; give it one, or two names"
            );
            all[name] = property;
        }
    }
    members.insert(choice.to_owned(), variants.into());
}

/// Closes objects with properties: the server prunes others, unless a flattened map collects them.
fn close(members: &mut Map<String, Value>) {
    if !members.contains_key("properties") {
        return;
    }
    match members.get("additionalProperties") {
        Some(Value::Bool(true)) => {
            members.remove("additionalProperties");
            members.insert("x-kubernetes-preserve-unknown-fields".to_owned(), true.into());
        }
        Some(Value::Bool(false)) => drop(members.remove("additionalProperties")),
        _ => {}
    }
}

/// Allows null for an optional number or string, as for any other `Option`.
fn allow_null_for_either(members: &mut Map<String, Value>) {
    let required = members.get("required").cloned().unwrap_or_default();
    let is_required = |name: &String| required.as_array().is_some_and(|all| all.iter().any(|one| one == name));
    let Some(Value::Object(properties)) = members.get_mut("properties") else {
        return;
    };
    for (name, property) in properties {
        if !is_required(name) && property.get("x-kubernetes-int-or-string") == Some(&json!(true)) {
            property["nullable"] = true.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde_json::{Value, json};

    use super::super::schema_of;

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Spec {
        /// A port.
        port: u16,
        /// What follows.
        mode: Option<Mode>,
        source: Source,
        #[schemars(length(max = 3))]
        words: std::collections::BTreeSet<String>,
    }

    /// A mode.
    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Mode {
        /// Fast.
        Fast,
        /// Slow.
        Slow,
    }

    #[derive(JsonSchema)]
    #[serde(rename_all = "camelCase")]
    #[expect(dead_code, reason = "only its schema is looked at")]
    enum Source {
        /// From a file.
        File(String),
        /// From the net.
        Url { host: String },
    }

    #[derive(JsonSchema)]
    #[expect(dead_code, reason = "only its schema is looked at")]
    struct Free {
        /// Anything.
        any: Value,
        maybe: Option<Value>,
        list: Vec<Value>,
        map: std::collections::BTreeMap<String, Value>,
        lists: std::collections::BTreeMap<String, Vec<Value>>,
        object: serde_json::Map<String, Value>,
    }

    #[test]
    fn members_of_any_value_are_structural() {
        let schema: Value = schema_of::<Free>();
        let any = json!({"x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(schema["properties"]["list"], json!({"type": "array", "items": any}));
        assert_eq!(schema["properties"]["maybe"], any);
        assert_eq!(
            schema["properties"]["any"],
            json!({"description": "Anything.", "x-kubernetes-preserve-unknown-fields": true})
        );
        assert_eq!(
            pilothouse_description::structural::problems(&schema),
            [""; 0],
            "{schema:#}"
        );
    }

    #[test]
    fn a_schema_is_structural() {
        let expected = json!({
            "type": "object",
            "required": ["port", "source", "words"],
            "properties": {
                "port": {"description": "A port.", "type": "integer", "minimum": 0, "maximum": 65535},
                "mode": {
                    "description": "What follows.", "type": "string", "enum": ["Fast", "Slow"], "nullable": true,
                },
                "source": {
                    "type": "object",
                    "properties": {
                        "file": {"description": "From a file.", "type": "string"},
                        "url": {
                            "description": "From the net.", "type": "object",
                            "properties": {"host": {"type": "string"}}, "required": ["host"],
                        },
                    },
                    "oneOf": [{"required": ["file"]}, {"required": ["url"]}],
                },
                "words": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            },
        });
        let schema: Value = schema_of::<Spec>();
        assert_eq!(schema, expected, "{schema:#}");
    }
}
