//! Calls `manifest.describe`.

use wasmtime::Store;

use super::{Adapter, Exports};
use crate::state::CallState;

/// Checks that the component's function has the type that is called below.
pub(super) fn check(exports: &Exports) -> wasmtime::Result<()> {
    exports.check::<(Option<&str>,), (Result<String, String>,)>("manifest", "describe")
}

impl Adapter {
    /// Returns the manifest, or the failure if this configuration cannot be used.
    pub(crate) fn describe(
        &self,
        store: &mut Store<CallState>,
        configuration: Option<&str>,
    ) -> wasmtime::Result<Result<String, String>> {
        let plugin = self.pre.instantiate(&mut *store)?;
        plugin.pilothouse_plugin_manifest().call_describe(store, configuration)
    }
}
