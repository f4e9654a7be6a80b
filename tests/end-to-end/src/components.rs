//! Owns where the tests find built plugins, and the sandbox that all of them share.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pilothouse_sandbox::{Compiler, Plugin, Sandbox, SandboxOptions};

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder that `cargo xtask plugins` fills.
pub fn folder() -> PathBuf {
    root().join("target").join("plugins")
}

/// One sandbox for all tests of a process; it compiles in this process and keeps the code below `target`.
pub fn sandbox() -> &'static Sandbox {
    static SANDBOX: OnceLock<Sandbox> = OnceLock::new();
    SANDBOX.get_or_init(|| {
        let cache = root().join("target").join("test-code");
        Sandbox::new(SandboxOptions::new(cache, Compiler::InProcess)).expect("the folder below target is ours")
    })
}

/// Loads a built plugin by its name.
pub fn load(name: &str) -> Result<Plugin, String> {
    let path = folder().join(format!("{name}.wasm"));
    sandbox()
        .load(&path)
        .map_err(|error| format!("{error}; `cargo xtask plugins` builds the plugins"))
}
