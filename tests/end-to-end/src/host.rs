//! Components of the hosts of these tests. The host itself is in `pilothouse_testhost`.

use std::path::PathBuf;

use pilothouse_sandbox::{PluginComponent, Sandbox};
pub use pilothouse_testhost::webhooks;

use crate::components;

/// A host in the test's process, on the test's runtime, which has to be of one thread.
pub type RuntimeHost = pilothouse_testhost::RuntimeHost<BuiltComponents>;

/// The plugins in `target/plugins`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltComponents;

impl pilothouse_testhost::Components for BuiltComponents {
    fn sandbox(&self) -> Sandbox {
        components::sandbox().clone()
    }

    fn directory(&self) -> PathBuf {
        components::folder()
    }

    fn load(&self, name: &str) -> Result<PluginComponent, String> {
        components::load(name)
    }
}
