//! How an API server asks the host: [`server`] answers over TLS, on threads of its own, and [`certificates`] makes and renews
//! what it shows. Knows neither Kubernetes nor plugins: what is asked, and where certificates are kept, is the callers'.
//!
//! Anybody who reaches the port may be a client, so everything that one can take is bounded: [`connections`] has the
//! slots, `budget` the bytes, `request` the time of a request.
#![forbid(unsafe_code)]

mod budget;
pub mod certificates;
pub mod clients;
pub mod connections;
pub mod log_throttle;
mod request;
pub mod server;

pub use rustls::ServerConfig;
