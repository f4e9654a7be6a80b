//! A simulated Kubernetes API server: one process, deterministic, without sockets where none are wanted.
//!
//! What it knows of the built-in kinds comes from a real server (`examples/generate-schemas.rs`), and how it behaves is
//! compared with one (`tests/differential.rs`): where they differ, this one is wrong.

#![forbid(unsafe_code)]

pub mod addresses;
mod admission;
mod allocate;
mod apply;
pub mod change;
mod clock;
mod controllers;
mod custom;
mod decode;
mod defaults;
mod discovery;
mod events;
mod exchange;
mod expression;
mod failure;
mod faults;
mod field_error;
mod fields;
pub mod inner;
mod journal;
mod kinds;
pub mod kubelet;
mod log;
mod objects;
mod openapi;
mod options;
mod patch;
mod protobuf;
mod quantity;
mod random;
mod request;
mod resource;
mod rights;
mod routing;
mod schema;
mod selector;
mod serve;
mod server;
mod state;
mod store;
mod stored;
mod stream;
mod table;
mod tokens;
mod validate;
mod watch;
mod watching;
mod webhooks;

pub use crate::inner::TransportError;
pub use clock::{Clock, rfc3339};
pub use faults::{Asked, Fault, Faults, Rewrite, Rule, RuleId};
pub use journal::{Author, Entry};
pub use log::{Mark, Record, RequestLog};
pub use options::{Controllers, Options, Workloads};
pub use rights::Rights;
pub use schema::built_in_definitions;
pub use serve::Serving;
pub use server::{ApiService, Simulator};
pub use stored::{CustomSchema, Objections};
pub use stream::ResponseBody;
