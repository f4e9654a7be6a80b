//! Finds the optional interface `converter` in a component, checks its types, and calls it.

use pilothouse_core::Failure;
use pilothouse_core::plugin::contract::ConverterResult;
use wasmtime::Store;
use wasmtime::component::InstancePre;

use super::{Adapter, Exports, absent};
use crate::outcome::{Limit, MAX_GUEST_WORDS, shorten};
use crate::state::CallState;

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
        path: "wit",
        ownership: Borrowing { duplicate_if_necessary: true },
        with: { "pilothouse:plugin/types@0.1.0": crate::v0_1::bindings::pilothouse::plugin::types },
    });
}

/// Indices of the interface's functions in a component.
pub(super) type Indices = bindings::exports::pilothouse::plugin::converter::GuestIndices;

/// Returns none if the component does not export the interface, an error if it does with other types.
pub(super) fn find(exports: &Exports, instance: &InstancePre<CallState>) -> wasmtime::Result<Option<Indices>> {
    if !exports.has("converter") {
        return Ok(None);
    }
    exports.check::<(&str, &str), (Result<String, String>,)>("converter", "convert")?;
    Indices::new(instance).map(Some)
}

impl Adapter {
    /// Converts one object to another version, on a fresh instance.
    pub(crate) fn convert(
        &self,
        store: &mut Store<CallState>,
        object: &str,
        api_version: &str,
    ) -> wasmtime::Result<Result<ConverterResult, Failure>> {
        let Some(indices) = &self.converter else {
            return Ok(Err(absent("converter")));
        };
        let instance = self.pre.instance_pre().instantiate(&mut *store)?;
        let converter = indices.load(&mut *store, &instance)?;
        let answer = converter.call_convert(&mut *store, object, api_version)?;
        let limits = &store.data().limits;
        Ok(match answer {
            Ok(object) if object.len() as u64 > limits.output_bytes => Err(Limit::OutputBytes.failure(limits)),
            Ok(object) => Ok(Ok(object)),
            Err(words) => Ok(Err(shorten(&words, MAX_GUEST_WORDS))),
        })
    }
}
