//! Fetches the components of plugins: from a directory, or from a store of OCI artifacts.

pub mod artifact;
pub mod artifact_memory;
pub mod directory_reader;
pub mod earlier_artifact;
pub mod source;
