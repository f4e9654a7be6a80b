//! Describes a plugin: its manifest and grants, its limits, its contract, and what its versions leave behind.
//!
//! The contract of wit/plugin.wit is here as plain types (`contract`), so that only host/sandbox knows the generated bindings. The parts
//! of it that will grow are JSON: the manifest, the extensions and the options. The rest are WIT records, which cannot gain fields.
//!
//! A manifest is a grant. Each touch in it is limited to the primary's own namespace unless its scope is `Any`. `grants` checks every
//! read, and `answer` every desired object. A plugin sees the fields that it declared, and of the metadata everything but
//! resourceVersion and managedFields.
//!
//! Two decisions:
//!
//! - A plugin may fix the reason of its condition (`failureReason`), because users of the original reverse-proxy read `Reconciled` as
//!   False/Failure. All other plugins report the host's reasons, so that users can alert on them.
//! - A plugin checks its configuration itself, by the types into which it reads it. No maintained crate bounds the cost of a guest's JSON
//!   schema: boon 0.6.1 and jsonschema 0.61.2 take more than 15 s for twenty nested `anyOf` of two references.

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
