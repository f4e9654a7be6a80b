//! The sandbox: engines, linkers and the cache, and the mapping of compiled code. `load` reads and checks components.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pilothouse_core::Limits;
use pilothouse_core::plugin::wasi::Wasi;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use crate::compile::Compiler;
use crate::compile::cache::{Code, CodeCache};
use crate::epoch_ticker::EpochTicker;
use crate::inspect::{ComponentError, check_wasi};
use crate::load_error::{LoadError, SandboxError, cache_error};
use crate::outcome::shorten;
use crate::plugin::PluginComponent;
use crate::state::CallState;
use crate::{engine, v0_1, wasi};

/// Default limit of a component's size; Python's have 18 MiB.
const DEFAULT_MAX_COMPONENT_BYTES: u64 = 64 * 1024 * 1024;

/// Slots per core: as many plugins keep a warm instance there.
const SLOTS_PER_CORE: usize = 64;

/// Number of slots from which on wasmtime shards its pool by cores.
const LEAST_SLOTS: usize = 128;

/// Stack sizes are rounded down to a multiple of this, so that there are few engines.
const STACK_STEP: usize = 64 * 1024;

/// Options of a sandbox.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SandboxOptions {
    /// Directory of compiled plugins. Only this user may be able to write there.
    pub cache_directory: PathBuf,
    /// The compiler.
    pub compiler: Compiler,
    /// Number of concurrent calls.
    pub slots: u32,
    /// Size of the largest component that is loaded, in bytes.
    pub max_component_bytes: u64,
}

impl SandboxOptions {
    /// Returns the defaults for everything else: slots by the number of cores, components of up to 64 MiB.
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

/// Loads and runs plugins. A clone is the same sandbox.
#[derive(Clone)]
pub struct Sandbox {
    pub(crate) shared: Arc<SandboxShared>,
    /// WASI grant of the plugins that are loaded through it.
    pub(crate) wasi: Wasi,
}

pub(crate) struct SandboxShared {
    pub(crate) ticker: EpochTicker,
    pub(crate) cache: CodeCache,
    pub(crate) compiler: Compiler,
    slots: u32,
    pub(crate) max_component_bytes: u64,
    /// Runtimes by the size of the native stack.
    runtimes: Mutex<BTreeMap<usize, Arc<Runtime>>>,
}

/// One engine and its imports.
pub(crate) struct Runtime {
    engine: Engine,
    linker: Linker<CallState>,
}

/// A component's code, mapped, its types checked. Dropping it unmaps the code.
pub(crate) struct Mapped {
    pub(crate) engine: Engine,
    pub(crate) adapter: v0_1::Adapter,
    /// The component's imports of WASI.
    pub(crate) wasi_imports: Vec<String>,
    pub(crate) code: Code,
}

#[cfg(feature = "testing")]
impl SandboxShared {
    /// Returns the one that all components without code share.
    pub(crate) fn without_cache() -> Arc<Self> {
        static SHARED: std::sync::OnceLock<Arc<SandboxShared>> = std::sync::OnceLock::new();
        let shared = || Self {
            ticker: EpochTicker::start().expect("a test can start a thread"),
            cache: CodeCache::nowhere(),
            compiler: Compiler::Child {
                program: PathBuf::new(),
            },
            slots: 0,
            max_component_bytes: 0,
            runtimes: Mutex::default(),
        };
        SHARED.get_or_init(|| Arc::new(shared())).clone()
    }
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
        let shared = SandboxShared {
            ticker: EpochTicker::start().map_err(SandboxError::Ticker)?,
            cache: CodeCache::open(&cache_directory)?,
            compiler,
            slots,
            max_component_bytes,
            runtimes: Mutex::default(),
        };
        shared.runtime(stack_size(&Limits::default()))?;
        Ok(Self {
            shared: Arc::new(shared),
            wasi: Wasi::None,
        })
    }

    /// Returns the same sandbox with this grant of WASI. By default nothing is granted.
    #[must_use]
    pub fn granting(&self, wasi: Wasi) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            wasi,
        }
    }

    pub(crate) fn plugin(
        &self,
        name: &str,
        digest: String,
        length: u64,
        code: &Code,
    ) -> Result<PluginComponent, LoadError> {
        let stack = stack_size(&Limits::default());
        let mapped = self.shared.map_or_compile_again(name, &digest, stack, code)?;
        // The code may have been compiled for a plugin with another grant.
        check_wasi(&mapped.wasi_imports, self.wasi).map_err(|problem| LoadError::Refused {
            name: name.to_owned(),
            problem,
        })?;
        Ok(PluginComponent::new(
            Arc::clone(&self.shared),
            name,
            digest,
            length,
            stack,
            mapped,
        ))
    }
}

impl SandboxShared {
    /// Returns the engine with this much native stack.
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

    /// Maps the code of a plugin that was loaded before: the same code if its file is untouched.
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
                self.cache.forget(digest);
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
        // SAFETY: the file holds what wasmtime's compiler wrote. One on disk has bytes of the digest that was recorded
        // when they were compiled, it lies in a directory that only this user can write to, and files there are replaced
        // by renames, never written in place, so the mapping does not change either. One in memory is sealed.
        #[expect(
            unsafe_code,
            reason = "wasmtime trusts compiled code, and we have checked whose it is"
        )]
        let component =
            unsafe { Component::deserialize_file(&self.engine, code.path()) }.map_err(|error| LoadError::Code {
                name: name.to_owned(),
                message: format!("{error:#}"),
            })?;
        let signature = |error: wasmtime::Error| LoadError::Refused {
            name: name.to_owned(),
            problem: ComponentError::Signature {
                message: shorten(&format!("{error:#}"), 1024),
            },
        };
        let wasi_imports = wasi::imports(&self.engine, &component);
        let instance = if wasi_imports.is_empty() {
            self.linker.instantiate_pre(&component)
        } else {
            let mut linker = self.linker.clone();
            wasi::link(&mut linker, &self.engine, &component).and_then(|()| linker.instantiate_pre(&component))
        };
        let adapter = v0_1::Adapter::new(instance.map_err(signature)?).map_err(signature)?;
        Ok(Mapped {
            engine: self.engine.clone(),
            adapter,
            wasi_imports,
            code,
        })
    }
}

/// Returns the native stack of a call, as far as there is an engine for it.
pub(crate) fn stack_size(limits: &Limits) -> usize {
    let bytes = usize::try_from(limits.stack_bytes).unwrap_or(usize::MAX);
    (bytes / STACK_STEP).max(1) * STACK_STEP
}
