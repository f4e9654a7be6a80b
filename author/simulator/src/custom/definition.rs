//! CustomResourceDefinitions: defaults, validation, conditions, and the resources that they add.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Column, CustomKind, ScalePaths, set_below, structural, validate};
use crate::failure::FieldError;
use crate::kinds::{Resource, Storage, Subresource};
use crate::resource::text;
use crate::schema::{Node, OBJECT_META, Schema};

const VERBS: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// Kept until the CRD's objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

fn versions(definition: &Value) -> &[Value] {
    definition["spec"]["versions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Sets the server's defaults.
pub(crate) fn default(definition: &mut Value) {
    let spec = &mut definition["spec"];
    let kind = text(&spec["names"]["kind"]).to_owned();
    if let Some(names) = spec["names"].as_object_mut() {
        let empty =
            |names: &Map<String, Value>, name: &str| names.get(name).and_then(Value::as_str).unwrap_or("").is_empty();
        if empty(names, "singular") {
            names.insert("singular".to_owned(), json!(kind.to_lowercase()));
        }
        if empty(names, "listKind") && !kind.is_empty() {
            names.insert("listKind".to_owned(), json!(format!("{kind}List")));
        }
    }
    if spec["conversion"].is_null() && spec.is_object() {
        spec["conversion"] = json!({"strategy": "None"});
    }
}

/// Returns the errors of the definition.
pub(crate) fn validate(definition: &Value) -> Vec<FieldError> {
    let spec = &definition["spec"];
    let mut errors = Vec::new();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let expected = format!("{plural}.{group}");
    let name = &definition["metadata"]["name"];
    if text(name) != expected {
        let detail = "must be spec.names.plural+\".\"+spec.group";
        errors.push(FieldError::invalid("metadata.name", name, detail));
    }
    if group.is_empty() {
        errors.push(FieldError::required("spec.group", ""));
    } else if !group.contains('.') {
        errors.push(FieldError::invalid(
            "spec.group",
            &spec["group"],
            "should be a domain with at least one dot",
        ));
    }
    match text(&spec["scope"]) {
        "Namespaced" | "Cluster" => {}
        "" => errors.push(FieldError::required("spec.scope", "")),
        _ => errors.push(FieldError::not_supported(
            "spec.scope",
            &spec["scope"],
            &["Cluster", "Namespaced"],
        )),
    }
    for member in ["plural", "singular", "kind", "listKind"] {
        if text(&spec["names"][member]).is_empty() {
            errors.push(FieldError::required(format!("spec.names.{member}"), ""));
        }
    }
    let stored = versions(definition)
        .iter()
        .filter(|version| version["storage"] == true)
        .count();
    if versions(definition).is_empty() || stored != 1 {
        let detail = "must have exactly one version marked as storage version";
        errors.push(FieldError::invalid("spec.versions", &spec["versions"], detail));
    }
    for (index, version) in versions(definition).iter().enumerate() {
        // A single schema is that of the definition as a whole.
        let path = if versions(definition).len() == 1 {
            "spec.validation.openAPIV3Schema".to_owned()
        } else {
            format!("spec.versions[{index}].schema.openAPIV3Schema")
        };
        match version["schema"].get("openAPIV3Schema") {
            None => {
                errors.push(FieldError::required(
                    format!("spec.versions[{index}].schema.openAPIV3Schema"),
                    "",
                ));
            }
            Some(schema) => {
                structure(schema, &path, "at the root", &mut errors);
                defaults(schema, &path, &mut errors);
            }
        }
    }
    errors
}

/// Every level of a structural schema says its type.
fn structure(schema: &Value, path: &str, place: &str, errors: &mut Vec<FieldError>) {
    let anything =
        schema["x-kubernetes-int-or-string"] == true || schema["x-kubernetes-preserve-unknown-fields"] == true;
    if text(&schema["type"]).is_empty() && !anything {
        errors.push(FieldError::required(
            format!("{path}.type"),
            format!("must not be empty {place}"),
        ));
    }
    if schema["type"] == "array" && !schema["items"].is_object() {
        errors.push(FieldError::required(format!("{path}.items"), "must be specified"));
    }
    if schema["properties"].is_object() && schema["additionalProperties"].is_object() {
        let detail = "additionalProperties and properties are mutual exclusive";
        errors.push(FieldError::forbidden(format!("{path}.additionalProperties"), detail));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        structure(
            property,
            &format!("{path}.properties[{name}]"),
            "for specified object fields",
            errors,
        );
    }
    if schema["items"].is_object() {
        structure(
            &schema["items"],
            &format!("{path}.items"),
            "for specified array items",
            errors,
        );
    }
    if schema["additionalProperties"].is_object() {
        let path = format!("{path}.additionalProperties");
        structure(
            &schema["additionalProperties"],
            &path,
            "for specified object fields",
            errors,
        );
    }
}

/// Every default of a property is a value that the property accepts.
fn defaults(schema: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{path}.properties[{name}]");
        if let Some(default) = property.get("default") {
            let (property, place) = (Schema::parse(property), format!("{path}.default"));
            if structural::has_unknown(&property, default) {
                errors.push(FieldError::invalid(place, default, "must not have unknown fields"));
            } else {
                let mut filled = default.clone();
                structural::default(&property, &mut filled, structural::Nulls::Kept);
                let mut found = validate::validate(&property, &filled);
                set_below(&place, &mut found);
                errors.extend(found);
            }
        }
        defaults(property, &path, errors);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            defaults(&schema[inner], &format!("{path}.{inner}"), errors);
        }
    }
}

/// The version that a new definition stores.
pub(crate) fn stored_versions(definition: &Value) -> Vec<Value> {
    versions(definition)
        .iter()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect()
}

/// The status that the server's own controllers give an accepted definition.
pub(crate) fn accept(definition: &mut Value, now: &str) {
    let stored = versions(definition).iter().find(|version| version["storage"] == true);
    let stored = stored.map(|version| version["name"].clone()).unwrap_or_default();
    let names = definition["spec"]["names"].clone();
    let mut stored_versions = definition["status"]["storedVersions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    if !stored_versions.contains(&stored) {
        stored_versions.push(stored);
    }
    let since = |kind: &str| {
        let conditions = definition["status"]["conditions"].as_array();
        let known = conditions
            .into_iter()
            .flatten()
            .find(|known| known["type"] == kind && known["status"] == "True");
        known.map_or_else(|| json!(now), |known| known["lastTransitionTime"].clone())
    };
    let conditions = json!([
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts", "message": "no conflicts found",
            "lastTransitionTime": since("NamesAccepted")},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
            "message": "the initial names have been accepted", "lastTransitionTime": since("Established")},
    ]);
    let kept = definition["status"]["conditions"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let others = kept.into_iter().filter(|condition| condition["type"] == "Terminating");
    let conditions = conditions
        .as_array()
        .cloned()
        .unwrap_or_default()
        .into_iter()
        .chain(others)
        .collect();
    definition["status"]["acceptedNames"] = names;
    definition["status"]["conditions"] = Value::Array(conditions);
    definition["status"]["storedVersions"] = Value::Array(stored_versions);
}

/// Returns `true` if the definition's objects are being removed.
pub(crate) fn is_terminating(definition: &Value) -> bool {
    definition["metadata"]["deletionTimestamp"].is_string()
}

/// One resource for each served version.
pub(crate) fn resources(definition: &Value) -> Vec<Resource> {
    let stored = versions(definition).iter().find(|version| version["storage"] == true);
    let stored = stored.unwrap_or(&Value::Null);
    let stored = (text(&stored["name"]), Arc::new(schema_of(stored)));
    let served = versions(definition).iter().filter(|version| version["served"] == true);
    served
        .map(|version| resource(&definition["spec"], version, &stored))
        .collect()
}

fn schema_of(version: &Value) -> Schema {
    Schema::parse(&with_resource_members(&version["schema"]["openAPIV3Schema"]))
}

fn resource(spec: &Value, version: &Value, (stored, storage_schema): &(&str, Arc<Schema>)) -> Resource {
    let names = &spec["names"];
    let words = |list: &Value| {
        list.as_array()
            .into_iter()
            .flatten()
            .map(|word| text(word).to_owned())
            .collect()
    };
    let (group, plural, kind) = (text(&spec["group"]), text(&names["plural"]), text(&names["kind"]));
    let parts = &version["subresources"];
    let mut subresources = Vec::new();
    let mut part = |name: &str, kind: &str, group_version: Option<(&str, &str)>| {
        subresources.push(Subresource {
            name: name.to_owned(),
            kind: kind.to_owned(),
            group_version: group_version.map(|(group, version)| (group.to_owned(), version.to_owned())),
            verbs: ["get", "patch", "update"].map(str::to_owned).to_vec(),
        });
    };
    if parts["status"].is_object() {
        part("status", kind, None);
    }
    if parts["scale"].is_object() {
        part("scale", "Scale", Some(("autoscaling", "v1")));
    }
    let text_of_schema = version["schema"]["openAPIV3Schema"].clone();
    let schema = Arc::new(schema_of(version));
    let custom = CustomKind {
        storage_version: (*stored).to_owned(),
        storage_schema: storage_schema.clone(),
        schema: schema.clone(),
        columns: version["additionalPrinterColumns"]
            .as_array()
            .into_iter()
            .flatten()
            .map(column)
            .collect(),
        scale: parts["scale"].is_object().then(|| ScalePaths {
            spec: text(&parts["scale"]["specReplicasPath"]).to_owned(),
            status: text(&parts["scale"]["statusReplicasPath"]).to_owned(),
            selector: parts["scale"]["labelSelectorPath"].as_str().map(str::to_owned),
        }),
        selectable: version["selectableFields"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|field| text(&field["jsonPath"]).to_owned())
            .collect(),
        text: text_of_schema,
        converted: spec["conversion"]["strategy"] == "Webhook",
    };
    Resource {
        group: group.to_owned(),
        version: text(&version["name"]).to_owned(),
        plural: plural.to_owned(),
        singular: text(&names["singular"]).to_owned(),
        kind: kind.to_owned(),
        list_kind: text(&names["listKind"]).to_owned(),
        namespaced: spec["scope"] == "Namespaced",
        short_names: words(&names["shortNames"]),
        categories: words(&names["categories"]),
        verbs: VERBS.iter().map(|verb| (*verb).to_owned()).collect(),
        subresources,
        schema: Node::Inline(schema),
        storage: Storage::new(group, plural),
        custom: Some(Arc::new(custom)),
    }
}

fn column(text_of_column: &Value) -> Column {
    let word = |name: &str| text(&text_of_column[name]).to_owned();
    Column {
        name: word("name"),
        kind: word("type"),
        format: word("format"),
        priority: text_of_column["priority"].as_i64().unwrap_or(0),
        path: word("jsonPath"),
    }
}

/// The schema with the members that every resource has, here and in embedded resources.
pub(crate) fn with_resource_members(schema: &Value) -> Value {
    let mut schema = schema.clone();
    add_members(&mut schema);
    embedded(&mut schema);
    schema
}

fn add_members(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    let properties = members.entry("properties").or_insert_with(|| json!({}));
    properties["apiVersion"] = json!({"type": "string"});
    properties["kind"] = json!({"type": "string"});
    properties["metadata"] = json!({"allOf": [{"$ref": format!("#/components/schemas/{OBJECT_META}")}]});
}

fn embedded(schema: &mut Value) {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    for (_, property) in properties.into_iter().flatten() {
        embedded(property);
    }
    for inner in ["items", "additionalProperties"] {
        if schema.get(inner).is_some_and(Value::is_object) {
            embedded(&mut schema[inner]);
        }
    }
    if schema["x-kubernetes-embedded-resource"] == true {
        add_members(schema);
    }
}
