//! OCI descriptors: name a blob or a manifest by digest, size and media type.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeOwned, IgnoredAny, SeqAccess};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::Digest;
use crate::limits::{ENTRIES_LIMIT, PARSED_LIMIT};

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
    /// The blob `{}`, for a manifest that must name a blob and has none.
    pub const EMPTY: &str = "application/vnd.oci.empty.v1+json";
}

/// A blob or manifest by digest, size and media type. Other members are not read: `urls` is never followed, and `data` and
/// `platform` say nothing about a plugin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// The media type of the bytes.
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
        }
    }
}

/// The first entries of an index. Invalid entries, and those with a digest of another algorithm, are skipped.
#[derive(Default, Deserialize)]
pub(crate) struct Listed {
    manifests: Entries,
}

#[derive(Default)]
struct Entries(Vec<Descriptor>);

impl Listed {
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// The valid entries, at most `limit`.
    pub(crate) fn descriptors(self, limit: usize) -> Vec<Descriptor> {
        let mut entries = self.manifests.0;
        entries.truncate(limit);
        entries
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Entries;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a list of descriptors")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Entries, A::Error> {
                let mut entries = Vec::new();
                for _ in 0..ENTRIES_LIMIT {
                    let Some(entry) = list.next_element::<&RawValue>()? else {
                        return Ok(Entries(entries));
                    };
                    entries.extend(serde_json::from_str(entry.get()).ok());
                }
                // Further entries are skipped.
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Entries(entries))
            }
        }

        deserializer.deserialize_seq(Visitor)
    }
}

/// Parses the required members of a manifest; the default for one that is too long or invalid.
pub(crate) fn parse_lenient<T: DeserializeOwned + Default>(manifest: &[u8]) -> T {
    if manifest.len() as u64 > PARSED_LIMIT {
        return T::default();
    }
    serde_json::from_slice(manifest).unwrap_or_default()
}
