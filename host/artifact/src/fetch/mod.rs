//! Fetches the component of an artifact: from the cache, a mirror, a registry or a layout.

pub(crate) mod download;
pub(crate) mod fetcher;
pub(crate) mod meant;
pub(crate) mod mirror;
pub(crate) mod progress;
pub mod versions;
