//! Generates a plugin's files from its types: the CRDs in `crds/` and the schema of its configuration. A test compares
//! each with the generated text, and writes it if the environment variable `UPDATE` is set, as in `pilothouse build`.

use std::path::Path;
use std::{env, fs};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::CustomResource;

/// Name of the file with the schema of a plugin's configuration, in the plugin's folder.
pub const CONFIGURATION: &str = "configuration.schema.json";

/// Prefix of the name of a test that keeps a file.
const GENERATED: &str = "generated_";

/// Compares the CRD of a type with `crds/PLURAL.GROUP.yaml` in the plugin's folder, or writes it:
///
/// ```no_run
/// # use pilothouse_plugin::{ObjectMeta, Resource};
/// # #[derive(serde::Deserialize, Resource)]
/// # #[resource(group = "example.com", version = "v1", kind = "Site")]
/// # #[crd(plural = "sites")]
/// # struct Site { metadata: ObjectMeta }
/// #[test]
/// fn generated_crd_is_what_the_types_give() {
///     pilothouse_plugin::crd::keep::<Site>(env!("CARGO_MANIFEST_DIR"));
/// }
/// ```
///
/// The test's name begins with `generated_`, by which `pilothouse build` finds it.
///
/// # Panics
///
/// When the file is stale or can't be written.
pub fn keep<T: CustomResource>(plugin: &str) {
    let mut definition = super::crd::<T>();
    let name = definition["metadata"]["name"]
        .as_str()
        .expect("a definition has a name")
        .to_owned();
    let versions = definition.pointer_mut("/spec/versions").and_then(Value::as_array_mut);
    for version in versions.into_iter().flatten() {
        let schema = version.pointer_mut("/schema/openAPIV3Schema");
        if let Some(schema) = schema.and_then(Value::as_object_mut) {
            // The name of the Rust type, which is meaningless to users.
            schema.remove("title");
        }
    }
    let yaml = serde_saphyr::to_string(&plain(definition)).expect("a definition is YAML");
    let text = format!("# Generated from the types in src/; a test keeps it so. Do not edit.\n{yaml}");
    compare(&Path::new(plugin).join("crds").join(format!("{name}.yaml")), &text);
}

/// Compares a configuration's schema with the file [`CONFIGURATION`] in the plugin's folder, or writes it. See
/// [`keep`].
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
    let path = Path::new(plugin).join(CONFIGURATION);
    compare(&path, &format!("{:#}\n", plain(schema)));
}

fn compare(path: &Path, generated: &str) {
    // The test runner names each test's thread after the test, unless all run on the main one.
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("main");
    assert!(
        test == "main" || test.contains(GENERATED),
        "the test {test} keeps a generated file, so its name has to begin with {GENERATED}, by which `pilothouse build` finds it"
    );
    // An untouched file causes no recompilation.
    if fs::read_to_string(path).is_ok_and(|kept| kept == generated) {
        return;
    }
    assert!(
        env::var_os("UPDATE").is_some(),
        "{} is not what the types give; `pilothouse build` writes it anew, as does `UPDATE=1 cargo test {GENERATED}`",
        path.display()
    );
    fs::create_dir_all(path.parent().expect("it is in the plugin's folder")).expect("the folder can be made");
    fs::write(path, generated).expect("the file can be written");
}

/// Sorts members by name, since serde_json's order depends on the features of other crates in the build; and writes
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
