//! What a plugin generates from its types: the CustomResourceDefinitions in its `crds/`, and the schema of its
//! configuration. Each is compared with its file by a test of the plugin; with `UPDATE` set, as `cargo xtask generate`
//! sets it, the test writes the file instead. Nothing of this is in a component.
//!
//! ```no_run
//! # let crd = serde_json::json!({"metadata": {"name": "appservices.kosmos.io"}});
//! // `crd` is what the SDK makes of a type: `pilothouse_plugin::crd::<AppService>()`.
//! pilothouse_definitions::keep_definition(env!("CARGO_MANIFEST_DIR"), &crd);
//! ```
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::{env, fs};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde_json::{Map, Value};

pub use pilothouse_plugin::crd::{Condition, ConditionStatus, ConditionsOnly};

/// The name of the file with the schema of a plugin's configuration, in the plugin's folder.
pub const CONFIGURATION: &str = "configuration.schema.json";

/// Compares a definition with `crds/NAME.yaml` of the plugin's folder, or writes it.
///
/// # Panics
///
/// When the file is stale or can't be written.
pub fn keep_definition(plugin: &str, definition: &impl Serialize) {
    let mut definition = serde_json::to_value(definition).expect("a definition is JSON");
    let name = definition["metadata"]["name"]
        .as_str()
        .expect("a definition has a name")
        .to_owned();
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let schema = version.pointer_mut("/schema/openAPIV3Schema");
        if let Some(schema) = schema.and_then(Value::as_object_mut) {
            // The name of the Rust type, which means nothing to users.
            schema.remove("title");
        }
    }
    let yaml = serde_saphyr::to_string(&plain(definition)).expect("a definition is YAML");
    let text = format!("# Generated from the types in src/: `cargo xtask generate` writes it anew.\n{yaml}");
    keep(&Path::new(plugin).join("crds").join(format!("{name}.yaml")), &text);
}

/// Compares the schema of a configuration's type with the file [`CONFIGURATION`] of the plugin's folder, or writes it.
///
/// # Panics
///
/// When the file is stale or can't be written.
pub fn keep_configuration<T: JsonSchema>(plugin: &str) {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.inline_subschemas = true);
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("title");
    }
    keep(
        &Path::new(plugin).join(CONFIGURATION),
        &format!("{:#}\n", plain(schema)),
    );
}

fn keep(path: &PathBuf, generated: &str) {
    // The test runner names each test's thread after the test, unless all run on the main one.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    assert!(
        test == "main" || test.contains("generated_"),
        "the test {test} keeps a generated file, so its name has to begin with generated_: `cargo xtask generate` finds it by that"
    );
    if env::var_os("UPDATE").is_some() {
        fs::create_dir_all(path.parent().expect("it is in the plugin's folder")).expect("the folder can be made");
        fs::write(path, generated).expect("the file can be written");
        return;
    }
    let kept = fs::read_to_string(path).unwrap_or_default();
    assert!(
        kept == generated,
        "{} is stale: run `cargo xtask generate`",
        path.display()
    );
}

/// Members in order of their names, since whether serde_json keeps another order depends on what else is built; and
/// bounds of numbers, which are floats in Rust, as whole numbers: `65535` for `65535.0`.
fn plain(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(plain).collect(),
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            let members = members.into_iter().map(|(name, value)| (name, plain(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        Value::Number(number) => {
            let whole = number.as_f64().and_then(|float| format!("{float}").parse::<i64>().ok());
            whole.map_or(Value::Number(number), Value::from)
        }
        scalar => scalar,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::plain;

    #[test]
    fn numbers_are_whole_where_they_can_be_and_members_sorted() {
        let value = plain(json!({"maximum": 65_535.0, "a": [{"minimum": 0.5}]}));
        assert_eq!(value.to_string(), r#"{"a":[{"minimum":0.5}],"maximum":65535}"#);
    }
}
