//! Annotations of a plugin's manifest.

/// The plugin's name.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Its version.
pub const VERSION: &str = "org.opencontainers.image.version";
/// The location of its source code.
pub const SOURCE: &str = "org.opencontainers.image.source";
/// Its licence, an SPDX expression.
pub const LICENSES: &str = "org.opencontainers.image.licenses";
/// Its description.
pub const DESCRIPTION: &str = "org.opencontainers.image.description";
/// Its creation time.
pub const CREATED: &str = "org.opencontainers.image.created";
