//! Compares two schemas of a custom resource for a live object: with the simulated API server's validation, which is
//! itself compared with a real API server's.

use pilothouse_host::install::losses::{CompareObject, Objections};
use pilothouse_simulator::CustomSchema;
use serde_json::Value;

/// Implements [`pilothouse_host::install::losses::CompareSchemas`].
pub fn compare(live: (&Value, &str), wanted: (&Value, &str)) -> Option<CompareObject> {
    let before = CustomSchema::of(live.0, live.1)?;
    let after = CustomSchema::of(wanted.0, wanted.1)?;
    Some(Box::new(move |object| {
        let found = after.objections_after(&before, object);
        Objections {
            errors: found.errors,
            unevaluated: found.unevaluated,
        }
    }))
}
