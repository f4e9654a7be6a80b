//! Owns the programs of others that tests run: building them from pinned Go modules into a cache, and processes that end
//! with their owner. Leaves which programs these are, and what tests do with them, to `pilothouse-testkit`,
//! `pilothouse-external` and the chores.
#![forbid(unsafe_code)]

pub mod environment;
pub mod go;
pub mod supervisor;
