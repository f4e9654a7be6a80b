//! A common interface for all places of artifacts: a registry's repository with its mirrors, or an OCI layout.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use tokio::time::timeout;

use crate::content::blob::{Content, Resolved};
use crate::content::descriptor::{media_type, parse_lenient};
use crate::content::json::sorted;
use crate::fetch::download::Download;
use crate::fetch::mirror::MirrorSource;
use crate::layout::Layout;
use crate::registry::session::Scope;
use crate::registry::{Belonging, Referrers, Registry};
use crate::{ArtifactError, Descriptor, Digest, ErrorKind, Limits, Location, Progress, Silent, Target, annotation};

/// A place of artifacts, opened by [`crate::Client::open`].
///
/// Reads try the registry's mirrors first, in their order. A mirror that cannot be reached or returns other bytes is no
/// longer used. Writes go to the place itself.
pub struct ArtifactStore {
    pub(crate) location: Location,
    pub(crate) limits: Limits,
    pub(crate) mirrors: Vec<MirrorSource>,
    pub(crate) place: Place,
}

pub(crate) enum Place {
    Registry(Registry),
    Layout {
        layout: Layout,
        /// The `HOST/REPOSITORY` that the layout mirrors.
        mirrors: Option<String>,
    },
}

/// A file that belongs to an artifact: its CRDs, README or SBOM.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// Its type as an artifact.
    pub artifact_type: String,
    /// The media type of the file.
    pub media_type: String,
    /// The file.
    pub content: Bytes,
    /// Annotations of the attachment's manifest.
    pub annotations: BTreeMap<String, String>,
}

impl Place {
    async fn resolve(&self, target: &Target) -> Result<Resolved, ArtifactError> {
        match self {
            Self::Registry(registry) => registry.resolve(target).await,
            Self::Layout { layout, mirrors } => {
                // A tag that is derived from a digest is unambiguous.
                let is_free = matches!(target, Target::Tag(tag) if !tag.starts_with("sha256-"));
                let image = mirrors
                    .as_ref()
                    .filter(|_| is_free)
                    .map(|name| format!("{name}:{target}"));
                layout.resolve(target, image).await
            }
        }
    }

    async fn manifest(&self, digest: Digest) -> Result<Bytes, ArtifactError> {
        match self {
            Self::Registry(registry) => Ok(registry.manifest(&Target::Digest(digest)).await?.0),
            Self::Layout { layout, .. } => layout.manifest(digest).await,
        }
    }

    async fn tags(&self) -> Result<Vec<String>, ArtifactError> {
        match self {
            Self::Registry(registry) => registry.tags().await,
            // The tags of a layout with several repositories belong to no single one.
            Self::Layout { layout, mirrors: None } => layout.tags().await,
            Self::Layout { layout, .. } => {
                let cause = format!("{} is a mirror and lists no tags", layout.name());
                Err(ArtifactError::new(ErrorKind::NotFound, cause))
            }
        }
    }

    async fn referrers(&self, digest: Digest) -> Referrers {
        match self {
            Self::Registry(registry) => registry.referrers(digest).await,
            Self::Layout { layout, .. } => layout.referrers(digest).await.into(),
        }
    }

    /// Reports whether parts of an artifact that are missing here need not be searched elsewhere: a copy into a layout
    /// includes everything attached to it, while a registry's mirror may have the artifact alone.
    async fn has_all_of(&self, digest: Digest) -> bool {
        match self {
            Self::Registry(_) => false,
            Self::Layout { layout, .. } => layout.has(digest).await.unwrap_or(false),
        }
    }

    async fn blob(
        &self,
        download: &mut Download,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        match self {
            Self::Registry(registry) => registry.blob(download, sink, progress).await,
            Self::Layout { layout, .. } => layout.blob(download, sink, progress).await,
        }
    }
}

/// Tries the mirrors in their order, and then the place itself, until one succeeds. The error is the place's.
macro_rules! first {
    ($store:ident, $place:ident => $call:expr) => {{
        for mirror in $store.asked() {
            let asked = async {
                let $place = mirror.place().await?;
                $call.await
            };
            match asked.await {
                Ok(value) => return Ok(value),
                Err(error) => mirror.record_failure(&error),
            }
        }
        let $place = &$store.place;
        $call.await
    }};
}

impl ArtifactStore {
    /// The location.
    pub fn location(&self) -> &Location {
        &self.location
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The mirrors that have not failed.
    fn asked(&self) -> impl Iterator<Item = &MirrorSource> {
        self.mirrors.iter().filter(|mirror| mirror.is_asked())
    }

    /// Registry and repository, or the layout, without tag and digest.
    pub fn name(&self) -> String {
        match self.place() {
            Place::Registry(registry) => registry.name().to_owned(),
            Place::Layout { layout, .. } => layout.name(),
        }
    }

    /// Finds the manifest of a tag or digest. A tag may be moved at any time, so all later requests use the digest.
    pub async fn resolve(&self, target: &Target) -> Result<Resolved, ArtifactError> {
        first!(self, place => place.resolve(target))
    }

    /// All tags, in no particular order, at most [`Limits::tags`].
    pub async fn tags(&self) -> Result<Vec<String>, ArtifactError> {
        let time = self.limits.transfer;
        let listed = timeout(time, async { first!(self, place => place.tags()) }).await;
        listed.unwrap_or_else(|_| Err(self.late("listing the tags", time)))
    }

    pub(crate) fn late(&self, what: &str, time: Duration) -> ArtifactError {
        let message = format!(
            "{what} of {} took longer than {time:?}; check the network, or use a mirror",
            self.name()
        );
        ArtifactError::new(ErrorKind::Timeout, message)
    }

    /// A manifest's bytes, at most [`crate::limits::MANIFEST_LIMIT`], with this digest.
    pub async fn manifest(&self, digest: Digest) -> Result<Bytes, ArtifactError> {
        first!(self, place => place.manifest(digest))
    }

    /// Writes a blob into a sink, and verifies its size and digest. If it fails, the sink may have been written in part
    /// and must be discarded.
    pub async fn blob(
        &self,
        descriptor: &Descriptor,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        self.check_size(descriptor, self.limits.blob)?;
        let mut download = Download::new(descriptor);
        progress.started(descriptor.size);
        for mirror in self.asked() {
            let sent = async { mirror.place().await?.blob(&mut download, sink, progress).await };
            match sent.await {
                Ok(()) => {
                    progress.done();
                    return Ok(());
                }
                Err(error) => {
                    mirror.record_failure(&error);
                    // The sink has wrong bytes, or takes none.
                    if matches!(error.kind(), ErrorKind::DigestMismatch | ErrorKind::Io) {
                        return Err(error);
                    }
                }
            }
        }
        self.place.blob(&mut download, sink, progress).await?;
        progress.done();
        Ok(())
    }

    /// Refuses a blob that is too large, before it is requested.
    fn check_size(&self, descriptor: &Descriptor, limit: u64) -> Result<(), ArtifactError> {
        if descriptor.size <= limit {
            return Ok(());
        }
        Err(ArtifactError::new(
            ErrorKind::TooLarge,
            format!(
                "{} of {} has {} bytes, and at most {limit} are accepted; do not use this source",
                descriptor.digest,
                self.name(),
                descriptor.size
            ),
        ))
    }

    /// A blob in memory, of at most this many bytes.
    pub async fn small_blob(&self, descriptor: &Descriptor, limit: u64) -> Result<Bytes, ArtifactError> {
        self.check_size(descriptor, limit)?;
        let mut bytes = Vec::new();
        self.blob(descriptor, &mut bytes, &Silent).await?;
        Ok(bytes.into())
    }

    /// The manifests with this one as their subject, by the referrers API and the fallback tag, at most
    /// [`Limits::referrers`]. If a type is given, only artifacts of that type.
    pub async fn referrers(
        &self,
        digest: Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ArtifactError> {
        let Referrers { found, problem } = self.find_referrers(digest, artifact_type).await;
        problem.map_or(Ok(found), Err)
    }

    /// The same. A failure of one source does not hide the results of others.
    pub(crate) async fn find_referrers(&self, digest: Digest, artifact_type: Option<&str>) -> Referrers {
        let mut answered = false;
        for mirror in self.asked() {
            let place = match mirror.place().await {
                Ok(place) => place,
                Err(error) => {
                    mirror.record_failure(&error);
                    continue;
                }
            };
            let listed = self.of_type(place.referrers(digest).await, artifact_type).await;
            match &listed.problem {
                Some(error) => mirror.record_failure(error),
                None => answered = true,
            }
            if !listed.found.is_empty() || (listed.problem.is_none() && place.has_all_of(digest).await) {
                return listed;
            }
        }
        let mut listed = self.of_type(self.place.referrers(digest).await, artifact_type).await;
        if answered && let Some(error) = listed.problem.take() {
            tracing::debug!(%error, "only a mirror says what belongs to an artifact");
        }
        listed
    }

    /// The manifest under a tag derived from another manifest's digest, if it exists.
    pub(crate) async fn belonging(&self, digest: Digest, suffix: &str) -> Result<Option<Bytes>, ArtifactError> {
        let tag = Target::Tag(format!("sha256-{}.{suffix}", digest.hex()));
        let mut answered = false;
        for mirror in self.asked() {
            let found = async {
                let place = mirror.place().await?;
                Ok((place, absent_tag(place.resolve(&tag).await)?))
            };
            match found.await {
                Ok((_, Some(resolved))) => return absent(self.manifest(resolved.digest).await),
                Ok((place, None)) => {
                    answered = true;
                    if place.has_all_of(digest).await {
                        return Ok(None);
                    }
                }
                Err(error) => mirror.record_failure(&error),
            }
        }
        match self.place.resolve(&tag).await {
            Ok(resolved) => absent(self.manifest(resolved.digest).await),
            Err(error) if answered || error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Selects the artifacts of a type. Some registries list the type of the config instead, so manifests without a
    /// listed type are read.
    async fn of_type(&self, mut listed: Referrers, wanted: Option<&str>) -> Referrers {
        let Some(wanted) = wanted else {
            return listed;
        };
        let mut picked = Vec::new();
        for mut descriptor in std::mem::take(&mut listed.found) {
            match descriptor.artifact_type.as_deref() {
                Some(other) if other == wanted => picked.push(descriptor),
                None | Some(media_type::EMPTY) => {
                    let bytes = match absent(self.manifest(descriptor.digest).await) {
                        Ok(Some(bytes)) => bytes,
                        Ok(None) => continue,
                        Err(error) => {
                            listed.problem.get_or_insert(error);
                            continue;
                        }
                    };
                    let document: Belonging = parse_lenient(&bytes);
                    if document.artifact_type.as_deref() == Some(wanted) {
                        descriptor.artifact_type = document.artifact_type;
                        picked.push(descriptor);
                    }
                }
                Some(_) => {}
            }
        }
        listed.found = picked;
        listed
    }

    /// Writes a blob, unless it exists.
    pub async fn push_blob(
        &self,
        descriptor: &Descriptor,
        content: &Content,
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        match self.place() {
            Place::Registry(registry) => {
                if registry.has("blobs", descriptor.digest, Scope::Push).await? {
                    return Ok(());
                }
                registry.push_blob(descriptor, content, progress).await
            }
            Place::Layout { layout, .. } => layout.push_blob(descriptor, content, progress).await,
        }
    }

    /// Writes a manifest and sets the tag, if there is one. A manifest with a `subject` is found as its referrer afterwards.
    pub async fn push_manifest(
        &self,
        bytes: &Bytes,
        media_type: &str,
        tag: Option<&str>,
    ) -> Result<Descriptor, ArtifactError> {
        self.push_named(bytes, media_type, tag, None).await
    }

    /// The same. `image` is the name of the manifest in a registry, which a layout records beside the tag.
    pub(crate) async fn push_named(
        &self,
        bytes: &Bytes,
        media_type: &str,
        tag: Option<&str>,
        image: Option<String>,
    ) -> Result<Descriptor, ArtifactError> {
        match self.place() {
            Place::Registry(registry) => registry.push_manifest(bytes, media_type, tag).await,
            Place::Layout { layout, .. } => layout.push_manifest(bytes, media_type, tag, image).await,
        }
    }

    /// Attaches a file to a manifest, as its referrer.
    pub async fn attach(&self, subject: &Descriptor, attachment: &Attachment) -> Result<Descriptor, ArtifactError> {
        let config = Bytes::from_static(b"{}");
        let config_descriptor = Descriptor::of(media_type::EMPTY, &config);
        let mut layer = Descriptor::of(&attachment.media_type, &attachment.content);
        if let Some(title) = attachment.annotations.get(annotation::TITLE) {
            // oras writes the file under this name.
            layer.annotations.insert(annotation::TITLE.to_owned(), title.clone());
        }
        let manifest = serde_json::json!({
            "schemaVersion": 2,
            "mediaType": media_type::MANIFEST,
            "artifactType": attachment.artifact_type,
            "config": config_descriptor,
            "layers": [layer],
            "subject": Descriptor::new(&subject.media_type, subject.digest, subject.size),
            "annotations": attachment.annotations,
        });
        self.push_blob(&config_descriptor, &Content::Bytes(config), &Silent)
            .await?;
        self.push_blob(&layer, &Content::Bytes(attachment.content.clone()), &Silent)
            .await?;
        let bytes = Bytes::from(sorted(manifest).to_string());
        self.push_manifest(&bytes, media_type::MANIFEST, None).await
    }

    /// Writes an archive (`oci-archive:`) to its file; without this, all pushes to it are lost. Does nothing for
    /// registries and directories.
    pub async fn finish(&self) -> Result<(), ArtifactError> {
        match self.place() {
            Place::Registry(_) => Ok(()),
            Place::Layout { layout, .. } => layout.finish().await,
        }
    }
}

/// Converts the error for a missing tag to `None`.
fn absent_tag(resolved: Result<Resolved, ArtifactError>) -> Result<Option<Resolved>, ArtifactError> {
    match resolved {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        resolved => resolved.map(Some),
    }
}

/// Converts errors for a missing or invalid object to `None`; transient errors stay errors.
pub(crate) fn absent<T>(answer: Result<T, ArtifactError>) -> Result<Option<T>, ArtifactError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_transient() || matches!(error.kind(), ErrorKind::Io | ErrorKind::Unauthorized) => {
            Err(error)
        }
        Err(error) => {
            tracing::debug!(%error, "what is listed cannot be had");
            Ok(None)
        }
    }
}
