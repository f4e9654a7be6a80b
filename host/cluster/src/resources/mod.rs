//! Reads and writes the host's own objects, and those of an installation.

pub mod annotations;
pub mod host_resources;
pub mod install;
pub mod installer;
pub mod lease;
pub mod migrate;
pub(crate) mod own_object;
pub mod pull_secret;
pub mod release;
pub mod shard_plan;
pub mod webhooks;
