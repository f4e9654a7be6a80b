//! Errors of loading a component.

use std::io;
use std::path::PathBuf;

use crate::compile::CompileError;
use crate::compile::cache::CacheError;
use crate::inspect::ComponentError;

/// Reasons why a component was not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the component {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The component is larger than any plugin should be.
    #[error("cannot load the component {name}: it has more than {most} bytes, which is the limit for components")]
    TooLarge {
        /// The component.
        name: String,
        /// The limit in bytes.
        most: u64,
    },
    /// The component is not the requested one.
    #[error(
        "cannot load the component {name}: its digest is sha256:{found}, not sha256:{expected}; correct the digest, or fetch that component"
    )]
    Digest {
        /// The component.
        name: String,
        /// The requested digest, in hexadecimal digits.
        expected: String,
        /// The digest that was found.
        found: String,
    },
    /// The component is not a plugin that this host runs.
    #[error("cannot load the component {name}: {problem}")]
    Refused {
        /// The component.
        name: String,
        /// The problem.
        problem: ComponentError,
    },
    /// The component does not compile.
    #[error("cannot load the component {name}: {source}")]
    Compile {
        /// The component.
        name: String,
        /// The cause.
        source: CompileError,
    },
    /// The cache failed.
    #[error("cannot load the component {name}: {source}")]
    Cache {
        /// The component.
        name: String,
        /// The cause.
        source: CacheError,
    },
    /// An engine failed.
    #[error("cannot load the component {name}: {source}")]
    Sandbox {
        /// The component.
        name: String,
        /// The cause.
        source: SandboxError,
    },
    /// The compiled code cannot be used, although it was compiled just now.
    #[error("cannot load the component {name}: its compiled code cannot be used: {message}")]
    Code {
        /// The component.
        name: String,
        /// Wasmtime's message.
        message: String,
    },
}

pub(crate) fn cache_error(name: &str, error: CacheError) -> LoadError {
    match error {
        CacheError::Compile(source) => LoadError::Compile {
            name: name.to_owned(),
            source,
        },
        source => LoadError::Cache {
            name: name.to_owned(),
            source,
        },
    }
}

/// Reasons why a sandbox could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The engine cannot be made.
    #[error("cannot make the engine for plugins: {message}")]
    Engine {
        /// Wasmtime's message.
        message: String,
    },
    /// The thread that advances the epochs cannot be started.
    #[error("cannot start the thread that keeps the time of plugins' calls: {0}")]
    Ticker(#[source] io::Error),
}
