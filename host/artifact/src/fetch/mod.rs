//! Fetches the component of an artifact: from the cache, another replica, a mirror, a registry or a layout.

pub(crate) mod download;
pub(crate) mod fetcher;
pub(crate) mod meant;
pub(crate) mod mirror;
pub(crate) mod progress;
pub(crate) mod replica;
pub mod versions;
