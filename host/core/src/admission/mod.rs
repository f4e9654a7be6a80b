//! Admission and conversion without a server: parses the requests of an API server, decides whether a plugin must be
//! called, and builds the responses. Serving is left to host/webhook, calling plugins to host/runtime.
//!
//! [`review`] and [`conversion`] parse requests and write responses. [`match_condition`] decides whether the plugin is
//! called. [`field_errors`] formats field errors like the API server's own. [`patch`] turns defaults into a JSON patch.
//! [`configuration`] builds the webhook configurations, which [`render`] gives to installers.

pub mod configuration;
pub mod conversion;
pub mod field_errors;
pub mod match_condition;
pub mod patch;
pub mod render;
pub mod review;
