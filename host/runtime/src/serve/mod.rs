//! Answers HTTP requests to the host: monitoring, readiness and the JSON API.

pub mod api;
pub mod endpoints;
pub mod readiness;
