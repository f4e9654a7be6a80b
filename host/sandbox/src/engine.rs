//! Wasmtime's settings: those that affect the compiled code, and those of the process that runs guests.

use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

/// Version of wasmtime whose compiled code is cached. A patch release may fix its compiler, so the patch number counts
/// too; a test compares the version with Cargo.lock.
pub(crate) const WASMTIME_VERSION: &str = "48.0.8";

/// Raised with every change to [`shared`], so that code compiled with other settings is compiled again.
pub(crate) const SETTINGS_VERSION: u32 = 1;

/// The largest linear memory that any limit can allow; the pool's slots have this size.
pub(crate) const MAX_MEMORY_BYTES: u64 = 64 * 1024 * 1024;

/// The most table elements that any limit can allow.
const MAX_TABLE_ELEMENTS: usize = 100_000;

/// Bytes of a slot that stay resident after a call: they are zeroed by hand rather than unmapped and faulted in again.
const KEEP_RESIDENT_BYTES: usize = 1024 * 1024;

/// Tables and memories of one component: the guest's own and those of the adapters that wit-component adds.
const MAX_TABLES_PER_COMPONENT: u32 = 8;
const MAX_MEMORIES_PER_COMPONENT: u32 = 4;

/// Core instances of one component, adapters included. Python's have about twenty.
const MAX_CORE_INSTANCES_PER_COMPONENT: u32 = 64;

/// Returns the settings that affect the compiled code: equal where a component is compiled and where it runs.
fn shared() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .memory_init_cow(true)
        .generate_address_map(false)
        .native_unwind_info(false)
        .wasm_backtrace_max_frames(None)
        .wasm_component_model(true)
        // The same inputs give the same answer on every machine.
        .relaxed_simd_deterministic(true);
    config
}

/// Makes an engine that only compiles.
#[cfg(feature = "compiler")]
pub(crate) fn compiling() -> wasmtime::Result<Engine> {
    let mut config = shared();
    config.enable_compiler(true).cranelift_nan_canonicalization(true);
    Engine::new(&config)
}

/// Makes an engine that only runs compiled code, in a pool of `slots` instances.
///
/// The native stack of a call is a property of the engine, so there is one engine for each size in use.
pub(crate) fn running(slots: u32, stack_bytes: usize) -> wasmtime::Result<Engine> {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(MAX_CORE_INSTANCES_PER_COMPONENT))
        .total_memories(slots)
        .total_tables(slots.saturating_mul(2))
        .max_core_instances_per_component(MAX_CORE_INSTANCES_PER_COMPONENT)
        .max_memories_per_component(MAX_MEMORIES_PER_COMPONENT)
        .max_tables_per_component(MAX_TABLES_PER_COMPONENT)
        .max_tables_per_module(MAX_TABLES_PER_COMPONENT)
        .max_memory_size(usize::try_from(MAX_MEMORY_BYTES).expect("64 MiB fit in a usize"))
        .table_elements(MAX_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_RESIDENT_BYTES)
        .max_unused_warm_slots(slots)
        .pagemap_scan(Enabled::Auto);
    let mut config = shared();
    #[cfg(feature = "compiler")]
    config.enable_compiler(false);
    config
        .max_wasm_stack(stack_bytes)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config)
}
