//! Finds the optional interface `defaulter` in a component, checks its types, and calls it.

use pilothouse_core::Failure;
use pilothouse_core::plugin::contract;
use pilothouse_core::plugin::contract::DefaulterResult;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::admission::{self, bindings};
use super::{Adapter, Exports, absent};
use crate::outcome::Limit;
use crate::state::CallState;
use bindings::exports::pilothouse::plugin::defaulter::{FieldError, Review};

/// Indices of the interface's functions in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::defaulter::GuestIndices;

/// Returns none if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<CallState>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("defaulter") {
        return Ok(None);
    }
    exports.check::<(&Review,), (Result<String, Vec<FieldError>>,)>("defaulter", "apply-defaults")?;
    Indices::new(instance).map(Some)
}

impl Adapter {
    /// Fills in defaults, on a fresh instance.
    pub(crate) fn apply_defaults(
        &self,
        store: &mut Store<CallState>,
        review: &contract::Review,
    ) -> wasmtime::Result<Result<DefaulterResult, Failure>> {
        let Some(indices) = &self.defaulter else {
            return Ok(Err(absent("defaulter")));
        };
        let instance = self.pre.instance_pre().instantiate(&mut *store)?;
        let defaulter = indices.load(&mut *store, &instance)?;
        let answer = defaulter.call_apply_defaults(&mut *store, &admission::review(review))?;
        let limits = &store.data().limits;
        Ok(match answer {
            Ok(object) if object.len() as u64 > limits.output_bytes => Err(Limit::OutputBytes.failure(limits)),
            Ok(object) => Ok(Ok(object)),
            Err(errors) => admission::refusal(errors).map(Err),
        })
    }
}
