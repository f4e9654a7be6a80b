//! Decisions without I/O: what a reconcile means, held apart from how it is carried out.
//!
//! Nothing here reads a clock, a file or a socket, and nothing knows wasmtime, kube or tokio.
#![forbid(unsafe_code)]

pub mod admission;
pub mod answer;
pub mod backoff;
pub mod canonical;
pub mod collision;
pub mod consent;
pub mod contest;
pub mod contract;
pub mod contribution;
pub mod crash;
pub mod crd_change;
pub mod crd_difference;
pub mod dependencies;
pub mod depth;
pub mod description;
pub mod diff;
pub mod emptied;
pub mod exclusive_kinds;
pub mod failure;
pub mod fields;
pub mod grants;
pub mod host_conditions;
pub mod inventory;
pub mod key;
pub mod lease;
pub mod limits;
pub mod manifest;
pub mod ownership;
pub mod parsed_size;
pub mod path;
pub mod preview;
pub mod printable;
pub mod query;
pub mod reach;
pub mod reason;
pub mod recording;
pub mod recreate;
pub mod rights;
#[cfg(test)]
mod schema;
pub mod selector;
pub mod served;
pub mod shards;
pub mod status;
pub mod takeover;
pub mod token;
pub mod types;
pub mod values;
pub mod wasi;

pub use failure::{Blame, Failure, Retry};
pub use key::{Key, Kind, Name, Tenant};
pub use limits::Limits;
pub use pilothouse_description::schema_pruning;
