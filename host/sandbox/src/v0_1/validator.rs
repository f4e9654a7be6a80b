//! Finds the optional interface `validator` in a component, checks its types, and calls it.

use pilothouse_core::Failure;
use pilothouse_core::plugin::contract;
use pilothouse_core::plugin::contract::ValidatorResult;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::admission::{self, bindings};
use super::{Adapter, Exports, absent};
use crate::state::CallState;
use bindings::exports::pilothouse::plugin::validator::{FieldError, Review};

/// Indices of the interface's functions in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::validator::GuestIndices;

/// Returns none if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<CallState>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("validator") {
        return Ok(None);
    }
    exports.check::<(&Review,), (Result<Vec<String>, Vec<FieldError>>,)>("validator", "validate")?;
    Indices::new(instance).map(Some)
}

impl Adapter {
    /// Validates an object, on a fresh instance.
    pub(crate) fn validate(
        &self,
        store: &mut Store<CallState>,
        review: &contract::Review,
    ) -> wasmtime::Result<Result<ValidatorResult, Failure>> {
        let Some(indices) = &self.validator else {
            return Ok(Err(absent("validator")));
        };
        let instance = self.pre.instance_pre().instantiate(&mut *store)?;
        let validator = indices.load(&mut *store, &instance)?;
        let answer = validator.call_validate(&mut *store, &admission::review(review))?;
        Ok(match answer {
            Ok(warnings) => Ok(Ok(admission::warnings(warnings))),
            Err(errors) => admission::refusal(errors).map(Err),
        })
    }
}
