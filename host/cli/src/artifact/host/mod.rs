//! Gives a host its plugins from OCI artifacts.

pub(crate) mod command_line;
pub mod options;
pub(crate) mod store;
