//! Calls `reconciler.reconcile`.

use pilothouse_core::Failure;
use pilothouse_core::plugin::contract::{Outcome, Request};
use wasmtime::Store;

use super::bindings::pilothouse::plugin::types as guest;
use super::{Adapter, Exports, convert};
use crate::state::CallState;

/// Checks that the component's function has the type that is called below.
pub(super) fn check(exports: &Exports) -> wasmtime::Result<()> {
    exports.check::<(guest::Request<'_>,), (Result<guest::Outcome, guest::Failure>,)>("reconciler", "reconcile")
}

impl Adapter {
    /// Runs one reconcile on a fresh instance.
    pub(crate) fn reconcile(
        &self,
        store: &mut Store<CallState>,
        request: &Request,
    ) -> wasmtime::Result<Result<Outcome, Failure>> {
        let plugin = self.pre.instantiate(&mut *store)?;
        let request = convert::request(request);
        let answer = plugin
            .pilothouse_plugin_reconciler()
            .call_reconcile(&mut *store, request)?;
        Ok(match answer {
            Ok(outcome) => convert::outcome(outcome, &store.data().limits),
            Err(failure) => Err(convert::failure(failure)),
        })
    }
}
