//! Owns OCI descriptors: what names a blob or a manifest by digest, size and media type.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::Digest;

/// Media types of OCI itself.
pub mod media_type {
    /// A manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// A list of manifests.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// Docker's manifest, before OCI.
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// Docker's list of manifests, before OCI.
    pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    /// The blob `{}`, where a manifest must name a blob and there is none.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
}

/// A blob or manifest by digest, size and media type. Members that this crate does not use are kept, so that an index
/// that it rewrites loses nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the bytes are.
    pub media_type: String,
    /// The digest of the bytes.
    pub digest: Digest,
    /// The number of bytes.
    pub size: u64,
    /// Annotations; empty if there are none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The type of the artifact if this names a manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Other members: `platform`, `data`, `urls`. They are never followed.
    #[serde(flatten)]
    pub other: BTreeMap<String, serde_json::Value>,
}

impl Descriptor {
    /// A descriptor of these bytes.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::of(bytes), bytes.len() as u64)
    }

    /// A descriptor without annotations.
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            annotations: BTreeMap::new(),
            artifact_type: None,
            other: BTreeMap::new(),
        }
    }
}
