//! Owns the optional interface `validator`: whether a component exports it, with the right types.

use wasmtime::component::InstancePre;

use super::Exports;
use crate::state::State;
use bindings::exports::pilothouse::plugin::validator::{FieldError, Review};

mod bindings {
    //! Generated from wit/.
    #![allow(missing_docs, clippy::pedantic, reason = "generated")]

    wasmtime::component::bindgen!({
        inline: "
            package pilothouse:optional-validator;
            world validator-only {
                export pilothouse:plugin/validator@0.1.0;
            }
        ",
        path: "../../wit",
    });
}

/// Where the functions of the interface are in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::validator::GuestIndices;

/// None if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<State>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("validator") {
        return Ok(None);
    }
    exports.check::<(&Review,), (Result<Vec<String>, Vec<FieldError>>,)>("validator", "validate")?;
    Indices::new(instance).map(Some)
}
