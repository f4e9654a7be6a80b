//! Target `component`: the bytes of a plugin file, up to its first call.

use std::fs;
use std::sync::LazyLock;

use pilothouse_core::Limits;
use pilothouse_sandbox::{Compiler, Sandbox, SandboxOptions};
use tempfile::TempDir;

use crate::refused;

/// Name of the component.
const NAME: &str = "fuzzed.wasm";

static SANDBOX: LazyLock<(Sandbox, TempDir)> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let mut options = SandboxOptions::new(directory.path(), Compiler::InProcess);
    options.max_component_bytes = 32 * 1024;
    (Sandbox::new(options).expect("a sandbox can be made"), directory)
});

pub(super) fn run(data: &[u8]) {
    let (sandbox, directory) = &*SANDBOX;
    match sandbox.load_bytes(NAME, data) {
        Ok(plugin) => {
            assert_eq!(plugin.name(), NAME);
            if let Err(failure) = plugin.describe(None, &Limits::default()) {
                refused(&failure, "");
            }
        }
        Err(error) => refused(&error, NAME),
    }
    // What was compiled is not kept, however many there are.
    for entry in fs::read_dir(directory.path()).into_iter().flatten().flatten() {
        let _ = fs::remove_file(entry.path());
    }
}
