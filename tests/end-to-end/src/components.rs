//! Finds built plugins for the tests, and has the sandbox that all tests share.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use pilothouse_sandbox::{Compiler, PluginComponent, Sandbox, SandboxOptions};

/// The workspace's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder that `cargo xtask plugins` fills.
pub fn folder() -> PathBuf {
    root().join("target").join("plugins")
}

/// The program `pilothouse`, which `cargo xtask test` builds with the profile of the tests.
///
/// # Panics
///
/// Where it has not been built.
pub fn program() -> PathBuf {
    built("pilothouse")
}

/// The program `pilothouse-host`, which is the host alone.
///
/// # Panics
///
/// Where it has not been built.
pub fn host_program() -> PathBuf {
    built("pilothouse-host")
}

fn built(name: &str) -> PathBuf {
    let own = std::env::current_exe().expect("a running program has a path");
    let name = format!("{name}{}", std::env::consts::EXE_SUFFIX);
    // Tests and examples lie one folder below the programs of the same profile.
    let found = own
        .ancestors()
        .skip(1)
        .take(2)
        .map(|folder| folder.join(&name))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "there is no {name} beside {}; `cargo build --workspace --bins` builds it",
            own.display()
        )
    })
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
pub fn load(name: &str) -> Result<PluginComponent, String> {
    let path = folder().join(format!("{name}.wasm"));
    sandbox()
        .load(&path)
        .map_err(|error| format!("{error}; `cargo xtask plugins` builds the plugins"))
}
