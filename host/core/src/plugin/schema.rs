//! Generates wit/manifest.schema.json from the types of [`crate::plugin::manifest`] in a test, and compares the two.
//!
//! `cargo xtask generate` runs the test with `UPDATE` set. Rules that a schema cannot express (such as unique names of
//! controllers) are left to [`crate::plugin::manifest::parse`].

use std::path::Path;
use std::{env, fs};

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use crate::plugin::manifest::Manifest;

/// The text of the schema, as stored in the file.
fn generated() -> String {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = generator.into_root_schema_for::<Manifest>().to_value();
    format!("{:#}\n", sorted(schema))
}

/// The value with its members sorted by name. Their order in serde_json depends on the features of the build.
fn sorted(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|(one, _), (other, _)| one.cmp(other));
            let members = members.into_iter().map(|(name, value)| (name, sorted(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        scalar => scalar,
    }
}

#[test]
fn generated_schema_is_what_the_types_give() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../wit/manifest.schema.json");
    let generated = generated();
    if env::var_os("UPDATE").is_some() {
        fs::write(&path, generated).expect("the schema can be written");
        return;
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        kept == generated,
        "wit/manifest.schema.json is stale: run `cargo xtask generate`"
    );
}

#[test]
fn the_schema_refuses_unknown_members_wherever_the_host_does() {
    let schema: Value = serde_json::from_str(&generated()).unwrap();
    let closed = |schema: &Value| schema["additionalProperties"] == Value::Bool(false);
    assert!(closed(&schema));
    for name in ["Controller", "Filter", "Kind", "Touch"] {
        assert!(closed(&schema["$defs"][name]), "{name}");
    }
}
