//! Owns the one face of all places where artifacts are: an [`ArtifactStore`] is a registry's repository (with its mirrors)
//! or an OCI layout, and what can be done with it is the same.

use bytes::Bytes;
use tokio::io::AsyncWrite;

use crate::{ArtifactError, Descriptor, Digest, Location, Progress, SignatureMaterial, Target};

/// A place of artifacts, opened by [`crate::Client::open`].
pub struct ArtifactStore {
    pub(crate) location: Location,
}

/// What a tag or digest stands for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// The manifest's digest.
    pub digest: Digest,
    /// The manifest's size in bytes.
    pub size: u64,
    /// The manifest's media type.
    pub media_type: String,
}

/// The bytes of a blob to push.
#[derive(Clone, Debug)]
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// In a file, read as it is sent.
    File(std::path::PathBuf),
}

impl ArtifactStore {
    /// Where it is.
    pub fn location(&self) -> &Location {
        &self.location
    }

    /// Finds the manifest that a tag or digest stands for. A tag may be moved at any time: everything after this asks for
    /// the digest.
    pub async fn resolve(&self, target: &Target) -> Result<Resolved, ArtifactError> {
        unimplemented!("{target}")
    }

    /// All tags, in no particular order.
    pub async fn tags(&self) -> Result<Vec<String>, ArtifactError> {
        unimplemented!()
    }

    /// A manifest's bytes, at most [`crate::limits::MANIFEST_LIMIT`], of this digest.
    pub async fn manifest(&self, digest: Digest) -> Result<Bytes, ArtifactError> {
        unimplemented!("{digest}")
    }

    /// Writes a blob into a sink. Size and digest are those of the descriptor, or it fails; then the sink may have been
    /// written in part and must be thrown away.
    pub async fn blob(
        &self,
        descriptor: &Descriptor,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        let _ = (descriptor, sink, progress);
        unimplemented!()
    }

    /// The manifests that name this one as their subject, with the referrers API and the fallback tag, at most
    /// [`crate::Limits::referrers`]. With a type, only artifacts of that type.
    pub async fn referrers(
        &self,
        digest: Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, ArtifactError> {
        let _ = (digest, artifact_type);
        unimplemented!()
    }

    /// The signatures of a manifest: cosign's bundles and its older tag scheme. Nothing in them has been verified.
    pub async fn signatures(&self, digest: Digest) -> Result<Vec<SignatureMaterial>, ArtifactError> {
        unimplemented!("{digest}")
    }

    /// Writes a blob, unless it is there.
    pub async fn push_blob(
        &self,
        descriptor: &Descriptor,
        content: &Content,
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        let _ = (descriptor, content, progress);
        unimplemented!()
    }

    /// Writes a manifest and sets the tag, if there is one. A manifest with a `subject` is found as its referrer afterwards.
    pub async fn push_manifest(
        &self,
        bytes: &[u8],
        media_type: &str,
        tag: Option<&str>,
    ) -> Result<Descriptor, ArtifactError> {
        let _ = (bytes, media_type, tag);
        unimplemented!()
    }

    /// Attaches a file to a manifest, as its referrer.
    pub async fn attach(&self, subject: &Descriptor, attachment: &Attachment) -> Result<Descriptor, ArtifactError> {
        let _ = (subject, attachment);
        unimplemented!()
    }

    /// Writes an archive (`oci-archive:`) to its file; without this, nothing of what was pushed stays. For registries and
    /// directories there is nothing to do.
    pub async fn finish(&self) -> Result<(), ArtifactError> {
        unimplemented!()
    }
}

/// A file that belongs to an artifact: its CRDs, README or SBOM.
#[derive(Clone, Debug)]
pub struct Attachment {
    /// What it is to the artifact.
    pub artifact_type: String,
    /// The media type of the file.
    pub media_type: String,
    /// The file.
    pub content: Bytes,
    /// Annotations of the attachment's manifest.
    pub annotations: std::collections::BTreeMap<String, String>,
}
