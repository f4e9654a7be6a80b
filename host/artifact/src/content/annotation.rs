//! Annotations of a plugin's manifest.

/// The plugin's name.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Its version.
pub const VERSION: &str = "org.opencontainers.image.version";
/// Where its source code is.
pub const SOURCE: &str = "org.opencontainers.image.source";
/// Its licence, an SPDX expression.
pub const LICENSES: &str = "org.opencontainers.image.licenses";
/// What it does.
pub const DESCRIPTION: &str = "org.opencontainers.image.description";
/// When it was made.
pub const CREATED: &str = "org.opencontainers.image.created";
