//! Describes a plugin: its manifest and grants, its limits, its contract, and what its versions leave behind.

mod configuration;
pub mod contract;
pub mod crash;
pub mod description;
pub mod exclusive_kinds;
pub mod grants;
pub mod inventory;
pub mod limits;
pub mod manifest;
#[cfg(test)]
pub(crate) mod schema;
pub mod wasi;
