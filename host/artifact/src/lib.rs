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

pub use crate::content::descriptor::{Descriptor, media_type};
pub use crate::content::digest::{Digest, DigestError};
pub use crate::content::manifest::{Artifact, ArtifactBuilder, ComponentInfo, PluginManifest, annotation};
pub use crate::content::sbom::{SBOM_MEDIA_TYPE, Sbom, SbomComponent, SbomError, cyclonedx, read_sbom};
pub use crate::fetch::fetcher::{Choice, Chosen, FetchError, FetchedComponent, Fetcher, repository};
pub use crate::fetch::progress::{Progress, Silent};
pub use crate::layout::reads::DirectoryReads;
pub use crate::registry::client::Client;
pub use crate::registry::credentials::{Credentials, DockerConfig, Kept, Keychain, PullSecret, login, logout};
pub use crate::registry::registries::{RegistriesConfig, RegistryConfig};
pub use crate::trust::discovery::FoundSignatures;
pub use crate::trust::signature::SignatureMaterial;
pub use crate::trust::source::{TrustSource, TrustSourceError};
pub use cache::{ArtifactCache, CacheError, CacheUsage, CacheWriter, DEFAULT_CACHE_BYTES, Hold};
pub use copy::{Copied, copy};
pub use error::{ArtifactError, ErrorKind};
pub use limits::Limits;
pub use reference::{LayoutLocation, Location, Reference, Target};
pub use store::{ArtifactStore, Attachment, Content, Resolved};
pub use trust::{
    Outcome, RuleRef, SignatureFormat, TrustError, TrustErrorKind, TrustPolicy, TrustPolicyError, Verification,
};
