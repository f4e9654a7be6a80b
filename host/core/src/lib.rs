//! Decisions of the host, without I/O: the meaning of a reconcile, apart from its execution.
//!
//! Nothing here reads a clock, a file or a socket, and nothing knows wasmtime, kube or tokio.
#![forbid(unsafe_code)]

pub mod admission;
pub mod answer;
pub mod collision;
pub mod contribution;
pub mod diff;
pub mod kubernetes;
pub mod ownership;
pub mod plugin;
pub mod reads;
pub mod recording;
pub mod replicas;
pub mod rights;
pub mod status;
pub mod text;

pub use kubernetes::key::{Key, Kind, Name, Tenant};
pub use pilothouse_description::schema_pruning;
pub use plugin::limits::Limits;
pub use status::failure::{Blame, Failure, Retry};
