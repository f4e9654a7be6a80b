//! Plugins as OCI artifacts: how they are named, pushed, pulled, copied, signed, verified and cached.
//!
//! Knows registries and signatures, and neither Kubernetes nor wasmtime. What a component contains is not this crate's
//! matter: it moves bytes whose digest and signature are known before anything parses them.
#![forbid(unsafe_code)]

mod archive;
mod cache;
mod client;
mod copy;
mod credentials;
mod descriptor;
mod digest;
mod discovery;
mod download;
mod error;
mod fetcher;
mod http;
mod json;
mod layout;
pub mod limits;
mod local;
mod manifest;
mod meant;
mod mirror;
mod progress;
mod reads;
mod reference;
mod registries;
mod registry;
mod sbom;
mod session;
mod signature;
mod store;
mod trust;
mod trust_source;
pub mod versions;

pub use cache::{ArtifactCache, CacheError, CacheUsage, CacheWriter, DEFAULT_CACHE_BYTES, Hold};
pub use client::Client;
pub use copy::{Copied, copy};
pub use credentials::{Credentials, DockerConfig, Kept, Keychain, PullSecret, login, logout};
pub use descriptor::{Descriptor, media_type};
pub use digest::{Digest, DigestError};
pub use discovery::FoundSignatures;
pub use error::{ArtifactError, ErrorKind};
pub use fetcher::{Choice, Chosen, FetchError, FetchedComponent, Fetcher, repository};
pub use limits::Limits;
pub use manifest::{Artifact, ArtifactBuilder, ComponentInfo, PluginManifest, annotation};
pub use progress::{Progress, Silent};
pub use reads::DirectoryReads;
pub use reference::{LayoutLocation, Location, Reference, Target};
pub use registries::{RegistriesConfig, RegistryConfig};
pub use sbom::{SBOM_MEDIA_TYPE, Sbom, SbomComponent, SbomError, cyclonedx, read_sbom};
pub use signature::SignatureMaterial;
pub use store::{ArtifactStore, Attachment, Content, Resolved};
pub use trust::{
    Outcome, RuleRef, SignatureFormat, TrustError, TrustErrorKind, TrustPolicy, TrustPolicyError, Verification,
};
pub use trust_source::{TrustSource, TrustSourceError};
