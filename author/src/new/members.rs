//! Writes the types of a kind in Rust from the schema of its CRD: texts, numbers, booleans, lists and maps of them, and pod
//! templates. Everything else stays a JSON value, for the author to narrow.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use pilothouse_description::status::{OBSERVED_GENERATION, status_schema};
use serde_json::{Map, Value, json};

use super::names::{NewKind, snake};
use super::samples;
use super::template::LANGUAGES;
use crate::manifests::sample;

/// Members that every object has, and the status, which has a type of its own.
pub(super) const COMMON: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

/// The most letters of a description that become a comment.
const MAX_COMMENT: usize = 110;

/// Words that no member of a struct can be called.
const KEYWORDS: [&str; 52] = [
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "union", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// The types of a kind.
pub struct ObjectTypes {
    kind: NewKind,
    /// The name of the type of an object.
    name: String,
    description: Option<String>,
    /// The members of an object beside those that every object has.
    members: Vec<Member>,
    /// The members of the spec, if it has a type of its own.
    spec: Vec<Member>,
    /// The members of the status that are the plugin's.
    status: Vec<Member>,
}

/// A member of a type.
struct Member {
    name: String,
    identifier: String,
    type_: String,
    is_required: bool,
    schema: Value,
}

/// A text in the spec, as each language reads it; the name of the object if the spec has none.
pub struct Example {
    /// Its name.
    pub name: String,
    /// Its value in the sample.
    pub text: String,
    /// Expression that reads it in Rust.
    pub rust: String,
    /// Expression that reads it in JavaScript.
    pub js: String,
    /// Expression that reads it in Python.
    pub python: String,
    /// Set if it is a member of the spec.
    pub is_of_spec: bool,
}

impl ObjectTypes {
    /// The types by the schema of an object.
    pub fn of(schema: &Value, kind: &NewKind, takes_status: bool) -> Self {
        let name = kind.type_name();
        let mut members = members_of(schema);
        members.retain(|member| !COMMON.contains(&member.name.as_str()));
        let spec = members.iter_mut().find(|member| member.name == "spec");
        let spec = spec.map_or_else(Vec::new, |spec| {
            let below = members_of(&spec.schema);
            if !below.is_empty() {
                spec.type_ = format!("{name}Spec");
            }
            below
        });
        let mut status = if takes_status {
            members_of(&status_schema(schema))
        } else {
            Vec::new()
        };
        status.retain(|member| member.name != "conditions" && member.name != OBSERVED_GENERATION);
        for member in status.iter_mut().filter(|member| member.type_ == POD_TEMPLATE) {
            "Value".clone_into(&mut member.type_);
        }
        Self {
            kind: kind.clone(),
            name,
            description: comment(schema),
            members,
            spec,
            status,
        }
    }

    /// The members of the status that the CRD requires, with values that it takes.
    pub fn required_status(&self) -> Map<String, Value> {
        let required = self.status.iter().filter(|member| member.is_required);
        required
            .map(|member| (member.name.clone(), member.first_value()))
            .collect()
    }

    /// The types as a source has them.
    pub fn in_rust(&self) -> String {
        let Self {
            kind,
            name,
            spec,
            status,
            ..
        } = self;
        let NewKind { group, version, kind } = kind;
        let mut text = String::new();
        if !spec.is_empty() {
            let _ = write!(
                text,
                "/// The spec of a {name}, as its CRD declares it. What is removed here cannot wake the plugin.\n\
                 #[derive(Clone, Debug, Deserialize, Fields)]\n#[serde(rename_all = \"camelCase\")]\npub struct {name}Spec {{\n{}}}\n",
                members_in_rust(spec, "")
            );
        }
        if !status.is_empty() {
            let skipped = "    #[serde(skip_serializing_if = \"Option::is_none\")]\n";
            let _ = write!(
                text,
                "\n/// The status of a {name}, without the conditions, which the host writes.\n\
                 #[derive(Clone, Debug, Default, Serialize)]\n#[serde(rename_all = \"camelCase\")]\npub struct {name}Status {{\n{}}}\n",
                members_in_rust(status, skipped)
            );
        }
        let mut object = self
            .description
            .as_ref()
            .map_or_else(String::new, |it| format!("/// {it}\n"));
        let _ = writeln!(
            object,
            "#[derive(Clone, Debug, Deserialize, Resource)]\n#[resource(group = {group:?}, version = {version:?}, kind = {kind:?})]"
        );
        if self.members.iter().any(|member| member.identifier.contains('_')) {
            object += "#[serde(rename_all = \"camelCase\")]\n";
        }
        let _ = write!(
            object,
            "pub struct {name} {{\n    /// Name, namespace, uid and so on.\n    pub metadata: ObjectMeta,\n"
        );
        object += &members_in_rust(&self.members, "");
        object + "}\n\n" + text.trim_start_matches('\n')
    }

    /// The lines that import what the types name.
    pub fn uses(&self) -> String {
        let all = || self.members.iter().chain(&self.spec).chain(&self.status);
        let has = |part: &str| all().any(|member| member.type_.contains(part));
        let derived = match (self.spec.is_empty(), self.status.is_empty()) {
            (_, true) => "use serde::Deserialize;\n",
            (_, false) => "use serde::{Deserialize, Serialize};\n",
        };
        let mut text = String::new();
        if has("BTreeMap") {
            text += "use std::collections::BTreeMap;\n\n";
        }
        text += if has(POD_TEMPLATE) {
            "use pilothouse_plugin::k8s::core::v1::{ConfigMap, PodTemplateSpec};\n"
        } else {
            "use pilothouse_plugin::k8s::core::v1::ConfigMap;\n"
        };
        let fields = if self.spec.is_empty() { "" } else { "Fields, " };
        let json = if self.status_in_rust().contains("json!(") {
            ", json"
        } else {
            ""
        };
        let _ = writeln!(
            text,
            "use pilothouse_plugin::{{Cluster, Controller, ControllerManifest, Failure, {fields}ObjectMeta, Outcome, Request, \
             Resource{json}}};"
        );
        text += derived;
        if has("Value") {
            text += "use serde_json::Value;\n";
        }
        text
    }

    /// The status that is answered at first; empty where the plugin has no part in it.
    pub fn status_in_rust(&self) -> String {
        let Self { name, status, .. } = self;
        let required: Vec<&Member> = status.iter().filter(|member| member.is_required).collect();
        if required.is_empty() {
            return if status.is_empty() {
                String::new()
            } else {
                format!(".status({name}Status::default())")
            };
        }
        let literals = required.iter().map(|member| {
            let literal = literal(&member.type_, &member.first_value());
            format!("{}: {literal}, ", member.identifier)
        });
        let rest = if required.len() < status.len() {
            format!("..{name}Status::default()")
        } else {
            String::new()
        };
        format!(".status({name}Status {{ {}{rest} }})", literals.collect::<String>())
    }

    /// A text of the spec whose name every language takes: one that the sample has, else any, else the name of the object.
    pub fn example(&self, sample: &Value) -> Example {
        let is_name = |name: &str| {
            name.chars().all(|letter| letter.is_ascii_alphanumeric())
                && name.starts_with(|first: char| first.is_ascii_lowercase())
                && LANGUAGES.iter().all(|language| !language.reserved.contains(&name))
        };
        let texts = || {
            self.spec
                .iter()
                .filter(|member| member.type_ == "String" && is_name(&member.name))
        };
        let value = |member: &Member| sample["spec"][&member.name].as_str().map(str::to_owned);
        let found = texts()
            .find(|member| value(member).is_some())
            .or_else(|| texts().next());
        let Some(member) = found else {
            return Example {
                name: "name".to_owned(),
                text: "web".to_owned(),
                rust: "object.metadata.name.as_str()".to_owned(),
                js: "object.metadata.name".to_owned(),
                python: "request.name".to_owned(),
                is_of_spec: false,
            };
        };
        let Member {
            name,
            identifier,
            is_required,
            ..
        } = member;
        let is_spec_required = self.members.iter().any(|it| it.name == "spec" && it.is_required);
        let spec = if is_spec_required {
            "object.spec"
        } else {
            "object.spec.as_ref()"
        };
        let rust = match (is_spec_required, is_required) {
            (true, true) => format!("{spec}.{identifier}.as_str()"),
            (true, false) => format!("{spec}.{identifier}.as_deref().unwrap_or_default()"),
            (false, true) => format!("{spec}.map_or(\"\", |spec| spec.{identifier}.as_str())"),
            (false, false) => format!("{spec}.and_then(|spec| spec.{identifier}.as_deref()).unwrap_or_default()"),
        };
        Example {
            name: name.clone(),
            text: value(member).unwrap_or_default(),
            rust,
            js: format!("object.spec?.{name} ?? \"\""),
            python: format!("request.spec.{name}"),
            is_of_spec: true,
        }
    }
}

impl Member {
    /// A value that the schema takes; the smallest number, where it may be nothing.
    fn first_value(&self) -> Value {
        let schema = &self.schema;
        let is_bounded = ["default", "enum", "minimum", "maximum"]
            .iter()
            .any(|it| !schema[it].is_null());
        match schema["type"].as_str() {
            Some("integer" | "number") if !is_bounded => json!(0),
            _ => sample::value(schema),
        }
    }
}

/// The SDK's builder of a pod template.
const POD_TEMPLATE: &str = "PodTemplateSpec";

/// The members that a schema declares, in the order of their names.
fn members_of(schema: &Value) -> Vec<Member> {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut taken = BTreeSet::new();
    let members = schema["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, schema)| Member {
            name: name.clone(),
            identifier: identifier(name, &mut taken),
            type_: type_of(schema),
            is_required: required.contains(&name.as_str()) && schema["nullable"] != true,
            schema: schema.clone(),
        });
    members.collect()
}

/// A name in snake case that Rust takes, and no other member has.
fn identifier(name: &str, taken: &mut BTreeSet<String>) -> String {
    let letters = snake(name)
        .chars()
        .map(|it| if it.is_ascii_alphanumeric() { it } else { '_' })
        .collect::<String>();
    let mut identifier = letters.trim_matches('_').to_owned();
    if !identifier.starts_with(|first: char| first.is_ascii_lowercase()) {
        identifier.insert_str(0, "member_");
    }
    while KEYWORDS.contains(&identifier.as_str()) || !taken.insert(identifier.clone()) {
        identifier.push('_');
    }
    identifier
}

/// The type of the values that a schema takes.
fn type_of(schema: &Value) -> String {
    let is_plain =
        schema["x-kubernetes-int-or-string"] != true && schema["x-kubernetes-preserve-unknown-fields"] != true;
    let of = |part: &Value| {
        if part["nullable"] == true {
            "Value".to_owned()
        } else {
            type_of(part)
        }
    };
    let type_ = match schema["type"].as_str() {
        _ if !is_plain => "Value",
        Some("string") => "String",
        Some("boolean") => "bool",
        Some("number") => "f64",
        Some("integer") if schema["format"] == "int32" => "i32",
        Some("integer") => "i64",
        Some("array") => return format!("Vec<{}>", of(&schema["items"])),
        Some("object") if schema["additionalProperties"].is_object() && schema["properties"].is_null() => {
            return format!("BTreeMap<String, {}>", of(&schema["additionalProperties"]));
        }
        Some("object") if is_pod_template(schema) => POD_TEMPLATE,
        _ => "Value",
    };
    type_.to_owned()
}

fn is_pod_template(schema: &Value) -> bool {
    let only = |name: &String| name == "metadata" || name == "spec";
    schema["properties"]
        .as_object()
        .is_some_and(|members| members.keys().all(only))
        && schema["properties"]["spec"]["properties"]["containers"]["items"]["properties"]["image"].is_object()
}

fn members_in_rust(members: &[Member], of_optional: &str) -> String {
    let mut text = String::new();
    for Member {
        name,
        identifier,
        type_,
        is_required,
        schema,
    } in members
    {
        if let Some(comment) = comment(schema) {
            let _ = writeln!(text, "    /// {comment}");
        }
        if camel(identifier) != *name {
            let _ = writeln!(text, "    #[serde(rename = {name:?})]");
        }
        let _ = if *is_required {
            writeln!(text, "    pub {identifier}: {type_},")
        } else {
            writeln!(text, "{of_optional}    pub {identifier}: Option<{type_}>,")
        };
    }
    text
}

/// A name as serde's `rename_all = "camelCase"` writes it.
fn camel(identifier: &str) -> String {
    let mut words = identifier.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (first, rest) = word.split_at(word.len().min(1));
        name + &first.to_ascii_uppercase() + rest
    })
}

/// The first line of a description.
fn comment(schema: &Value) -> Option<String> {
    let line = schema["description"]
        .as_str()?
        .lines()
        .map(str::trim)
        .find(|line| !line.is_empty())?;
    let line = line.replace(char::is_control, " ");
    if line.chars().count() <= MAX_COMMENT {
        return Some(line);
    }
    let short: String = line.chars().take(MAX_COMMENT).collect();
    let (short, _) = short.rsplit_once(' ').unwrap_or((&short, ""));
    Some(format!("{short} …"))
}

/// A value of a type as a source has it.
fn literal(type_: &str, value: &Value) -> String {
    match (type_, value) {
        ("String", Value::String(text)) if text.is_empty() => "String::new()".to_owned(),
        ("String", Value::String(text)) => format!("{text:?}.to_owned()"),
        ("f64", number) => format!("{:?}", number.as_f64().unwrap_or_default()),
        ("bool" | "i32" | "i64", value) => value.to_string(),
        (list, Value::Array(items)) if list.starts_with("Vec<") => {
            let inner = &list["Vec<".len()..list.len() - 1];
            let items: Vec<_> = items.iter().map(|item| literal(inner, item)).collect();
            format!("vec![{}]", items.join(", "))
        }
        (map, _) if map.starts_with("BTreeMap<") => "BTreeMap::new()".to_owned(),
        _ => format!("json!({})", samples::in_rust(value, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_schema_has_a_type_and_what_is_not_plain_is_a_json_value() {
        let text = json!({"type": "string"});
        let pod = json!({"properties": {"containers": {"items": {"properties": {"image": text}}}}});
        for (schema, type_) in [
            (text.clone(), "String"),
            (json!({"type": "string", "enum": ["A", "B"]}), "String"),
            (json!({"type": "integer", "format": "int32"}), "i32"),
            (json!({"type": "integer", "format": "int64"}), "i64"),
            (json!({"type": "integer"}), "i64"),
            (json!({"type": "number"}), "f64"),
            (json!({"type": "boolean"}), "bool"),
            (json!({"type": "array", "items": text}), "Vec<String>"),
            (json!({"type": "array", "items": {"type": "object"}}), "Vec<Value>"),
            (
                json!({"type": "array", "items": {"type": "string", "nullable": true}}),
                "Vec<Value>",
            ),
            (
                json!({"type": "object", "additionalProperties": {"type": "array", "items": text}}),
                "BTreeMap<String, Vec<String>>",
            ),
            (json!({"type": "object", "properties": {"a": text}}), "Value"),
            (json!({"x-kubernetes-int-or-string": true, "anyOf": []}), "Value"),
            (
                json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
                "Value",
            ),
            (
                json!({"type": "object", "properties": {"metadata": {}, "spec": pod}}),
                "PodTemplateSpec",
            ),
        ] {
            assert_eq!(type_of(&schema), type_, "{schema}");
        }
    }

    #[test]
    fn names_that_rust_has_another_use_for_are_renamed_and_others_are_in_camel_case() {
        let names = [
            "podIP",
            "clusterIPs",
            "type",
            "x-y",
            "1st",
            "metadata",
            "$ref",
            "self",
            "httpPort",
            "http_port",
        ];
        let members: Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({"type": "boolean"})))
            .collect();
        let schema = json!({"properties": members, "required": ["podIP"]});
        let text = members_in_rust(&members_of(&schema), "");
        for (name, member) in [
            ("podIP", "pod_ip: bool"),
            ("x-y", "x_y: Option<bool>"),
            ("1st", "member_1st: Option<bool>"),
            ("$ref", "ref_: Option<bool>"),
            ("http_port", "http_port_: Option<bool>"),
        ] {
            let expected = format!("    #[serde(rename = {name:?})]\n    pub {member},\n");
            assert!(text.contains(&expected), "{expected}: {text}");
        }
        // In camel case these are the names.
        for member in ["cluster_i_ps", "type_", "self_", "metadata", "http_port"] {
            let expected = format!(",\n    pub {member}: Option<bool>");
            assert!(text.contains(&expected), "{expected}: {text}");
        }
        let declared: Vec<_> = text.lines().filter(|line| line.contains("pub ")).collect();
        assert_eq!(declared.len(), names.len());
    }

    #[test]
    fn a_status_that_the_crd_requires_is_answered_with_values_that_it_takes() {
        let integer = json!({"type": "integer", "format": "int32"});
        let status = json!({
            "type": "object", "required": ["replicas", "paused", "phase", "refs", "conditions"],
            "properties": {
                "replicas": integer, "paused": {"type": "boolean"}, "phase": {"type": "string", "enum": ["New", "Old"]},
                "refs": {"type": "object"}, "conditions": {"type": "array"}, "note": {"type": "string"},
            },
        });
        let schema = json!({"type": "object", "properties": {"status": status}});
        let kind = "example.com/v1/Site".parse().unwrap();
        let types = ObjectTypes::of(&schema, &kind, true);
        let required = json!({"replicas": 0, "paused": false, "phase": "New", "refs": {}});
        assert_eq!(Value::Object(types.required_status()), required);
        assert_eq!(
            types.status_in_rust(),
            ".status(SiteStatus { paused: false, phase: \"New\".to_owned(), refs: json!({}), replicas: 0, \
             ..SiteStatus::default() })"
        );
        assert_eq!(ObjectTypes::of(&schema, &kind, false).status_in_rust(), "");
    }
}
