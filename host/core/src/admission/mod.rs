//! Owns what admission and conversion mean, without a server: what an API server asks, whether the plugin has to be asked
//! too, and what it is answered. Serving is left to host/webhook, calling plugins to host/runtime.
//!
//! [`review`] and [`conversion`] read the API server's questions and write its answers, [`match_condition`] says who is
//! asked, [`field_errors`] makes field errors read as the API server's own, [`patch`] turns defaults into a JSON patch,
//! and [`configuration`] makes what has the API server ask at all, which [`render`] gives to installers.

pub mod configuration;
pub mod conversion;
pub mod field_errors;
pub mod match_condition;
pub mod patch;
pub mod render;
pub mod review;
