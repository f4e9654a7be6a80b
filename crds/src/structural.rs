//! Converts a Rust type to a structural schema, the form that CRDs require.
//!
//! Rules:
//! <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema>.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// Returns the structural schema of a type: no references, `null`s and closed objects, and bounds of OpenAPI.
pub fn structural_schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::openapi3().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
        root.remove("$schema");
        root.remove("components");
    }
    simplify(&mut schema);
    schema
}

fn simplify(schema: &mut Value) {
    let Some(members) = schema.as_object_mut() else { return };
    // Optional fields are never sent as null: the host leaves them out.
    members.remove("nullable");
    if members.get("additionalProperties") == Some(&json!(false)) {
        members.remove("additionalProperties");
    }
    // Unsigned formats do not exist in OpenAPI; their bounds stay.
    if members
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint"))
    {
        members.remove("format");
    }
    if let Some(values) = one_of_constants(members.get("oneOf")) {
        members.remove("oneOf");
        members.insert("type".to_owned(), json!("string"));
        members.insert("enum".to_owned(), values);
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = members.get_mut(name) {
            simplify(inner);
        }
    }
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        properties.values_mut().for_each(simplify);
    }
}

/// Returns the schema of an enum whose variants have descriptions: schemars makes it a `oneOf` of constants.
fn one_of_constants(variants: Option<&Value>) -> Option<Value> {
    let constant = |variant: &Value| variant.get("const").or_else(|| variant["enum"].get(0)).cloned();
    let values: Option<Vec<Value>> = variants?.as_array()?.iter().map(constant).collect();
    values.map(Value::Array)
}
