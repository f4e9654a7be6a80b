//! Interface of a store of OCI artifacts: resolves references, fetches components and verifies signatures. Knows
//! neither registries nor signatures: the program provides an implementation.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The answer of a store, which may take minutes.
pub type ArtifactFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArtifactProblem>> + Send + 'a>>;

/// A requested artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRequest {
    /// The reference as the user wrote it.
    pub reference: String,
    /// Update policy, which selects the artifact of the reference.
    pub update: ArtifactUpdate,
    /// Interval at which the reference is resolved again.
    pub interval: Duration,
    /// The Secret with the credentials, in the host's namespace.
    pub pull_secret: Option<String>,
}

impl ArtifactRequest {
    /// Returns `true` if two requests always select the same artifact.
    pub fn is_same_choice(&self, other: &Self) -> bool {
        (&self.reference, &self.update) == (&other.reference, &other.update)
    }

    /// Returns `true` if the artifact that had this tag may still be selected. A pinned one is found by its digest.
    pub fn may_mean(&self, tag: Option<&str>) -> bool {
        match (&self.update, tag) {
            (ArtifactUpdate::Pinned, _) | (_, None) => false,
            (ArtifactUpdate::Tag, Some(tag)) => self.reference.ends_with(&format!(":{tag}")),
            (ArtifactUpdate::SemVer(range), Some(tag)) => {
                let version = tag.trim_start_matches('v').replace('_', "+").parse::<semver::Version>();
                let range = semver::VersionReq::parse(range);
                range.is_ok_and(|range| version.is_ok_and(|version| range.matches(&version)))
            }
        }
    }
}

/// Selects the artifact of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactUpdate {
    /// The one with the reference's digest, for good.
    Pinned,
    /// The one that the reference's tag names at present.
    Tag,
    /// The newest version within a range, in the notation of Cargo.
    SemVer(String),
}

/// The artifact that a request selects at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResolvedArtifact {
    /// The digest of its manifest, `sha256:` and 64 hexadecimal digits.
    pub digest: String,
    /// The tag that named it.
    pub tag: Option<String>,
}

/// An artifact whose component is in a file and may run.
#[derive(Clone)]
pub struct FetchedArtifact {
    /// The resolved artifact.
    pub resolved: ResolvedArtifact,
    /// The file with the component. Its content is checked against `component_digest` before it is used.
    pub file: PathBuf,
    /// The SHA-256 of the component, in hexadecimal digits.
    pub component_digest: String,
    /// The component's size, in bytes.
    pub size: u64,
    /// Result of the signature verification.
    pub verification: ArtifactVerification,
    /// Keeps the file for as long as the artifact is in use.
    pub hold: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for FetchedArtifact {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("FetchedArtifact");
        fields.field("resolved", &self.resolved).field("file", &self.file);
        fields.finish_non_exhaustive()
    }
}

/// Result of verifying an artifact's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactVerification {
    /// Signer; `None`: the host's trust policy accepts the artifact without a signature.
    pub signer: Option<String>,
    /// Time of the signature, as far as it proves that, or the rule that accepts the artifact: for people.
    pub detail: String,
}

/// Failure of the store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArtifactProblem {
    /// Set if the signature is rejected, rather than the transfer failed.
    pub is_about_trust: bool,
    /// Reason of the condition, CamelCase, from a closed set.
    pub reason: &'static str,
    /// The reference, the cause and the next step.
    pub message: String,
}

/// The credentials of a pull secret: the value of its key `.dockerconfigjson`.
#[derive(Clone)]
pub struct PullCredentials(pub Vec<u8>);

impl fmt::Debug for PullCredentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("PullCredentials(..)")
    }
}

/// Source of artifacts.
pub trait ArtifactStore: Send + Sync {
    /// Resolves the artifact of a request. Asks the registry, unless the reference has a digest.
    fn resolve<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, ResolvedArtifact>;

    /// Fetches an artifact, from the cache if it is there, and verifies its signature before anything reads the
    /// component.
    fn fetch<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, FetchedArtifact>;

    /// Fetches an artifact from the cache, without network. `None` if it is not there.
    fn fetch_offline<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
    ) -> ArtifactFuture<'a, Option<FetchedArtifact>>;

    /// Number of the current trust policy.
    fn trust_number(&self) -> u64;

    /// Resolves when the trust policy is no longer the one with this number.
    fn trust_changed(&self, since: u64) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_counts_only_while_it_may_be_meant() {
        let may_mean = |update, tag| {
            let request = ArtifactRequest {
                reference: "example.com/a:1.9.0".to_owned(),
                update,
                interval: Duration::from_mins(1),
                pull_secret: None,
            };
            request.may_mean(tag)
        };
        let range = |range: &str| ArtifactUpdate::SemVer(range.to_owned());
        assert!(may_mean(ArtifactUpdate::Tag, Some("1.9.0")) && may_mean(range("^1"), Some("v1.9.0_b")));
        assert!(!may_mean(ArtifactUpdate::Tag, Some("1.8.0")) && !may_mean(range("<1.5"), Some("1.9.0")));
        assert!(!may_mean(range("^1"), Some("latest")) && !may_mean(ArtifactUpdate::Tag, None));
        assert!(!may_mean(ArtifactUpdate::Pinned, Some("1.9.0")));
    }
}
