//! Types of Pilothouse's own resources, and the CustomResourceDefinitions generated from them as files in `crds/yaml`.
//!
//! `cargo xtask generate` rewrites the files; a test fails if they are stale.
#![forbid(unsafe_code)]

pub mod plugin;
mod structural;

pub use plugin::{PluginSpec, PluginStatus, plugin_definition};
