//! Owns the sandbox: engines, linkers and the cache, and how a component becomes a [`Plugin`].

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pilothouse_core::Limits;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use crate::cache::{self, Cache, CacheError, Code};
use crate::compile::{CompileError, Compiler};
use crate::inspect::{Inspected, Problem, inspect};
use crate::plugin::Plugin;
use crate::state::State;
use crate::stop::shorten;
use crate::ticker::Ticker;
use crate::{engine, v0_1};

/// The size of a component unless the options say otherwise; Python's have 18 MiB.
const DEFAULT_MAX_COMPONENT_BYTES: u64 = 64 * 1024 * 1024;

/// Slots per core: as many plugins keep a warm instance there.
const SLOTS_PER_CORE: usize = 64;

/// From this many slots on, wasmtime shards its pool by cores.
const LEAST_SLOTS: usize = 128;

/// Stack sizes are rounded down to a multiple of this, so that there are few engines.
const STACK_STEP: usize = 64 * 1024;

/// How a sandbox is set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SandboxOptions {
    /// Where compiled plugins are kept. Only this user may be able to write there.
    pub cache_directory: PathBuf,
    /// Who compiles.
    pub compiler: Compiler,
    /// Calls that can be under way at once.
    pub slots: u32,
    /// The largest component that is loaded, in bytes.
    pub max_component_bytes: u64,
}

impl SandboxOptions {
    /// The defaults for everything else: slots by the number of cores, components of up to 64 MiB.
    pub fn new(cache_directory: impl Into<PathBuf>, compiler: Compiler) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let slots = u32::try_from(LEAST_SLOTS.max(cores.saturating_mul(SLOTS_PER_CORE))).unwrap_or(u32::MAX);
        Self {
            cache_directory: cache_directory.into(),
            compiler,
            slots,
            max_component_bytes: DEFAULT_MAX_COMPONENT_BYTES,
        }
    }
}

/// Why there is no sandbox.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SandboxError {
    /// The cache cannot be used.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// The engine cannot be made.
    #[error("cannot make the engine for plugins: {message}")]
    Engine {
        /// Wasmtime's words.
        message: String,
    },
    /// The thread that keeps the time of calls cannot be started.
    #[error("cannot start the thread that keeps the time of plugins' calls: {0}")]
    Ticker(#[source] io::Error),
}

/// Why a component was not loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file cannot be read.
    #[error("cannot read the component {}: {source}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is larger than any plugin should be.
    #[error("cannot load the component {name}: it has more than {most} bytes, which is the limit for components")]
    TooLarge {
        /// The component.
        name: String,
        /// The limit.
        most: u64,
    },
    /// It is another component than the one that was asked for.
    #[error(
        "cannot load the component {name}: its digest is sha256:{found}, not sha256:{expected}; correct the digest, or fetch that component"
    )]
    Digest {
        /// The component.
        name: String,
        /// The digest that was asked for, in hexadecimal digits.
        expected: String,
        /// The digest that it has.
        found: String,
    },
    /// It is not a plugin that this host runs.
    #[error("cannot load the component {name}: {problem}")]
    Refused {
        /// The component.
        name: String,
        /// What is wrong with it.
        problem: Problem,
    },
    /// It does not compile.
    #[error("cannot load the component {name}: {source}")]
    Compile {
        /// The component.
        name: String,
        /// Why not.
        source: CompileError,
    },
    /// The cache failed.
    #[error("cannot load the component {name}: {source}")]
    Cache {
        /// The component.
        name: String,
        /// Why.
        source: CacheError,
    },
    /// An engine failed.
    #[error("cannot load the component {name}: {source}")]
    Sandbox {
        /// The component.
        name: String,
        /// Why.
        source: SandboxError,
    },
    /// The compiled code cannot be used, although it was compiled just now.
    #[error("cannot load the component {name}: its compiled code cannot be used: {message}")]
    Code {
        /// The component.
        name: String,
        /// Wasmtime's words.
        message: String,
    },
}

/// Where plugins are loaded and run. A clone is the same sandbox.
#[derive(Clone)]
pub struct Sandbox {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) ticker: Ticker,
    cache: Cache,
    compiler: Compiler,
    slots: u32,
    max_component_bytes: u64,
    /// By the size of the native stack.
    runtimes: Mutex<BTreeMap<usize, Arc<Runtime>>>,
}

/// One engine and its imports.
pub(crate) struct Runtime {
    engine: Engine,
    linker: Linker<State>,
}

/// A component's code, mapped, its types checked. Dropping it unmaps the code.
pub(crate) struct Mapped {
    pub(crate) engine: Engine,
    pub(crate) adapter: v0_1::Adapter,
    pub(crate) code: Code,
}

impl Sandbox {
    /// Checks the cache's directory and makes the engine for the default limits.
    pub fn new(options: SandboxOptions) -> Result<Self, SandboxError> {
        let SandboxOptions {
            cache_directory,
            compiler,
            slots,
            max_component_bytes,
        } = options;
        let shared = Shared {
            ticker: Ticker::start().map_err(SandboxError::Ticker)?,
            cache: Cache::open(&cache_directory)?,
            compiler,
            slots,
            max_component_bytes,
            runtimes: Mutex::default(),
        };
        shared.runtime(stack_size(&Limits::default()))?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Loads a component from a file.
    pub fn load(&self, path: &Path) -> Result<Plugin, LoadError> {
        self.load_expecting(path, None)
    }

    /// Loads a component from a file, if it has this digest (SHA-256 in hexadecimal digits).
    pub fn load_expecting(&self, path: &Path, digest: Option<&str>) -> Result<Plugin, LoadError> {
        let read = |source| LoadError::Read {
            path: path.to_owned(),
            source,
        };
        let name = path.display().to_string();
        let most = self.shared.max_component_bytes;
        let too_large = || LoadError::TooLarge {
            name: name.clone(),
            most,
        };
        let mut file = File::open(path).map_err(read)?;
        if file.metadata().map_err(read)?.len() > most {
            return Err(too_large());
        }
        // One byte more than allowed, so that a file that grows meanwhile is noticed.
        let (found, length) = cache::digest_of(file.by_ref().take(most.saturating_add(1))).map_err(read)?;
        if length > most {
            return Err(too_large());
        }
        expect(&name, digest, &found)?;
        // What was compiled before is not read into memory at all.
        if let Some(code) = self.shared.cache.find(&found) {
            return self.plugin(&name, found, length, &code);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(length).unwrap_or(0));
        file.rewind().map_err(read)?;
        file.take(most.saturating_add(1))
            .read_to_end(&mut bytes)
            .map_err(read)?;
        // The file may have been written to since.
        let found = cache::digest(&bytes);
        expect(&name, digest, &found)?;
        self.load_digested(&name, found, &bytes)
    }

    /// Loads a component; `name` (a path, an OCI reference) is what messages call it.
    pub fn load_bytes(&self, name: &str, bytes: &[u8]) -> Result<Plugin, LoadError> {
        self.load_digested(name, cache::digest(bytes), bytes)
    }

    fn load_digested(&self, name: &str, digest: String, bytes: &[u8]) -> Result<Plugin, LoadError> {
        let most = self.shared.max_component_bytes;
        if bytes.len() as u64 > most {
            return Err(LoadError::TooLarge {
                name: name.to_owned(),
                most,
            });
        }
        let code = if let Some(code) = self.shared.cache.find(&digest) {
            code
        } else {
            let Inspected { version } = inspect(bytes).map_err(|problem| LoadError::Refused {
                name: name.to_owned(),
                problem,
            })?;
            let code = self.shared.cache.code(&digest, version, bytes, &self.shared.compiler);
            code.map_err(|error| cache_error(name, error))?
        };
        self.plugin(name, digest, bytes.len() as u64, &code)
    }

    fn plugin(&self, name: &str, digest: String, length: u64, code: &Code) -> Result<Plugin, LoadError> {
        let stack = stack_size(&Limits::default());
        let mapped = self.shared.map_or_compile_again(name, &digest, stack, code)?;
        Ok(Plugin::new(
            Arc::clone(&self.shared),
            name,
            digest,
            length,
            stack,
            mapped,
        ))
    }
}

impl Shared {
    /// The engine with this much native stack.
    fn runtime(&self, stack: usize) -> Result<Arc<Runtime>, SandboxError> {
        let mut runtimes = self.runtimes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = runtimes.get(&stack) {
            return Ok(Arc::clone(runtime));
        }
        let failed = |error: wasmtime::Error| SandboxError::Engine {
            message: format!("{error:#}"),
        };
        let engine = engine::running(self.slots, stack).map_err(failed)?;
        let mut linker = Linker::new(&engine);
        v0_1::link(&mut linker).map_err(failed)?;
        self.ticker.add(&engine);
        let runtime = Arc::new(Runtime { engine, linker });
        runtimes.insert(stack, Arc::clone(&runtime));
        Ok(runtime)
    }

    /// Maps the code of a plugin that was loaded before: the code as it was then if its file is untouched.
    pub(crate) fn map_again(&self, name: &str, digest: &str, stack: usize, code: Code) -> Result<Mapped, LoadError> {
        let code = if code.is_unchanged() {
            code
        } else {
            self.cache
                .code_again(digest, code.version, &self.compiler)
                .map_err(|error| cache_error(name, error))?
        };
        self.map_or_compile_again(name, digest, stack, &code)
    }

    /// Maps code; if it came from the cache and cannot be used (made on another processor, say), it is made anew once.
    fn map_or_compile_again(&self, name: &str, digest: &str, stack: usize, code: &Code) -> Result<Mapped, LoadError> {
        let runtime = self.runtime(stack).map_err(|source| LoadError::Sandbox {
            name: name.to_owned(),
            source,
        })?;
        match runtime.map(name, code.clone()) {
            Err(LoadError::Code { .. }) if !code.fresh => {
                self.cache.forget(digest).map_err(|error| cache_error(name, error))?;
                let code = self
                    .cache
                    .code_again(digest, code.version, &self.compiler)
                    .map_err(|error| cache_error(name, error))?;
                runtime.map(name, code)
            }
            mapped => mapped,
        }
    }
}

impl Runtime {
    fn map(&self, name: &str, code: Code) -> Result<Mapped, LoadError> {
        // SAFETY: the file holds what wasmtime's compiler wrote: its bytes have the digest that was recorded when they
        // were compiled, it lies in a directory that only this user can write to, and files there are replaced by
        // renames, never written in place, so the mapping does not change either.
        #[expect(
            unsafe_code,
            reason = "wasmtime trusts compiled code, and we have checked whose it is"
        )]
        let component =
            unsafe { Component::deserialize_file(&self.engine, &code.path) }.map_err(|error| LoadError::Code {
                name: name.to_owned(),
                message: format!("{error:#}"),
            })?;
        let signature = |error: wasmtime::Error| LoadError::Refused {
            name: name.to_owned(),
            problem: Problem::Signature {
                message: shorten(&format!("{error:#}"), 1024),
            },
        };
        let instance = self.linker.instantiate_pre(&component).map_err(signature)?;
        let adapter = v0_1::Adapter::new(instance).map_err(signature)?;
        Ok(Mapped {
            engine: self.engine.clone(),
            adapter,
            code,
        })
    }
}

/// The native stack of a call, as far as there is an engine for it.
pub(crate) fn stack_size(limits: &Limits) -> usize {
    let bytes = usize::try_from(limits.stack_bytes).unwrap_or(usize::MAX);
    (bytes / STACK_STEP).max(1) * STACK_STEP
}

/// Whether a component is the one that was asked for.
fn expect(name: &str, expected: Option<&str>, found: &str) -> Result<(), LoadError> {
    match expected {
        Some(expected) if expected != found => Err(LoadError::Digest {
            name: name.to_owned(),
            expected: expected.to_owned(),
            found: found.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn cache_error(name: &str, error: CacheError) -> LoadError {
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
