//! HTTP servers and clients of the host: [`server`] answers API servers over TLS, and [`certificates`] makes and renews
//! its certificates; [`peers`] calls the servers of other replicas; [`plain`] answers monitoring without TLS, and
//! [`api`] serves the host's JSON API. Each has threads of its own. Knows neither Kubernetes nor plugins: callers
//! handle the requests, and store the certificates.
//!
//! Anybody who reaches the port may be a client, so all resources of a client are bounded: [`connections`] has the
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
