//! A loaded plugin component: its metadata, and the mapping of its machine code.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_metrics::CallMetrics;

use crate::compile::cache::Code;
use crate::inspect::check_wasi;
use crate::load_error::LoadError;
use crate::optional::Optional;
use crate::sandbox::{Mapped, SandboxShared};

/// A component that fits the contract. A clone is the same plugin; calls can run on several threads at once.
#[derive(Clone)]
pub struct PluginComponent {
    pub(crate) inner: Arc<PluginComponentInner>,
    /// Metrics of its calls.
    pub(crate) calls: Option<CallMetrics>,
}

pub(crate) struct PluginComponentInner {
    pub(crate) shared: Arc<SandboxShared>,
    name: String,
    digest: String,
    version: &'static str,
    component_bytes: u64,
    optional: Optional,
    wasi_imports: Vec<String>,
    mapped: RwLock<Mapping>,
    /// Held by the call that maps the code again.
    waking: Mutex<()>,
    loaded: Instant,
    /// Start of the last call, in milliseconds after `loaded`.
    used: AtomicU64,
}

/// State of the mapping of the code.
struct Mapping {
    /// Mapped code by the size of the native stack: usually one. Empty while asleep.
    mapped: Vec<(usize, Arc<Mapped>)>,
    /// The code that is mapped.
    code: Code,
}

impl std::fmt::Debug for PluginComponent {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let PluginComponentInner {
            name, digest, version, ..
        } = &*self.inner;
        formatter
            .debug_struct("Plugin")
            .field("name", name)
            .field("digest", digest)
            .field("version", version)
            .finish_non_exhaustive()
    }
}

impl PluginComponent {
    pub(crate) fn new(
        shared: Arc<SandboxShared>,
        name: &str,
        digest: String,
        component_bytes: u64,
        stack: usize,
        mapped: Mapped,
    ) -> Self {
        let inner = PluginComponentInner {
            shared,
            name: name.to_owned(),
            digest,
            version: mapped.code.version,
            component_bytes,
            optional: mapped.adapter.optional(),
            wasi_imports: mapped.wasi_imports.clone(),
            mapped: RwLock::new(Mapping {
                code: mapped.code.clone(),
                mapped: vec![(stack, Arc::new(mapped))],
            }),
            waking: Mutex::default(),
            loaded: Instant::now(),
            used: AtomicU64::new(0),
        };
        Self {
            inner: Arc::new(inner),
            calls: None,
        }
    }

    /// Returns a component without code, for tests of what surrounds it: it has a name, and every call of it fails.
    #[cfg(feature = "testing")]
    pub fn without_code(name: &str) -> Self {
        let inner = PluginComponentInner {
            shared: SandboxShared::without_cache(),
            name: name.to_owned(),
            // Another name counts as another version.
            digest: name.to_owned(),
            version: "",
            component_bytes: 0,
            optional: Optional::default(),
            wasi_imports: Vec::new(),
            mapped: RwLock::new(Mapping {
                code: Code::nowhere(),
                mapped: Vec::new(),
            }),
            waking: Mutex::default(),
            loaded: Instant::now(),
            used: AtomicU64::new(0),
        };
        Self {
            inner: Arc::new(inner),
            calls: None,
        }
    }

    /// Returns the same component, with its calls counted in `calls`.
    #[must_use]
    pub fn counted_by(self, calls: &CallMetrics) -> Self {
        Self {
            calls: Some(calls.clone()),
            ..self
        }
    }

    /// Returns its source: a path or a reference.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Returns the SHA-256 of the component, in hexadecimal digits.
    pub fn digest(&self) -> &str {
        &self.inner.digest
    }

    /// Returns the version of the contract that it speaks, one of
    /// [`VERSIONS`](pilothouse_core::plugin::contract::VERSIONS).
    pub fn contract_version(&self) -> &'static str {
        self.inner.version
    }

    /// Returns the optional interfaces that it exports.
    pub fn optional(&self) -> Optional {
        self.inner.optional
    }

    /// Returns its imports of WASI, in the component's order; none of them gives access to anything.
    pub fn wasi_imports(&self) -> &[String] {
        &self.inner.wasi_imports
    }

    /// Checks that its imports of WASI are granted: a plugin that was loaded with another grant may not keep it.
    pub fn check_wasi(&self, granted: Wasi) -> Result<(), LoadError> {
        check_wasi(&self.inner.wasi_imports, granted).map_err(|problem| LoadError::Refused {
            name: self.inner.name.clone(),
            problem,
        })
    }

    /// Returns the size of the component in bytes.
    pub fn component_bytes(&self) -> u64 {
        self.inner.component_bytes
    }

    /// Returns the size of its compiled code in bytes.
    pub fn code_bytes(&self) -> u64 {
        self.inner
            .mapped
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .code
            .bytes
    }

    /// Returns the reason why its code is in memory alone; none if it is in the cache directory.
    pub fn kept_in_memory_because(&self) -> Option<Arc<str>> {
        let mapping = self.inner.mapped.read().unwrap_or_else(PoisonError::into_inner);
        mapping.code.kept_in_memory_because()
    }

    /// Returns the time since the last call began, or since the plugin was loaded.
    pub fn idle(&self) -> Duration {
        self.inner
            .loaded
            .elapsed()
            .saturating_sub(Duration::from_millis(self.inner.used.load(Ordering::Relaxed)))
    }

    /// Reports whether its code is mapped.
    pub fn is_awake(&self) -> bool {
        !self
            .inner
            .mapped
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .mapped
            .is_empty()
    }

    /// Unmaps its code, once the calls that are under way have ended. The next call maps it again, in well under 5 ms.
    pub fn sleep(&self) {
        let mapped = std::mem::take(&mut self.inner.mapped.write().unwrap_or_else(PoisonError::into_inner).mapped);
        // Unmapped outside the lock, because it takes time: a call that wakes the plugin need not wait for it.
        drop(mapped);
    }

    /// Returns the code for a call with this much native stack, and the time it took to map it if it was asleep.
    pub(crate) fn wake(&self, stack: usize) -> Result<(Arc<Mapped>, Option<Duration>), LoadError> {
        let inner = &*self.inner;
        let now = u64::try_from(inner.loaded.elapsed().as_millis()).unwrap_or(u64::MAX);
        inner.used.store(now, Ordering::Relaxed);
        if let Some(mapped) = inner.mapped.read().unwrap_or_else(PoisonError::into_inner).find(stack) {
            return Ok((mapped, None));
        }
        let start = Instant::now();
        // Only one of several calls maps the code, perhaps after minutes of compiling; the mapping stays unlocked.
        let _waking = inner.waking.lock().unwrap_or_else(PoisonError::into_inner);
        let code = {
            let state = inner.mapped.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(mapped) = state.find(stack) {
                return Ok((mapped, Some(start.elapsed())));
            }
            state.code.clone()
        };
        let mapped = inner.shared.map_again(&inner.name, &inner.digest, stack, code)?;
        let mut state = inner.mapped.write().unwrap_or_else(PoisonError::into_inner);
        state.code = mapped.code.clone();
        let mapped = Arc::new(mapped);
        state.mapped.push((stack, Arc::clone(&mapped)));
        Ok((mapped, Some(start.elapsed())))
    }
}

impl Mapping {
    fn find(&self, stack: usize) -> Option<Arc<Mapped>> {
        self.mapped
            .iter()
            .find(|(size, _)| *size == stack)
            .map(|(_, mapped)| Arc::clone(mapped))
    }
}
