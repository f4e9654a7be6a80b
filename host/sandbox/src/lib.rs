//! Runs plugin components: loads them, enforces call limits, answers imports from memory. The only crate with wasmtime.
//!
//! The meaning of an answer, and a plugin's rights to read and write, are left to host/core and host/runtime.
#![deny(unsafe_op_in_unsafe_fn)]

mod allocator;
mod call;
mod compile;
mod engine;
mod epoch_ticker;
mod inspect;
mod load;
pub mod load_error;
pub mod optional;
pub mod outcome;
mod plugin;
mod resident;
mod sandbox;
mod state;
mod stop;
mod v0_1;
mod wasi;

pub use allocator::{return_free_memory, return_large_allocations};
pub use compile::cache::CacheError;
#[cfg(feature = "compiler")]
pub use compile::compile_file;
pub use compile::{CompileError, Compiler};
pub use inspect::{ComponentError, ComponentInterfaces};
pub use load::UncompiledComponent;
pub use load_error::LoadError;
pub use load_error::SandboxError;
pub use optional::Optional;
pub use plugin::PluginComponent;
pub use resident::give_back_code;
pub use sandbox::{Sandbox, SandboxOptions};
pub use state::{CallResult, LogSink, Usage};
