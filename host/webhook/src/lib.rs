//! How others ask the host: [`server`] answers API servers over TLS, and [`certificates`] makes and renews what it shows;
//! [`peers`] asks the servers of other replicas;
//! [`plain`] answers monitoring without TLS, and [`api`] people who ask about the host. Each has threads of its own. Knows neither Kubernetes nor plugins: what is asked,
//! and where certificates are kept, is the callers'.
//!
//! Anybody who reaches the port may be a client, so everything that one can take is bounded: [`connections`] has the
//! slots, [`budget`] the bytes and the memory for parsing them, `request` the time of a request.
#![forbid(unsafe_code)]

pub mod api;
pub mod budget;
pub mod certificates;
pub mod clients;
pub mod connections;
pub mod handler;
pub mod log_throttle;
pub mod peers;
pub mod plain;
mod request;
pub mod server;
mod serving;

pub use rustls::ServerConfig;
