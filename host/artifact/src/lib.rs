//! Plugins as OCI artifacts: how they are named, pushed, pulled, copied, signed, verified and cached.
//!
//! Knows registries and signatures, and neither Kubernetes nor wasmtime. What a component contains is not this crate's
//! matter: it moves bytes whose digest and signature are known before anything parses them.
#![forbid(unsafe_code)]

mod cache;
mod digest;
mod json;
mod sbom;
mod signature;
mod trust;

pub use cache::{ArtifactCache, CacheError, CacheUsage, CacheWriter, DEFAULT_CACHE_BYTES, Hold};
pub use digest::{Digest, DigestError};
pub use sbom::{SBOM_MEDIA_TYPE, Sbom, SbomComponent, SbomError, cyclonedx, read_sbom};
pub use signature::SignatureMaterial;
pub use trust::{
    Outcome, RuleRef, SignatureFormat, TrustError, TrustErrorKind, TrustPolicy, TrustPolicyError, Verification,
};
