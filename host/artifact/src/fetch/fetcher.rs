//! Fetches components for a host: from the cache, else from another replica, else from the registry or layout. The
//! signature is verified before the component is requested, and again each time that it is taken from the cache.
//!
//! The data for an offline start are stored together: the manifest, the component, and the found signatures.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use semver::VersionReq;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, DuplexStream};

use crate::fetch::replica::{ArtifactName, ReplicaSource, Replicas};
use crate::fetch::versions;
use crate::limits::MANIFEST_LIMIT;
use crate::{
    ArtifactCache, ArtifactError, ArtifactStore, CacheError, CacheWriter, Client, Digest, ErrorKind, FoundSignatures,
    Hold, Keychain, Location, PluginManifest, SignatureMaterial, Silent, Target, TrustError, TrustSource, Verification,
};

/// The kind of the records that link a manifest with its signatures.
const RECORD: &str = "artifact";

/// The largest total size of an artifact's stored signatures, in bytes.
const MOST_KEPT: usize = 4 << 20;

/// The size of the buffer between the registry and the disk, in bytes.
const PIPE: usize = 256 << 10;

/// Fetches plugins for a host.
pub struct Fetcher {
    client: Client,
    pub(crate) cache: ArtifactCache,
    trust: Arc<TrustSource>,
    /// The other replicas, which are asked before the registry.
    pub(crate) replicas: Option<Arc<dyn Replicas>>,
}

/// The selection of an artifact in a location.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The target of the location's digest or tag.
    Target,
    /// The newest version in a range.
    Newest(VersionReq),
}

/// The selected artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The manifest's digest.
    pub digest: Digest,
    /// The tag that selected it.
    pub tag: Option<String>,
}

/// A component that may run.
pub struct FetchedComponent {
    /// The manifest's digest.
    pub manifest: Digest,
    /// The component's digest.
    pub component: Digest,
    /// The component's size, in bytes.
    pub size: u64,
    /// Its file in the cache.
    pub file: PathBuf,
    /// The signer, or the reason why no signature was needed.
    pub verification: Verification,
    /// Holds that keep it in the cache, with the data for an offline start.
    pub holds: Vec<Hold>,
}

/// The reason why there is no component.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The artifact operation failed.
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    /// The artifact is not trusted.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The cache cannot store or return it.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// The signatures of a manifest, as the cache stores them. None of it is trusted.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Record {
    repository: String,
    manifest: Digest,
    signatures: Vec<SignatureMaterial>,
}

/// An artifact in the cache of a replica, without its component. None of it is trusted.
#[derive(Serialize, Deserialize)]
pub(crate) struct KeptArtifact {
    /// The manifest, byte for byte.
    pub(crate) manifest: String,
    signatures: Vec<SignatureMaterial>,
}

/// The source of a component.
enum ComponentSource<'a> {
    Store(&'a ArtifactStore),
    Replica(&'a ReplicaSource),
}

impl FetchError {
    /// Reports whether a retry may succeed without any change.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Artifact(error) if error.is_transient())
    }

    /// The delay that the registry requested.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Artifact(error) => error.retry_after(),
            Self::Trust(_) | Self::Cache(_) => None,
        }
    }
}

impl Fetcher {
    /// A fetcher with this cache and this trust policy.
    pub fn new(client: Client, cache: ArtifactCache, trust: Arc<TrustSource>) -> Self {
        Self {
            client,
            cache,
            trust,
            replicas: None,
        }
    }

    /// The fetcher that asks the other replicas before a registry.
    #[must_use]
    pub fn with_replicas(self, replicas: Option<Arc<dyn Replicas>>) -> Self {
        Self { replicas, ..self }
    }

    /// The trust policy, which may change.
    pub fn trust(&self) -> &Arc<TrustSource> {
        &self.trust
    }

    /// Selects an artifact. A digest needs no request to the registry.
    pub async fn choose(
        &self,
        location: &Location,
        choice: &Choice,
        keychain: &dyn Keychain,
    ) -> Result<Chosen, FetchError> {
        if let (Choice::Target, Some(Target::Digest(digest))) = (choice, location.target()) {
            return Ok(Chosen { digest, tag: None });
        }
        // A registry that no rule allows gets no request.
        self.trust.policy().rule_for(&repository(location))?;
        let store = self.client.open_with(location, keychain)?;
        let tag = match choice {
            Choice::Target => match location.target() {
                Some(Target::Tag(tag)) => tag,
                _ => {
                    return Err(ArtifactError::new(
                        ErrorKind::Reference,
                        format!("{location} has neither a tag nor a digest; append :TAG or @sha256:..."),
                    )
                    .into());
                }
            },
            Choice::Newest(range) => {
                if location.target().is_some() {
                    let message = format!("{location} has a tag, and a range of versions chooses one; remove the tag");
                    return Err(ArtifactError::new(ErrorKind::Reference, message).into());
                }
                let tags = store.tags().await?;
                let newest = versions::newest(tags.iter().map(String::as_str), range);
                newest.map(str::to_owned).ok_or_else(|| {
                    ArtifactError::new(
                        ErrorKind::NotFound,
                        format!(
                            "{location} has no tag in the range {range}, among {} tags; push one, or widen the range",
                            tags.len()
                        ),
                    )
                })?
            }
        };
        let resolved = store.resolve(&Target::Tag(tag.clone())).await?;
        Ok(Chosen {
            digest: resolved.digest,
            tag: Some(tag),
        })
    }

    /// Fetches the component of an artifact.
    pub async fn fetch(
        &self,
        location: &Location,
        manifest: Digest,
        keychain: &dyn Keychain,
    ) -> Result<FetchedComponent, FetchError> {
        match self.fetch_cached(location, manifest).await {
            Ok(Some(fetched)) => return Ok(fetched),
            // It may have been signed since.
            Ok(None) | Err(FetchError::Trust(_)) => {}
            Err(error) => tracing::warn!(%location, %error, "the cache does not give the artifact; fetching it"),
        }
        self.trust.policy().rule_for(&repository(location))?;
        if let (Some(replicas), Location::Registry(_)) = (&self.replicas, location) {
            match self.take_over(location, manifest, replicas.clone()).await {
                Ok(fetched) => return Ok(fetched),
                Err(error) => tracing::debug!(%location, %error, "no other replica gives the artifact"),
            }
        }
        let store = self.client.open_with(location, keychain)?;
        self.transfer(location, manifest, &store).await
    }

    /// Fetches the component of an artifact from the cache, without a network; none if the cache does not have it.
    pub async fn fetch_cached(
        &self,
        location: &Location,
        manifest: Digest,
    ) -> Result<Option<FetchedComponent>, FetchError> {
        let repository = repository(location);
        let Some(KeptArtifact {
            manifest: text,
            signatures,
        }) = self.kept_artifact(&repository, manifest).await?
        else {
            return Ok(None);
        };
        let bytes = Bytes::from(text);
        let verification = self.verify(&repository, bytes.clone(), signatures).await?;
        let parsed = self.parse(&location.to_string(), &bytes)?;
        self.held(&repository, manifest, &parsed, verification).await
    }

    /// Reads the manifest of an artifact and its signatures from the cache; none if the cache does not have both.
    pub(crate) async fn kept_artifact(
        &self,
        repository: &str,
        manifest: Digest,
    ) -> Result<Option<KeptArtifact>, FetchError> {
        let (cache, key) = (self.cache.clone(), record_key(repository, manifest));
        let read = move || -> Result<Option<(Record, Vec<u8>)>, CacheError> {
            let Some(record) = cache.record(RECORD, &key)? else {
                return Ok(None);
            };
            let Ok(record) = serde_json::from_slice::<Record>(&record) else {
                return Ok(None);
            };
            let bytes = cache.read(&manifest, MANIFEST_LIMIT)?;
            Ok(bytes.map(|bytes| (record, bytes)))
        };
        let Some((record, bytes)) = blocking(read).await?? else {
            return Ok(None);
        };
        // A manifest is JSON.
        let Ok(text) = String::from_utf8(bytes) else {
            return Ok(None);
        };
        let is_it = record.repository == repository && record.manifest == manifest;
        Ok(is_it.then_some(KeptArtifact {
            manifest: text,
            signatures: record.signatures,
        }))
    }

    pub(crate) fn parse(&self, title: &str, manifest: &[u8]) -> Result<PluginManifest, ArtifactError> {
        PluginManifest::parse(title, manifest, self.client.limits().blob)
    }

    /// Takes an artifact over from another replica.
    pub(crate) async fn take_over(
        &self,
        location: &Location,
        manifest: Digest,
        replicas: Arc<dyn Replicas>,
    ) -> Result<FetchedComponent, FetchError> {
        let name = ArtifactName {
            repository: repository(location),
            manifest,
        };
        let source = ReplicaSource { replicas, name };
        let KeptArtifact {
            manifest: text,
            signatures,
        } = source.artifact().await?;
        let bytes = Bytes::from(text);
        let verification = self
            .verify(&source.name.repository, bytes.clone(), signatures.clone())
            .await?;
        let source = ComponentSource::Replica(&source);
        let fetched = self.store(location, bytes, signatures, verification, source).await?;
        tracing::info!(%location, %manifest, "took the artifact over from another replica");
        Ok(fetched)
    }

    async fn transfer(
        &self,
        location: &Location,
        manifest: Digest,
        store: &ArtifactStore,
    ) -> Result<FetchedComponent, FetchError> {
        let repository = repository(location);
        let bytes = store.manifest(manifest).await?;
        let FoundSignatures { signatures, problem } = store.find_signatures(manifest).await;
        if let Some(error) = &problem {
            tracing::warn!(%location, %error, "cannot read all signatures of the artifact");
        }
        let verified = self.verify(&repository, bytes.clone(), signatures.clone()).await;
        let verification = match (verified, problem) {
            // The accepted signature may be in the source that failed.
            (Err(_), Some(problem)) => return Err(problem.into()),
            (verified, _) => verified?,
        };
        let source = ComponentSource::Store(store);
        self.store(location, bytes, signatures, verification, source).await
    }

    /// Stores a verified artifact. Only now it is parsed, and its component requested.
    async fn store(
        &self,
        location: &Location,
        bytes: Bytes,
        signatures: Vec<SignatureMaterial>,
        verification: Verification,
        source: ComponentSource<'_>,
    ) -> Result<FetchedComponent, FetchError> {
        let (repository, manifest) = (repository(location), Digest::of(&bytes));
        let parsed = self.parse(&location.to_string(), &bytes)?;
        let written = self.write_component(source, &parsed).await?;
        let record = Record {
            repository: repository.clone(),
            manifest,
            signatures: self.kept(&repository, &bytes, signatures),
        };
        let (cache, key) = (self.cache.clone(), record_key(&repository, manifest));
        let kept = blocking(move || -> Result<_, CacheError> {
            let kept = cache.put(&bytes)?;
            let record = serde_json::to_vec(&record).expect("a record is JSON");
            Ok([Some(kept), Some(cache.put_record(RECORD, &key, &record)?)])
        });
        let kept = kept.await??;
        Ok(FetchedComponent::new(manifest, verification, written, kept))
    }

    /// Writes a component to the cache, unless it is there.
    async fn write_component(&self, source: ComponentSource<'_>, parsed: &PluginManifest) -> Result<Hold, FetchError> {
        let (cache, digest, size) = (self.cache.clone(), parsed.component.digest, parsed.component.size);
        let begin = move || -> Result<Result<Hold, CacheWriter>, CacheError> {
            if let Some(hold) = cache.hold(&digest)? {
                return Ok(Ok(hold));
            }
            let mut writer = cache.writer(digest, size)?;
            // A download begins at the first byte; within it, the store resumes.
            writer.restart()?;
            Ok(Err(writer))
        };
        let writer = match blocking(begin).await?? {
            Ok(hold) => return Ok(hold),
            Err(writer) => writer,
        };
        let (mut sink, far) = tokio::io::duplex(PIPE);
        let send = async move {
            match source {
                ComponentSource::Store(store) => store.blob(&parsed.component, &mut sink, &Silent).await,
                ComponentSource::Replica(replica) => replica.component(&parsed.component, &mut sink).await,
            }
        };
        let (sent, written) = tokio::join!(send, write_out(far, writer));
        // A write error ends the transfer, too, and is the cause to report.
        let writer = written?;
        sent?;
        Ok(blocking(move || writer.commit()).await??)
    }

    /// The signatures to store for an offline start: all, or, if they are too large together, the first that is
    /// sufficient by itself, so that other parties' attestations cannot keep an artifact out of the cache.
    fn kept(&self, repository: &str, manifest: &[u8], signatures: Vec<SignatureMaterial>) -> Vec<SignatureMaterial> {
        let size =
            |signature: &SignatureMaterial| serde_json::to_vec(signature).map_or(usize::MAX, |bytes| bytes.len());
        let total = signatures.iter().map(size).fold(0, usize::saturating_add);
        if total <= MOST_KEPT {
            return signatures;
        }
        let policy = self.trust.policy();
        let is_enough = |signature: &&SignatureMaterial| {
            size(signature) <= MOST_KEPT
                && policy
                    .verify(repository, manifest, std::slice::from_ref(*signature))
                    .is_ok()
        };
        signatures.iter().find(is_enough).cloned().into_iter().collect()
    }

    async fn verify(
        &self,
        repository: &str,
        manifest: Bytes,
        signatures: Vec<SignatureMaterial>,
    ) -> Result<Verification, FetchError> {
        let (policy, repository) = (self.trust.policy(), repository.to_owned());
        let verified = blocking(move || policy.verify(&repository, &manifest, &signatures)).await?;
        Ok(verified?)
    }

    /// The component, if the cache has it, held there together with its manifest and its record.
    async fn held(
        &self,
        repository: &str,
        manifest: Digest,
        parsed: &PluginManifest,
        verification: Verification,
    ) -> Result<Option<FetchedComponent>, FetchError> {
        let (cache, component) = (self.cache.clone(), parsed.component.digest);
        let key = record_key(repository, manifest);
        let held = blocking(move || -> Result<_, CacheError> {
            let Some(hold) = cache.hold(&component)? else {
                return Ok(None);
            };
            let others = [cache.hold(&manifest)?, cache.hold_record(RECORD, &key)?];
            Ok(Some((hold, others)))
        });
        let held = held.await??;
        Ok(held.map(|(hold, others)| FetchedComponent::new(manifest, verification, hold, others)))
    }
}

impl FetchedComponent {
    /// A held component, with the further holds for an offline start.
    fn new(manifest: Digest, verification: Verification, component: Hold, others: [Option<Hold>; 2]) -> Self {
        Self {
            manifest,
            component: *component.digest(),
            size: component.size(),
            file: component.path().to_owned(),
            verification,
            holds: std::iter::once(component).chain(others.into_iter().flatten()).collect(),
        }
    }
}

/// The name of a location in the trust policy.
pub fn repository(location: &Location) -> String {
    match location {
        Location::Registry(reference) => reference.name(),
        Location::Layout(layout) => format!("oci-layout:{}", layout.path.display()),
    }
}

fn record_key(repository: &str, manifest: Digest) -> String {
    Digest::of(format!("{repository}@{manifest}").as_bytes()).hex()
}

/// Writes the bytes from a pipe. Only the writes run on a thread that may block: a download may take long.
async fn write_out(pipe: DuplexStream, mut writer: CacheWriter) -> Result<CacheWriter, FetchError> {
    let mut buffer = Vec::with_capacity(PIPE);
    let mut pipe = pipe.take(PIPE as u64);
    loop {
        // The other end is dropped when there is no more; nothing else can fail here.
        let _ = pipe.read_to_end(&mut buffer).await;
        if buffer.is_empty() {
            return Ok(writer);
        }
        let write = move || -> Result<_, CacheError> {
            writer.write(&buffer)?;
            buffer.clear();
            Ok((writer, buffer))
        };
        (writer, buffer) = blocking(write).await??;
        pipe.set_limit(PIPE as u64);
    }
}

#[expect(clippy::needless_pass_by_value, reason = "map_err gives the error itself")]
fn lost(error: tokio::task::JoinError) -> FetchError {
    ArtifactError::new(ErrorKind::Io, format!("a thread of the host was lost: {error}")).into()
}

/// Runs blocking or long work beside the other tasks.
pub(crate) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work).await.map_err(lost)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::json;

    use super::*;
    use crate::{ArtifactBuilder, ComponentInfo, Credentials, Limits, RegistriesConfig, TrustErrorKind};

    /// An OCI layout with artifacts, and a host's cache.
    struct Place {
        layout: tempfile::TempDir,
        cache: tempfile::TempDir,
    }

    impl Place {
        fn new() -> Self {
            Self {
                layout: tempfile::tempdir().unwrap(),
                cache: tempfile::tempdir().unwrap(),
            }
        }

        fn location(&self, tag: &str) -> Location {
            format!("oci-layout:{}:{tag}", self.layout.path().display())
                .parse()
                .unwrap()
        }

        fn fetcher(&self, trust: TrustSource) -> Fetcher {
            let client = Client::new(RegistriesConfig::default(), Limits::default());
            let cache = ArtifactCache::open(&self.cache.path().join("artifacts"), 1 << 20).unwrap();
            Fetcher::new(client, cache, Arc::new(trust))
        }

        async fn push(&self, component: &[u8], tag: &str) -> Digest {
            let client = Client::new(RegistriesConfig::default(), Limits::default());
            let store = client.open(&self.location(tag), &Credentials::Anonymous).unwrap();
            let artifact = ArtifactBuilder::new(component.to_vec(), ComponentInfo::default()).build();
            artifact.push(&store, Some(tag), &Silent).await.unwrap();
            store.finish().await.unwrap();
            artifact.descriptor.digest
        }

        /// Removes a blob of the layout.
        fn lose(&self, digest: Digest) {
            std::fs::remove_file(self.layout.path().join("blobs/sha256").join(digest.hex())).unwrap();
        }
    }

    fn trust(directory: &Path, policy: &serde_json::Value) -> TrustSource {
        let file = directory.join("trust.yaml");
        std::fs::write(&file, policy.to_string()).unwrap();
        TrustSource::open(&file).unwrap()
    }

    #[tokio::test]
    async fn what_was_fetched_is_there_without_its_source() {
        let place = Place::new();
        let manifest = place.push(b"component", "1").await;
        let location = place.location("1");
        let fetcher = place.fetcher(TrustSource::accept_unsigned());
        let chosen = fetcher.choose(&location, &Choice::Target, &()).await.unwrap();
        assert_eq!((chosen.digest, chosen.tag.as_deref()), (manifest, Some("1")));
        assert!(fetcher.fetch_cached(&location, manifest).await.unwrap().is_none());
        let fetched = fetcher.fetch(&location, manifest, &()).await.unwrap();
        assert_eq!(
            (fetched.component, fetched.size),
            (Digest::of(b"component"), b"component".len() as u64)
        );
        place.lose(manifest);
        place.lose(fetched.component);
        drop(fetched);
        // Another process, with the same cache.
        let fetcher = place.fetcher(TrustSource::accept_unsigned());
        let fetched = fetcher.fetch_cached(&location, manifest).await.unwrap().unwrap();
        assert_eq!(std::fs::read(&fetched.file).unwrap(), b"component");
        // What is cached under one repository is not given for another: each has a rule of its own.
        let other: Location = "oci-layout:/elsewhere:1".parse().unwrap();
        assert!(fetcher.fetch_cached(&other, manifest).await.unwrap().is_none());
    }

    #[tokio::test]
    async fn a_cache_file_that_somebody_edited_is_fetched_again() {
        let place = Place::new();
        let manifest = place.push(b"component", "1").await;
        let location = place.location("1");
        let fetcher = place.fetcher(TrustSource::accept_unsigned());
        let file = fetcher.fetch(&location, manifest, &()).await.unwrap().file;
        std::fs::write(&file, b"something").unwrap();
        assert!(fetcher.fetch_cached(&location, manifest).await.unwrap().is_none());
        let fetched = fetcher.fetch(&location, manifest, &()).await.unwrap();
        assert_eq!(std::fs::read(&fetched.file).unwrap(), b"component");
    }

    #[tokio::test]
    async fn without_a_signature_nothing_is_asked_for_but_the_manifest() {
        let place = Place::new();
        let manifest = place.push(b"component", "1").await;
        place.lose(Digest::of(b"component"));
        let pem = rcgen::KeyPair::generate().unwrap().public_key_pem();
        let policy = json!({"default": "refuse", "repositories": [{"match": "oci-layout:/**", "keys": [{"pem": pem, "name": "k"}]}]});
        let fetcher = place.fetcher(trust(place.cache.path(), &policy));
        let Err(FetchError::Trust(error)) = fetcher.fetch(&place.location("1"), manifest, &()).await else {
            panic!("it is refused for its signature, before the component, which is not there, is asked for");
        };
        assert_eq!(error.kind(), TrustErrorKind::Unsigned);
    }

    #[tokio::test]
    async fn a_repository_that_no_rule_allows_is_not_even_opened() {
        let place = Place::new();
        let fetcher = place.fetcher(trust(place.cache.path(), &json!({"default": "refuse"})));
        let nowhere: Location = "oci-layout:/nowhere:1".parse().unwrap();
        let Err(FetchError::Trust(error)) = fetcher.choose(&nowhere, &Choice::Target, &()).await else {
            panic!("it is refused before anybody looks for it");
        };
        assert_eq!(error.kind(), TrustErrorKind::NotAllowed);
    }

    #[tokio::test]
    async fn a_location_without_a_version_says_what_to_append() {
        let place = Place::new();
        place.push(b"component", "1.2.0").await;
        let fetcher = place.fetcher(TrustSource::accept_unsigned());
        let bare = Location::directory(place.layout.path());
        let error = fetcher
            .choose(&bare, &Choice::Target, &())
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains("append :TAG or @sha256"), "{error}");
        let newest = |range: &str| Choice::Newest(range.parse().unwrap());
        let chosen = fetcher.choose(&bare, &newest("^1"), &()).await.unwrap();
        assert_eq!(chosen.tag.as_deref(), Some("1.2.0"));
        let error = fetcher.choose(&bare, &newest("^2"), &()).await.unwrap_err().to_string();
        assert!(error.contains("no tag in the range ^2, among 1 tags"), "{error}");
    }
}
