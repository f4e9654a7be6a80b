//! Finds the optional interface `finalizer` in a component, checks its types, and calls it.

use pilothouse_core::plugin::contract;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::bindings::pilothouse::plugin::types as guest;
use super::{Adapter, Exports, absent, convert};
use crate::state::CallState;
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
        path: "wit",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: { "pilothouse:plugin/types@0.1.0": crate::v0_1::bindings::pilothouse::plugin::types },
    });
}

/// Indices of the interface's functions in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::finalizer::GuestIndices;

/// Returns none if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<CallState>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("finalizer") {
        return Ok(None);
    }
    exports.check::<(guest::Request<'_>,), (Result<Finalization, guest::Failure>,)>("finalizer", "finalize")?;
    Indices::new(instance).map(Some)
}

impl Adapter {
    /// Runs one finalize on a fresh instance.
    pub(crate) fn finalize(
        &self,
        store: &mut Store<CallState>,
        request: &contract::Request,
    ) -> wasmtime::Result<Result<contract::Finalization, pilothouse_core::Failure>> {
        let Some(indices) = &self.finalizer else {
            return Ok(Err(absent("finalizer")));
        };
        let instance = self.pre.instance_pre().instantiate(&mut *store)?;
        let finalizer = indices.load(&mut *store, &instance)?;
        let answer = finalizer.call_finalize(&mut *store, convert::request(request))?;
        Ok(match answer {
            Ok(Finalization::Done) => Ok(contract::Finalization::Done),
            Ok(Finalization::Pending(outcome)) => {
                convert::outcome(outcome, &store.data().limits).map(contract::Finalization::Pending)
            }
            Err(failure) => Err(convert::failure(failure)),
        })
    }
}
