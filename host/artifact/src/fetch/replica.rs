//! Takes artifacts over from another replica of the same host, so that a new replica starts while the registry is away.
//!
//! A replica answers with what its cache has: the manifest and the signatures as they were found, and then the
//! component in parts. Nothing of it is trusted: the digest and this host's own trust policy decide, as for a registry.

use std::pin::Pin;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::content::descriptor::Descriptor;
use crate::fetch::fetcher::{KeptArtifact, blocking};
use crate::{ArtifactError, Digest, ErrorKind, FetchError, Fetcher};

/// Bytes of a component in one answer.
const PART: u64 = 2 << 20;

/// The longest repository or location in a question, in bytes.
const LONGEST_NAME: usize = 1024;

/// The answer of another replica: JSON, or the reason why there is none.
pub type ReplicaAnswer<'a> = Pin<Box<dyn Future<Output = Result<String, String>> + Send + 'a>>;

/// The other replicas of this host.
pub trait Replicas: Send + Sync {
    /// Sends a question, in the form of a query, to one of them.
    fn ask(&self, query: String) -> ReplicaAnswer<'_>;
}

/// A question of another replica.
#[derive(Debug, PartialEq, Eq)]
pub enum ReplicaQuestion {
    /// Asks for the last target of a tag.
    Meant(String),
    /// Asks for the manifest of an artifact with its signatures.
    Artifact(ArtifactName),
    /// Asks for the part of its component that begins at this offset.
    Part(ArtifactName, u64),
}

/// An artifact of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactName {
    /// The name of the repository in the trust policy.
    pub repository: String,
    /// The manifest's digest.
    pub manifest: Digest,
}

#[derive(Serialize, Deserialize)]
struct MeantDocument {
    digest: Digest,
}

#[derive(Serialize, Deserialize)]
struct PartDocument {
    bytes: String,
}

impl ReplicaQuestion {
    /// Parses a query; the error says what a query has.
    pub fn parse(query: &str) -> Result<Self, String> {
        let wrong = || {
            "ask for location=REFERENCE, or for repository=NAME&digest=DIGEST, and offset=NUMBER for a part of its component, without escapes".to_owned()
        };
        let (mut location, mut repository, mut digest, mut offset) = (None, None, None, None);
        for pair in query.split('&') {
            let (member, value) = pair.split_once('=').ok_or_else(wrong)?;
            let place = match member {
                "location" => &mut location,
                "repository" => &mut repository,
                "digest" => &mut digest,
                "offset" => &mut offset,
                _ => return Err(wrong()),
            };
            let is_plain = (1..=LONGEST_NAME).contains(&value.len()) && !value.contains(['%', '+']);
            if !is_plain || place.replace(value).is_some() {
                return Err(wrong());
            }
        }
        let name = |repository: &str, digest: &str| {
            let manifest = digest.parse().map_err(|_| wrong())?;
            Ok::<_, String>(ArtifactName {
                repository: repository.to_owned(),
                manifest,
            })
        };
        match (location, repository, digest, offset) {
            (Some(location), None, None, None) => Ok(Self::Meant(location.to_owned())),
            (None, Some(repository), Some(digest), None) => Ok(Self::Artifact(name(repository, digest)?)),
            (None, Some(repository), Some(digest), Some(offset)) => Ok(Self::Part(
                name(repository, digest)?,
                offset.parse().map_err(|_| wrong())?,
            )),
            _ => Err(wrong()),
        }
    }

    fn query(&self) -> String {
        let of = |name: &ArtifactName| format!("repository={}&digest={}", name.repository, name.manifest);
        match self {
            Self::Meant(location) => format!("location={location}"),
            Self::Artifact(name) => of(name),
            Self::Part(name, offset) => format!("{}&offset={offset}", of(name)),
        }
    }
}

impl Fetcher {
    /// Answers a question of another replica from the cache, as JSON; none if the cache does not have it.
    pub async fn answer(&self, question: &ReplicaQuestion) -> Result<Option<String>, FetchError> {
        let json = match question {
            ReplicaQuestion::Meant(location) => {
                let meant = self.last_meant(location.clone()).await?;
                meant.map(|(digest, _)| serde_json::to_string(&MeantDocument { digest }))
            }
            ReplicaQuestion::Artifact(name) => {
                let kept = self.kept_artifact(&name.repository, name.manifest).await?;
                kept.map(|kept| serde_json::to_string(&kept))
            }
            ReplicaQuestion::Part(name, offset) => {
                let Some(kept) = self.kept_artifact(&name.repository, name.manifest).await? else {
                    return Ok(None);
                };
                let component = self.parse(&name.repository, kept.manifest.as_bytes())?.component.digest;
                let (cache, offset) = (self.cache.clone(), *offset);
                let part = blocking(move || cache.part(&component, offset, PART)).await??;
                part.map(|bytes| {
                    serde_json::to_string(&PartDocument {
                        bytes: BASE64.encode(bytes),
                    })
                })
            }
        };
        Ok(json.map(|json| json.expect("documents have text for keys")))
    }
}

/// An artifact in the cache of another replica.
pub(crate) struct ReplicaSource {
    pub(crate) replicas: Arc<dyn Replicas>,
    pub(crate) name: ArtifactName,
}

impl ReplicaSource {
    /// Reads the manifest and its signatures.
    pub(crate) async fn artifact(&self) -> Result<KeptArtifact, ArtifactError> {
        let kept: KeptArtifact = ask(&*self.replicas, &ReplicaQuestion::Artifact(self.name.clone())).await?;
        let actual = Digest::of(kept.manifest.as_bytes());
        if actual != self.name.manifest {
            let message = format!(
                "another replica gave a manifest with the digest {actual} for {}",
                self.name.manifest
            );
            return Err(ArtifactError::new(ErrorKind::DigestMismatch, message));
        }
        Ok(kept)
    }

    /// Writes the component. Whoever reads it verifies the digest.
    pub(crate) async fn component(
        &self,
        component: &Descriptor,
        sink: &mut (impl AsyncWrite + Unpin),
    ) -> Result<(), ArtifactError> {
        let mut offset = 0;
        while offset < component.size {
            let question = ReplicaQuestion::Part(self.name.clone(), offset);
            let PartDocument { bytes } = ask(&*self.replicas, &question).await?;
            let bytes = BASE64.decode(bytes).map_err(|error| garbled(&error))?;
            let sent = bytes.len() as u64;
            if sent == 0 || sent > component.size - offset {
                let message = format!("another replica gave {sent} bytes at {offset} of {}", component.size);
                return Err(ArtifactError::new(ErrorKind::Truncated, message));
            }
            sink.write_all(&bytes)
                .await
                .map_err(|error| ArtifactError::new(ErrorKind::Io, error.to_string()))?;
            offset += sent;
        }
        Ok(())
    }
}

/// Asks another replica for the last target of a tag.
pub(crate) async fn meant(replicas: &dyn Replicas, location: String) -> Result<Digest, ArtifactError> {
    let MeantDocument { digest } = ask(replicas, &ReplicaQuestion::Meant(location)).await?;
    Ok(digest)
}

async fn ask<T: DeserializeOwned>(replicas: &dyn Replicas, question: &ReplicaQuestion) -> Result<T, ArtifactError> {
    let answer = replicas.ask(question.query()).await;
    let json = answer.map_err(|problem| ArtifactError::new(ErrorKind::Unreachable, problem))?;
    serde_json::from_str(&json).map_err(|error| garbled(&error))
}

fn garbled(error: &dyn std::fmt::Display) -> ArtifactError {
    ArtifactError::new(
        ErrorKind::Protocol,
        format!("the answer of another replica cannot be read: {error}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_what_its_query_says() {
        let manifest = Digest::of(b"m");
        let name = ArtifactName {
            repository: "example.com:5000/a/b".to_owned(),
            manifest,
        };
        for question in [
            ReplicaQuestion::Meant("example.com/a:1.0".to_owned()),
            ReplicaQuestion::Artifact(name.clone()),
            ReplicaQuestion::Part(name, 1 << 40),
        ] {
            assert_eq!(ReplicaQuestion::parse(&question.query()), Ok(question));
        }
        let long = format!("location={}", "a".repeat(LONGEST_NAME + 1));
        let of = |rest: &str| format!("repository=a&digest={manifest}{rest}");
        for query in [
            "",
            "location",
            "location=",
            "location=a&location=a",
            "location=a%20b",
            "location=a&offset=1",
            "repository=a",
            "repository=a&digest=sha256:1",
            "repository=a&digest=../../x",
            &of("&offset=-1"),
            &of("&offset=x"),
            &of("&more=1"),
            &long,
        ] {
            let refused = ReplicaQuestion::parse(query);
            assert!(
                refused.is_err_and(|error| error.contains("location=REFERENCE")),
                "{query}"
            );
        }
    }
}
