//! Parsed OpenAPI v3 schemas, of built-in kinds and of CRDs alike, and the committed definitions that built-in kinds
//! refer to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value};

const DEFINITIONS: &str = include_str!("../schemas/definitions.json");
const ZEROS: &str = include_str!("../schemas/zeros.json");
const REFERENCE: &str = "#/components/schemas/";

/// The definition that every object's metadata has.
pub(crate) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The text of every definition, as it is served.
pub(crate) static TEXTS: LazyLock<Map<String, Value>> =
    LazyLock::new(|| serde_json::from_str(DEFINITIONS).expect("the generated definitions are JSON"));

static PARSED: LazyLock<HashMap<String, Arc<Schema>>> = LazyLock::new(|| {
    let zeros: Map<String, Value> = serde_json::from_str(ZEROS).expect("the generated zeros are JSON");
    let parse = |name: &String, text: &Value| {
        let mut schema = Schema::parse(text);
        schema.name = Some(name.clone());
        if let Some(zeros) = zeros.get(name) {
            schema.zeros = Zeros::parse(zeros);
        }
        (name.clone(), Arc::new(schema))
    };
    TEXTS.iter().map(|(name, text)| parse(name, text)).collect()
});

/// Kubernetes' definitions of its own kinds, by name, as an API server serves them in `/openapi/v3`: JSON schemas that refer to
/// each other by `#/components/schemas/` and the name.
pub fn built_in_definitions() -> &'static Map<String, Value> {
    &TEXTS
}

/// The definition of that name.
pub(crate) fn definition(name: &str) -> Option<&'static Arc<Schema>> {
    PARSED.get(name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Shape {
    /// No type given: anything.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Shape {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }
}

/// Members that an object may have beside its properties.
#[derive(Debug, Clone, Default)]
pub(crate) enum Additional {
    /// Not said: nothing, unless there are no properties at all.
    #[default]
    Unsaid,
    Forbidden,
    Anything,
    Of(Node),
}

/// Ownership of the parts of a list, by `x-kubernetes-list-type` or, where that is absent, the patch strategy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Listing {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Treatment of a list or a struct by strategic merge patch.
#[derive(Debug, Clone, Default)]
pub(crate) struct Strategy {
    pub(crate) merge: bool,
    pub(crate) key: Option<String>,
}

/// Serialisation of the zero values of a struct's fields in Go; see examples/generate-schemas.rs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Zeros {
    pub(crate) kept: BTreeSet<String>,
    pub(crate) always: BTreeSet<String>,
    pub(crate) dropped: BTreeSet<String>,
}

impl Zeros {
    fn parse(text: &Value) -> Self {
        let set = |name: &str| {
            text[name]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        Self {
            kept: set("kept"),
            always: set("always"),
            dropped: set("dropped"),
        }
    }
}

/// Inline schema, or a definition by its name: definitions may refer to themselves.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Inline(Arc<Schema>),
    Named(String),
}

impl Node {
    pub(crate) fn get(&self) -> &Schema {
        static ANYTHING: LazyLock<Schema> = LazyLock::new(Schema::default);
        match self {
            Self::Inline(schema) => schema,
            Self::Named(name) => PARSED.get(name).map_or(&ANYTHING, |schema| schema),
        }
    }

    fn parse(text: &Value) -> Self {
        if let Some(name) = referenced(text) {
            return Self::Named(name.to_owned());
        }
        Self::Inline(Arc::new(Schema::parse(text)))
    }
}

fn referenced(text: &Value) -> Option<&str> {
    let direct = text["$ref"].as_str();
    let wrapped = || match text["allOf"].as_array()?.as_slice() {
        [single] => single["$ref"].as_str(),
        _ => None,
    };
    direct.or_else(wrapped)?.strip_prefix(REFERENCE)
}

/// A member of an object's properties.
#[derive(Debug, Clone)]
pub(crate) struct Property {
    pub(crate) node: Node,
    pub(crate) default: Option<Value>,
    /// `x-kubernetes-map-type` at the place where a definition is referred to.
    pub(crate) atomic: Option<bool>,
    pub(crate) strategy: Strategy,
}

impl Property {
    pub(crate) fn get(&self) -> &Schema {
        self.node.get()
    }
}

/// One `x-kubernetes-validations` rule.
#[derive(Debug, Clone)]
pub(crate) struct Rule {
    pub(crate) text: String,
    pub(crate) message: Option<String>,
    pub(crate) message_expression: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) field_path: Option<String>,
}

/// Limits of a value, as JSON schema names them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bounds {
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) unique_items: bool,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) pattern: Option<String>,
}

/// One schema.
#[derive(Debug, Clone, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a member of the schema's own language"
)]
pub(crate) struct Schema {
    /// The definition's name, for built-in types.
    pub(crate) name: Option<String>,
    pub(crate) shape: Shape,
    pub(crate) format: Option<String>,
    pub(crate) properties: BTreeMap<String, Property>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Node>,
    pub(crate) required: Vec<String>,
    pub(crate) enumeration: Vec<Value>,
    pub(crate) nullable: bool,
    pub(crate) bounds: Bounds,
    pub(crate) listing: Listing,
    /// `x-kubernetes-map-type`: true is atomic.
    pub(crate) atomic: Option<bool>,
    pub(crate) int_or_string: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded: bool,
    pub(crate) all_of: Vec<Schema>,
    pub(crate) any_of: Vec<Schema>,
    pub(crate) one_of: Vec<Schema>,
    pub(crate) not: Option<Box<Schema>>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) zeros: Zeros,
}

impl Schema {
    /// Reads a schema; members that the simulator does not know are left out.
    pub(crate) fn parse(text: &Value) -> Self {
        let flag = |name: &str| text[name].as_bool().unwrap_or(false);
        let several = |name: &str| text[name].as_array().into_iter().flatten().map(Self::parse).collect();
        Self {
            name: None,
            shape: shape(text),
            format: text["format"].as_str().map(str::to_owned),
            properties: text["properties"]
                .as_object()
                .into_iter()
                .flatten()
                .map(property)
                .collect(),
            additional: match &text["additionalProperties"] {
                Value::Null => Additional::Unsaid,
                Value::Bool(false) => Additional::Forbidden,
                Value::Bool(true) => Additional::Anything,
                schema => Additional::Of(Node::parse(schema)),
            },
            items: text.get("items").map(Node::parse),
            required: strings(&text["required"]),
            enumeration: text["enum"].as_array().cloned().unwrap_or_default(),
            nullable: flag("nullable"),
            bounds: bounds(text),
            listing: listing(text),
            atomic: map_type(text),
            int_or_string: flag("x-kubernetes-int-or-string")
                || (text["format"] == "int-or-string" && (text["type"] == "string" || text["oneOf"].is_array())),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            embedded: flag("x-kubernetes-embedded-resource"),
            all_of: if referenced(text).is_some() {
                Vec::new()
            } else {
                several("allOf")
            },
            any_of: several("anyOf"),
            one_of: several("oneOf"),
            not: text.get("not").map(|not| Box::new(Self::parse(not))),
            rules: text["x-kubernetes-validations"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(rule)
                .collect(),
            zeros: Zeros::default(),
        }
    }

    /// The schema of a member, declared or additional.
    pub(crate) fn member(&self, name: &str) -> Option<&Self> {
        match (self.properties.get(name), &self.additional) {
            (Some(property), _) => Some(property.get()),
            (None, Additional::Of(node)) => Some(node.get()),
            _ => None,
        }
    }

    /// Returns `true` if its name has this suffix: a built-in type that means arbitrary JSON.
    pub(crate) fn is_named(&self, suffix: &str) -> bool {
        self.name.as_deref().is_some_and(|name| name.ends_with(suffix))
    }
}

fn property((name, text): (&String, &Value)) -> (String, Property) {
    let strategy = text["x-kubernetes-patch-strategy"].as_str().unwrap_or_default();
    let property = Property {
        node: Node::parse(text),
        default: text.get("default").cloned(),
        atomic: map_type(text),
        strategy: Strategy {
            merge: strategy.split(',').any(|word| word == "merge"),
            key: text["x-kubernetes-patch-merge-key"].as_str().map(str::to_owned),
        },
    };
    (name.clone(), property)
}

fn shape(text: &Value) -> Shape {
    match text["type"].as_str() {
        Some("object") => Shape::Object,
        Some("array") => Shape::Array,
        Some("string") => Shape::String,
        Some("integer") => Shape::Integer,
        Some("number") => Shape::Number,
        Some("boolean") => Shape::Boolean,
        _ => Shape::Any,
    }
}

fn strings(list: &Value) -> Vec<String> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

fn map_type(text: &Value) -> Option<bool> {
    text["x-kubernetes-map-type"].as_str().map(|kind| kind == "atomic")
}

fn listing(text: &Value) -> Listing {
    match text["x-kubernetes-list-type"].as_str() {
        Some("set") => return Listing::Set,
        Some("map") => return Listing::Map(strings(&text["x-kubernetes-list-map-keys"])),
        Some(_) => return Listing::Atomic,
        None => {}
    }
    match text["x-kubernetes-patch-strategy"].as_str() {
        Some("merge" | "merge,retainKeys") => match text["x-kubernetes-patch-merge-key"].as_str() {
            Some(key) => Listing::Map(vec![key.to_owned()]),
            None => Listing::Set,
        },
        _ => Listing::Atomic,
    }
}

fn bounds(text: &Value) -> Bounds {
    let flag = |name: &str| text[name].as_bool().unwrap_or(false);
    Bounds {
        minimum: text["minimum"].as_f64(),
        maximum: text["maximum"].as_f64(),
        exclusive_minimum: flag("exclusiveMinimum"),
        exclusive_maximum: flag("exclusiveMaximum"),
        multiple_of: text["multipleOf"].as_f64(),
        min_length: text["minLength"].as_u64(),
        max_length: text["maxLength"].as_u64(),
        min_items: text["minItems"].as_u64(),
        max_items: text["maxItems"].as_u64(),
        unique_items: flag("uniqueItems"),
        min_properties: text["minProperties"].as_u64(),
        max_properties: text["maxProperties"].as_u64(),
        pattern: text["pattern"].as_str().map(str::to_owned),
    }
}

fn rule(text: &Value) -> Option<Rule> {
    let word = |name: &str| text[name].as_str().map(str::to_owned);
    Some(Rule {
        text: word("rule")?,
        message: word("message"),
        message_expression: word("messageExpression"),
        reason: word("reason"),
        field_path: word("fieldPath"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn service_ports_are_keyed_by_port_and_protocol() {
        let spec = definition("io.k8s.api.core.v1.ServiceSpec").expect("services are served");
        let ports = spec.member("ports").expect("a service has ports");
        assert_eq!(
            ports.listing,
            Listing::Map(vec!["port".to_owned(), "protocol".to_owned()])
        );
        let port = ports.items.as_ref().expect("ports is a list").get();
        assert_eq!(port.properties["protocol"].default, Some(Value::from("TCP")));
    }

    #[test]
    fn zeros_of_pointers_are_kept() {
        let spec = definition("io.k8s.api.apps.v1.DeploymentSpec").expect("deployments are served");
        assert!(spec.zeros.kept.contains("replicas"));
        assert!(!spec.zeros.kept.contains("minReadySeconds"));
    }
}
