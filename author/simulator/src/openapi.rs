//! OpenAPI v3: one document per group version, with the schemas it needs and the paths that kubectl looks up.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::custom::definition::with_resource_members;
use crate::discovery::hash;
#[cfg(test)]
use crate::kinds::group_version;
use crate::kinds::{Kinds, Resource};
use crate::schema::{OBJECT_META, TEXTS};

/// Media type of OpenAPI v2 in Protobuf.
pub(crate) const V2_MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

const REFERENCE: &str = "#/components/schemas/";

/// `/openapi/v3`: where the documents are.
pub(crate) fn index(kinds: &Kinds, generation: u64) -> Value {
    let mut paths = Map::new();
    let mut add = |name: String| {
        let mark = hash(&[&name, &generation.to_string()]);
        let mark: String = mark.chars().filter(char::is_ascii_alphanumeric).collect();
        paths.insert(
            name.clone(),
            json!({"serverRelativeURL": format!("/openapi/v3/{name}?hash={mark}")}),
        );
    };
    for version in kinds.versions("") {
        add(format!("api/{version}"));
    }
    for group in kinds.groups() {
        for version in kinds.versions(group) {
            add(format!("apis/{group}/{version}"));
        }
    }
    json!({"paths": paths})
}

/// The document of one group version, by its path below `/openapi/v3/`.
pub(crate) fn document(kinds: &Kinds, path: &str) -> Option<Value> {
    let steps: Vec<&str> = path.split('/').collect();
    let (group, version) = match steps.as_slice() {
        ["api", version] => ("", *version),
        ["apis", group, version] => (*group, *version),
        _ => return None,
    };
    let resources: Vec<&Resource> = kinds
        .all()
        .map(|resource| &**resource)
        .filter(|resource| resource.group == group && resource.version == version)
        .collect();
    if resources.is_empty() {
        return None;
    }
    let mut schemas = Map::new();
    let mut paths = Map::new();
    for resource in resources {
        let name = schema_name(resource);
        if let Some(custom) = &resource.custom {
            let kind = json!([{"group": group, "version": version, "kind": resource.kind}]);
            let mut schema = with_resource_members(&custom.text);
            schema["x-kubernetes-group-version-kind"] = kind;
            schemas.insert(name.clone(), schema);
            let list_kind = json!([{"group": group, "version": version, "kind": resource.list_kind}]);
            schemas.insert(format!("{name}List"), list_schema(&name, &list_kind));
            include(&mut schemas, OBJECT_META);
        } else {
            include(&mut schemas, &name);
            include(&mut schemas, &format!("{name}List"));
        }
        add_paths(&mut paths, resource, &name);
    }
    Some(json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.3"},
        "paths": paths,
        "components": {"schemas": schemas},
    }))
}

/// The key of a kind's schema: the definition's name, or for custom resources the group reversed.
fn schema_name(resource: &Resource) -> String {
    if resource.custom.is_none() {
        return resource.schema().name.clone().unwrap_or_default();
    }
    let mut parts: Vec<&str> = resource.group.split('.').collect();
    parts.reverse();
    format!("{}.{}.{}", parts.join("."), resource.version, resource.kind)
}

fn list_schema(item: &str, kind: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"allOf": [{"$ref": format!("{REFERENCE}io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta")}]},
            "items": {"type": "array", "items": {"allOf": [{"$ref": format!("{REFERENCE}{item}")}]}},
        },
        "x-kubernetes-group-version-kind": kind,
    })
}

/// Adds a definition and all that it refers to.
fn include(schemas: &mut Map<String, Value>, name: &str) {
    let mut queue = vec![name.to_owned()];
    let mut seen: BTreeSet<String> = schemas.keys().cloned().collect();
    while let Some(name) = queue.pop() {
        if !seen.insert(name.clone()) {
            continue;
        }
        if let Some(text) = TEXTS.get(&name) {
            references(text, &mut queue);
            schemas.insert(name, text.clone());
        }
    }
}

fn references(text: &Value, into: &mut Vec<String>) {
    match text {
        Value::Object(members) => {
            for (name, value) in members {
                match value.as_str().and_then(|text| text.strip_prefix(REFERENCE)) {
                    Some(target) if name == "$ref" => into.push(target.to_owned()),
                    _ => references(value, into),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, schema: &str) {
    let Resource {
        group, version, plural, ..
    } = resource;
    let root = if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    };
    let collection = if resource.namespaced {
        format!("{root}/namespaces/{{namespace}}/{plural}")
    } else {
        format!("{root}/{plural}")
    };
    let operation = |action: &str, body: Option<&[&str]>| {
        let mut operation = json!({
            "tags": [tag(group, version)],
            "responses": {"200": {"description": "OK", "content": content(&["application/json"], schema)}},
            "parameters": parameters(action),
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": resource.kind},
        });
        if let Some(media) = body {
            operation["requestBody"] = json!({"content": content(media, schema), "required": true});
        }
        operation
    };
    let mut of_collection = json!({"get": operation("list", None)});
    if resource.allows("create") {
        of_collection["post"] = operation("post", Some(&["*/*"]));
    }
    paths.insert(collection.clone(), of_collection);
    let mut patches = vec![
        "application/apply-patch+yaml",
        "application/json-patch+json",
        "application/merge-patch+json",
    ];
    if resource.custom.is_none() {
        patches.push("application/strategic-merge-patch+json");
    }
    let mut of_object = json!({"get": operation("get", None)});
    for (method, verb, media) in [
        ("put", "update", vec!["*/*"]),
        ("patch", "patch", patches),
        ("delete", "delete", vec!["*/*"]),
    ] {
        if resource.allows(verb) {
            of_object[method] = operation(if method == "put" { "put" } else { verb }, Some(&media));
        }
    }
    paths.insert(format!("{collection}/{{name}}"), of_object);
    for part in &resource.subresources {
        let of_part = json!({"get": operation("get", None)});
        paths.insert(format!("{collection}/{{name}}/{}", part.name), of_part);
    }
}

fn tag(group: &str, version: &str) -> String {
    let short = group.split('.').next().unwrap_or_default();
    if short.is_empty() {
        format!("core_{version}")
    } else {
        format!("{short}_{version}")
    }
}

fn content(media: &[&str], schema: &str) -> Value {
    let entry = json!({"schema": {"$ref": format!("{REFERENCE}{schema}")}});
    media
        .iter()
        .map(|media| ((*media).to_owned(), entry.clone()))
        .collect::<Map<_, _>>()
        .into()
}

/// kubectl looks for dryRun and fieldValidation before it uses them.
fn parameters(action: &str) -> Value {
    let names: &[&str] = match action {
        "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        "list" => &[
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "timeoutSeconds",
            "watch",
        ],
        _ => &[],
    };
    names
        .iter()
        .map(|name| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}}))
        .collect()
}

/// The name of a group version as documents are indexed by.
#[cfg(test)]
fn indexed(group: &str, version: &str) -> String {
    let name = group_version(group, version);
    if group.is_empty() {
        format!("api/{name}")
    } else {
        format!("apis/{name}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_closed_under_its_references() {
        let kinds = Kinds::builtin();
        let document = document(&kinds, &indexed("apps", "v1")).expect("apps/v1 is served");
        let schemas = document["components"]["schemas"]
            .as_object()
            .expect("there are schemas");
        let mut wanted = Vec::new();
        references(&document, &mut wanted);
        let missing: Vec<&String> = wanted.iter().filter(|name| !schemas.contains_key(*name)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"].is_object());
    }
}
