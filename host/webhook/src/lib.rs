//! How an API server asks the host: [`server`] answers over TLS, on threads of its own, and [`certificates`] makes and renews
//! what it shows. Knows neither Kubernetes nor plugins: what is asked, and where certificates are kept, is the callers'.
#![forbid(unsafe_code)]

pub mod certificates;
pub mod server;

pub use rustls::ServerConfig;
