//! Decides which reads of a plugin a change concerns, and what has to be watched for them.

pub mod dependencies;
pub mod query;
pub mod reach;
