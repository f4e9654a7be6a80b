//! Gives a host its plugins from OCI artifacts.

pub(crate) mod command_line;
pub mod options;
mod replicas;
pub(crate) mod store;
