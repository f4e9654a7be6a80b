//! Owns the optional interface `converter`: whether a component exports it, with the right types.

use wasmtime::component::InstancePre;

use super::Exports;
use crate::state::State;

mod bindings {
    //! Generated from wit/.
    #![allow(missing_docs, clippy::pedantic, reason = "generated")]

    wasmtime::component::bindgen!({
        inline: "
            package pilothouse:optional-converter;
            world converter-only {
                export pilothouse:plugin/converter@0.1.0;
            }
        ",
        path: "../../wit",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: { "pilothouse:plugin/types@0.1.0": crate::v0_1::bindings::pilothouse::plugin::types },
    });
}

/// Where the functions of the interface are in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::converter::GuestIndices;

/// None if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<State>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("converter") {
        return Ok(None);
    }
    exports.check::<(&str, &str), (Result<String, String>,)>("converter", "convert")?;
    Indices::new(instance).map(Some)
}
