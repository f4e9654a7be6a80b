//! Schemas of the builders' parts in CustomResourceDefinitions: those of the API server, as far as a structural schema
//! allows.
//!
//! `openapi.json` comes from the documents in the sources of Kubernetes, which leave out enumerations and is reduced to what
//! setters need. So the schemas are taken from what a running API server has published, which the simulated one has too.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use super::schema::{Schemas, is_built, path_of};

/// Definitions that a running API server has published, from the workspace's root.
pub const PUBLISHED: &str = "author/simulator/schemas/definitions.json";

/// Pattern that the API server accepts for a quantity, as controller-gen writes it.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The members of a schema that are kept as they are.
const KEPT: [&str; 7] = [
    "enum",
    "format",
    "required",
    "type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
];

/// Metadata that an object has within another one, as with controller-gen's `generateEmbeddedObjectMeta`: the rest is
/// the server's.
const EMBEDDED_METADATA: [&str; 5] = ["annotations", "finalizers", "labels", "name", "namespace"];

/// The file with the schemas by the paths of their types, each with references to others: `{"$ref": "core::v1::Probe"}`.
pub fn file(schemas: &Schemas, published: &Map<String, Value>) -> Result<String> {
    let built = || schemas.iter().filter(|(_, schema)| is_built(schema));
    for (name, _) in built() {
        ensure!(
            published.contains_key(name),
            "{PUBLISHED} lacks {name}: it is of another version of Kubernetes"
        );
    }
    let mut keys = BTreeMap::new();
    published.values().for_each(|schema| find_keys(schema, &mut keys));
    let reducer = Reducer { schemas, published };
    let mut lines = BTreeMap::new();
    for (name, schema) in built() {
        let mut object = reducer.reduce(&published[name]);
        for key in keys.get(name.as_str()).into_iter().flatten() {
            if let Some(default) = reducer.default_of_key(name, key) {
                object["properties"][key]["default"] = default.clone();
            }
        }
        let properties = object["properties"].as_object_mut().context("a part has properties")?;
        properties.retain(|name, _| schema.kind.is_none() || name != "status");
        if name.ends_with(".meta.v1.ObjectMeta") {
            properties.retain(|name, _| EMBEDDED_METADATA.contains(&name.as_str()));
        }
        lines.insert(path_of(name), sorted(object));
    }
    let lines: Vec<String> = lines
        .iter()
        .map(|(path, schema)| format!("{path:?}:{schema}"))
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

/// Collects, by the names of the types that are items of lists, the members that are the keys of such lists.
fn find_keys<'a>(schema: &'a Value, keys: &mut BTreeMap<&'a str, Vec<&'a str>>) {
    let listed = schema["x-kubernetes-list-map-keys"].as_array();
    if let (Some(listed), Some(item)) = (listed, reference_of(&schema["items"])) {
        let listed = listed.iter().filter_map(Value::as_str);
        keys.entry(item).or_default().extend(listed);
    }
    let properties = schema["properties"].as_object();
    properties
        .into_iter()
        .flat_map(Map::values)
        .for_each(|property| find_keys(property, keys));
}

/// Makes schemas structural.
struct Reducer<'a> {
    schemas: &'a Schemas,
    published: &'a Map<String, Value>,
}

impl Reducer<'_> {
    fn reduce(&self, schema: &Value) -> Value {
        if let Some(reference) = reference_of(schema) {
            return self.refer(reference);
        }
        let mut reduced = Map::new();
        for (name, member) in schema.as_object().into_iter().flatten() {
            let member = match name.as_str() {
                "properties" => {
                    let properties = member.as_object().into_iter().flatten();
                    let properties = properties.map(|(name, schema)| (name.clone(), self.reduce(schema)));
                    Value::Object(properties.collect())
                }
                "items" => self.reduce(member),
                "additionalProperties" if member.is_object() => self.reduce(member),
                name if KEPT.contains(&name) => member.clone(),
                _ => continue,
            };
            reduced.insert(name.clone(), member);
        }
        let is_open = ["properties", "additionalProperties"]
            .iter()
            .all(|name| !reduced.contains_key(*name));
        if !reduced.contains_key("type") || (reduced["type"] == "object" && is_open) {
            return any();
        }
        if !self.has_keys(schema) {
            reduced.remove("x-kubernetes-list-map-keys");
            reduced.insert("x-kubernetes-list-type".to_owned(), "atomic".into());
        }
        Value::Object(reduced)
    }

    /// Returns `true` if a list has its keys in every item, which a definition has to ensure and the server's own types
    /// do not.
    fn has_keys(&self, list: &Value) -> bool {
        let keys = list["x-kubernetes-list-map-keys"].as_array().into_iter().flatten();
        let mut keys = keys.filter_map(Value::as_str);
        match reference_of(&list["items"]) {
            Some(item) => keys.all(|key| self.is_required(item, key) || self.default_of_key(item, key).is_some()),
            None => keys.next().is_none(),
        }
    }

    fn is_required(&self, type_: &str, member: &str) -> bool {
        let required = self.published[type_]["required"].as_array();
        required.is_some_and(|required| required.iter().any(|one| one == member))
    }

    /// The default of a key that may be absent. Other defaults are filled in where the object ends up.
    fn default_of_key(&self, type_: &str, key: &str) -> Option<&Value> {
        let default = self.published[type_]["properties"][key].get("default")?;
        (!self.is_required(type_, key)).then_some(default)
    }

    fn refer(&self, reference: &str) -> Value {
        match reference.rsplit('.').next() {
            Some("Quantity") => json!({"pattern": QUANTITY, "x-kubernetes-int-or-string": true}),
            Some("IntOrString") => json!({"x-kubernetes-int-or-string": true}),
            Some("Time" | "MicroTime") => json!({"format": "date-time", "type": "string"}),
            _ => match self.schemas.get(reference) {
                Some(schema) if is_built(schema) => json!({"$ref": path_of(reference)}),
                _ => any(),
            },
        }
    }
}

/// Members in the order of their names, since whether serde_json keeps another order depends on what else is built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.into_iter().collect();
            let members = members.into_iter().map(|(name, value)| (name, sorted(value)));
            Value::Object(members.collect())
        }
        scalar => scalar,
    }
}

/// Schema of values without one, such as the definition within a definition.
fn any() -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns the reference of a schema, direct or as the only part of an `allOf`.
pub fn reference_of(schema: &Value) -> Option<&str> {
    let reference = schema.get("$ref").or_else(|| schema["allOf"].get(0)?.get("$ref"))?;
    reference.as_str()?.strip_prefix("#/components/schemas/")
}
