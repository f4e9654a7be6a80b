//! The form of a signature that was found beside an artifact, before it is verified.

use serde::{Deserialize, Serialize};

/// A signature of an artifact's manifest as stored in a registry, an OCI layout or the cache. Nothing in it is trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SignatureMaterial {
    /// A Sigstore bundle (cosign 3 and later): a referrer of the manifest with the media type
    /// `application/vnd.dev.sigstore.bundle.v0.3+json`.
    Bundle {
        /// The bundle, JSON.
        json: String,
    },
    /// A layer of the image behind the tag `sha256-<digest>.sig` (cosign before version 3): a "simple signing" payload that
    /// names the manifest's digest, with the signature and its evidence in the layer's annotations.
    SimpleSigning {
        /// The signed content: the layer, byte for byte.
        payload: String,
        /// The annotation `dev.cosignproject.cosign/signature`, base64.
        signature: String,
        /// The annotation `dev.sigstore.cosign/certificate`, PEM.
        certificate: Option<String>,
        /// The annotation `dev.sigstore.cosign/chain`, PEM.
        chain: Option<String>,
        /// The annotation `dev.sigstore.cosign/bundle`, JSON: the transparency log's promise.
        log_entry: Option<String>,
        /// The annotation `dev.sigstore.cosign/rfc3161timestamp`, JSON.
        timestamp: Option<String>,
    },
}
