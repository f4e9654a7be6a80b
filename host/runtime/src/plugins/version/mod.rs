//! Prepares one version of a plugin to run: describes and checks it, waits for what it needs, and lets it take over.

pub mod consent;
pub mod crd_wait;
pub mod exclusive_kinds;
pub mod permissions;
pub mod prepare;
pub mod running;
pub mod staging;
