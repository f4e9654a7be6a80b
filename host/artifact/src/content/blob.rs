//! Resolved manifests, and the bytes of blobs to push.

use crate::Digest;
use bytes::Bytes;
use std::path::PathBuf;

/// What a tag or digest stands for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The manifest's digest.
    pub digest: Digest,
    /// The manifest's size in bytes.
    pub size: u64,
    /// The manifest's media type, as the registry says it.
    pub media_type: String,
}

/// The bytes of a blob to push.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file, read as it is sent.
    File(PathBuf),
}
