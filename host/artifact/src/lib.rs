//! Plugins as OCI artifacts: names, push, pull, copies, signatures, verification and the cache.
//!
//! Knows registries and signatures, but neither Kubernetes nor wasmtime. The content of a component is left to others:
//! this crate transfers bytes, and verifies digest and signature before anything parses them.
#![forbid(unsafe_code)]

mod cache;
mod content;
mod copy;
mod error;
pub mod fetch;
mod layout;
pub mod limits;
mod reference;
mod registry;
mod store;
mod trust;

pub use cache::error::CacheError;
pub use cache::{ArtifactCache, CacheUsage, CacheWriter, DEFAULT_CACHE_BYTES, Hold};
pub use content::annotation;
pub use content::blob::{Content, Resolved};
pub use content::descriptor::{Descriptor, media_type};
pub use content::digest::{Digest, DigestError};
pub use content::manifest::{Artifact, ArtifactBuilder, ComponentInfo, PluginManifest};
pub use copy::{Copied, copy};
pub use error::{ArtifactError, ErrorKind};
pub use fetch::fetcher::{Choice, Chosen, FetchError, FetchedComponent, Fetcher, repository};
pub use fetch::progress::{Progress, Silent};
pub use fetch::replica::{ReplicaAnswer, ReplicaQuestion, Replicas};
pub use layout::reads::DirectoryReads;
pub use limits::Limits;
pub use reference::{LayoutLocation, Location, Reference, Target};
pub use registry::client::Client;
pub use registry::credentials::{Credentials, DockerConfig, Keychain, PullSecret};
pub use registry::http::ProxyRule;
pub use registry::registries::{RegistriesConfig, RegistryConfig};
pub use store::{ArtifactStore, Attachment};
pub use trust::discovery::FoundSignatures;
pub use trust::signature::SignatureMaterial;
pub use trust::source::{TrustSource, TrustSourceError};
pub use trust::{
    Outcome, RuleRef, SignatureFormat, TrustError, TrustErrorKind, TrustPolicy, TrustPolicyError, Verification,
};
