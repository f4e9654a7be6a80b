//! Pilothouse's own resources as types, and the CustomResourceDefinitions made of them; `crds/yaml` holds these as files.
//!
//! `cargo xtask generate` writes the files anew; a test says when they are stale.
#![forbid(unsafe_code)]

pub mod plugin;
mod structural;

pub use plugin::{PluginSpec, PluginStatus, plugin_definition};
