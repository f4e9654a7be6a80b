//! Reads the live status of a primary and the schema that it has to fit.

pub mod live;
pub mod schema;
