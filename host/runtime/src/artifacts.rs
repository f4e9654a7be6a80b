//! Owns what the host asks of a store of OCI artifacts: which artifact a reference means, the component in it, and whether
//! its signature is trusted. Knows neither registries nor signatures: the program gives an implementation.

use std::any::Any;
use std::fmt;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// The answer of a store, which may take minutes.
pub type ArtifactFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ArtifactProblem>> + Send + 'a>>;

/// An artifact that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactRequest {
    /// The reference as the user wrote it.
    pub reference: String,
    /// Which artifact of the reference is meant.
    pub update: ArtifactUpdate,
    /// How often the store is asked whether another one is meant now.
    pub interval: Duration,
    /// The Secret with the credentials, in the host's namespace.
    pub pull_secret: Option<String>,
}

impl ArtifactRequest {
    /// Whether two requests mean the same artifact at any time.
    pub fn is_same_choice(&self, other: &Self) -> bool {
        (&self.reference, &self.update) == (&other.reference, &other.update)
    }

    /// Whether the artifact that had this tag may still be meant. A pinned one is found by its digest.
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

/// Which artifact of a reference is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArtifactUpdate {
    /// The one with the reference's digest, for good.
    Pinned,
    /// The one that the reference's tag names at the time.
    Tag,
    /// The newest version within a range, in the notation of Cargo.
    SemVer(String),
}

/// The artifact that is meant at a time.
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
    /// Which one.
    pub resolved: ResolvedArtifact,
    /// The file with the component. Its content is checked against `component_digest` before it is used.
    pub file: PathBuf,
    /// The SHA-256 of the component, in hexadecimal digits.
    pub component_digest: String,
    /// The component's size, in bytes.
    pub size: u64,
    /// What is known of its signature.
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

/// What is known of an artifact's signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactVerification {
    /// Who signed it; none: the host's trust policy takes it without a signature.
    pub signer: Option<String>,
    /// When it was signed, as far as the signature proves that, or which rule takes it: for people.
    pub detail: String,
}

/// What the store cannot do, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ArtifactProblem {
    /// Whether the signature is the matter, and not the transfer.
    pub is_about_trust: bool,
    /// The reason of the condition, CamelCase, from a closed set.
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

/// Where artifacts come from.
pub trait ArtifactStore: Send + Sync {
    /// Says which artifact a request means now. Asks the registry, unless the reference has a digest.
    fn resolve<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, ResolvedArtifact>;

    /// Brings an artifact, from the cache if it is there, and checks its signature before anything reads the component.
    fn fetch<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
        credentials: Option<&'a PullCredentials>,
    ) -> ArtifactFuture<'a, FetchedArtifact>;

    /// Brings an artifact if it takes no network: from the cache. None if it is not there.
    fn fetch_offline<'a>(
        &'a self,
        request: &'a ArtifactRequest,
        resolved: &'a ResolvedArtifact,
    ) -> ArtifactFuture<'a, Option<FetchedArtifact>>;

    /// The number of the trust policy that holds now.
    fn trust_number(&self) -> u64;

    /// Resolves when the trust policy is another one than that of this number.
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
