//! Options that several commands share, and their evaluation.

pub(crate) mod api;
pub(crate) mod election;
pub(crate) mod identity;
pub mod log_fields;
pub(crate) mod metrics;
pub(crate) mod settings;
pub(crate) mod traces;
pub mod webhooks;
