//! Resolved manifests, and the bytes of blobs to push.

use std::path::PathBuf;

use bytes::Bytes;

use crate::Digest;

/// The target of a tag or digest at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The manifest's digest.
    pub digest: Digest,
    /// The manifest's size in bytes.
    pub size: u64,
    /// The manifest's media type, as the registry reports it.
    pub media_type: String,
}

/// The bytes of a blob to push.
#[derive(Clone, Debug)]
pub enum Content {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A file, read while it is sent.
    File(PathBuf),
}
