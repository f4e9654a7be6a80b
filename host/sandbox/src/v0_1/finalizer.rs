//! Owns the optional interface `finalizer`: whether a component exports it, with the right types.

use wasmtime::component::InstancePre;

use super::Exports;
use crate::state::State;
use crate::v0_1::bindings::pilothouse::plugin::types::{Failure, Request};
use bindings::exports::pilothouse::plugin::finalizer::Finalization;

mod bindings {
    //! Generated from wit/.
    #![allow(missing_docs, clippy::pedantic, reason = "generated")]

    wasmtime::component::bindgen!({
        inline: "
            package pilothouse:optional-finalizer;
            world finalizer-only {
                export pilothouse:plugin/finalizer@0.1.0;
            }
        ",
        path: "../../wit",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: { "pilothouse:plugin/types@0.1.0": crate::v0_1::bindings::pilothouse::plugin::types },
    });
}

/// Where the functions of the interface are in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::finalizer::GuestIndices;

/// None if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<State>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("finalizer") {
        return Ok(None);
    }
    exports.check::<(Request<'_>,), (Result<Finalization, Failure>,)>("finalizer", "finalize")?;
    Indices::new(instance).map(Some)
}
