//! Owns the optional interface `defaulter`: whether a component exports it, with the right types.

use wasmtime::component::InstancePre;

use super::Exports;
use crate::state::State;
use bindings::exports::pilothouse::plugin::defaulter::{FieldError, Review};

mod bindings {
    //! Generated from wit/.
    #![allow(missing_docs, clippy::pedantic, reason = "generated")]

    wasmtime::component::bindgen!({
        inline: "
            package pilothouse:optional-defaulter;
            world defaulter-only {
                export pilothouse:plugin/defaulter@0.1.0;
            }
        ",
        path: "../../wit",
    });
}

/// Where the functions of the interface are in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::defaulter::GuestIndices;

/// None if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<State>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("defaulter") {
        return Ok(None);
    }
    exports.check::<(&Review,), (Result<String, Vec<FieldError>>,)>("defaulter", "apply-defaults")?;
    Indices::new(instance).map(Some)
}
