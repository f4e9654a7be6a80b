//! Owns the target `configuration`: a document as `--config` and `--limits` take it, held against a schema of a guest's.
//! The input is the schema and the document, as YAML, with a line `---` between them.

use pilothouse_core::{Limits, configuration};
use serde_json::Value;

use crate::refused;

pub(super) fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (schema, document) = text.split_once("\n---\n").unwrap_or(("", text));
    let Ok(document) = serde_saphyr::from_str::<Value>(document) else {
        return;
    };
    let schema = serde_saphyr::from_str::<Value>(schema).ok();
    if let Err(error) = configuration::check(schema.as_ref(), Some(&document)) {
        assert!(error.field.starts_with('.'), "{:?} is no field", error.field);
        refused(&error, &error.field);
    }
    match serde_json::from_value::<Limits>(document) {
        Ok(limits) => {
            if let Err(error) = limits.check() {
                refused(&error, "");
            }
        }
        Err(error) => refused(&error, ""),
    }
}
