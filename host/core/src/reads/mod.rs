//! Decides which reads of a plugin a change concerns, and which watches they need.

pub mod dependencies;
pub mod query;
pub mod reach;
