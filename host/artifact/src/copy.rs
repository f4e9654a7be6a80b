//! Copies artifacts between registries and OCI layouts, with their referrers and signatures.

use std::collections::BTreeSet;

use bytes::Bytes;

use crate::content::blob::Content;
use crate::layout::media_type_of;
use crate::registry::session::Scope;
use crate::store::{Place, absent};
use crate::trust::discovery::Parts;
use crate::{ArtifactError, ArtifactStore, Descriptor, Digest, ErrorKind, Progress, Silent};

/// The highest number of manifests in one copy.
const MANIFESTS: usize = 1000;
/// The depth to which referrers of referrers, and indexes in indexes, are followed.
const DEPTH: usize = 8;
/// The largest blob that is copied in memory, in bytes; others go through a temporary file.
const IN_MEMORY: u64 = 1 << 20;
/// The tag suffixes that cosign used before version 3.
const OLDER: [&str; 3] = ["sig", "att", "sbom"];

/// The result of a copy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Manifests that were written, the artifact's own among them.
    pub manifests: usize,
    /// Manifests attached to the artifact: signatures, SBOM and other files.
    pub referrers: usize,
    /// Blobs that were written.
    pub blobs: usize,
    /// Blobs that existed already.
    pub skipped: usize,
    /// Bytes of the blobs that were written.
    pub bytes: u64,
}

struct Copy<'a> {
    from: &'a ArtifactStore,
    to: &'a ArtifactStore,
    progress: &'a dyn Progress,
    seen: BTreeSet<Digest>,
    copied: Copied,
}

/// A manifest to copy.
struct Step {
    bytes: Bytes,
    tag: Option<String>,
    depth: usize,
    /// Set if its blobs and its own manifests are copied already.
    ready: bool,
}

/// Copies a manifest with its blobs, its referrers and theirs, and cosign's older tags for signatures, attestations and
/// SBOMs. The tag is set only after everything attached to the manifest is copied. The caller calls
/// [`ArtifactStore::finish`], so that one archive can take several copies.
pub async fn copy(
    from: &ArtifactStore,
    to: &ArtifactStore,
    digest: Digest,
    tag: Option<&str>,
    progress: &dyn Progress,
) -> Result<Copied, ArtifactError> {
    let mut copy = Copy {
        from,
        to,
        progress,
        seen: BTreeSet::new(),
        copied: Copied::default(),
    };
    let bytes = from.manifest(digest).await?;
    copy.run(bytes.clone(), None, 0).await?;
    if let Some(tag) = tag {
        // A layout records the origin of its artifacts, also over several copies, so that it can be a mirror.
        let origin = match from.place() {
            Place::Registry(registry) => Some(registry.name().to_owned()),
            Place::Layout { layout, .. } => layout.origin(digest).await?,
        };
        let image = origin.map(|name| format!("{name}:{tag}"));
        to.push_named(&bytes, &media_type_of(&bytes), Some(tag), image).await?;
    }
    Ok(copy.copied)
}

impl Copy<'_> {
    /// Copies depth first, without recursion: a manifest's own parts before it, and its referrers after it.
    async fn run(&mut self, bytes: Bytes, tag: Option<String>, depth: usize) -> Result<(), ArtifactError> {
        let mut steps = vec![Step {
            bytes,
            tag,
            depth,
            ready: false,
        }];
        while let Some(step) = steps.pop() {
            let digest = Digest::of(&step.bytes);
            if !step.ready {
                if !self.seen.insert(digest) && step.tag.is_none() {
                    continue;
                }
                if self.seen.len() > MANIFESTS || step.depth > DEPTH {
                    let problem =
                        format!("more than {MANIFESTS} manifests belong to it, or in more than {DEPTH} steps");
                    let message = format!("cannot copy {}@{digest}: {problem}", self.from.name());
                    return Err(ArtifactError::new(ErrorKind::TooLarge, message));
                }
                let parts = Parts::read(&format!("{}@{digest}", self.from.name()), &step.bytes)?;
                for blob in &parts.blobs {
                    self.blob(blob).await?;
                }
                let depth = step.depth + 1;
                steps.push(Step { ready: true, ..step });
                for part in parts.manifests {
                    let bytes = self.from.manifest(part.digest).await?;
                    steps.push(Step {
                        bytes,
                        tag: None,
                        depth,
                        ready: false,
                    });
                }
                continue;
            }
            self.to
                .push_manifest(&step.bytes, &media_type_of(&step.bytes), step.tag.as_deref())
                .await?;
            self.copied.manifests += 1;
            let belonging = self.belonging(digest, step.depth + 1).await?;
            self.copied.referrers += belonging.len();
            steps.extend(belonging);
        }
        Ok(())
    }

    async fn belonging(&self, digest: Digest, depth: usize) -> Result<Vec<Step>, ArtifactError> {
        let mut steps = Vec::new();
        for referrer in self.from.referrers(digest, None).await? {
            // A listed manifest that is missing or damaged is no referrer.
            if self.seen.contains(&referrer.digest) {
                continue;
            }
            if let Some(bytes) = absent(self.from.manifest(referrer.digest).await)? {
                steps.push(Step {
                    bytes,
                    tag: None,
                    depth,
                    ready: false,
                });
            }
        }
        for suffix in OLDER {
            let found = match self.from.belonging(digest, suffix).await {
                // JFrog answers so where there is no such tag (https://github.com/sigstore/cosign/issues/2973).
                Err(error) if error.kind() == ErrorKind::Forbidden => {
                    tracing::warn!(%error, "taking a tag that may not be read for absent");
                    None
                }
                found => found?,
            };
            if let Some(bytes) = found
                && !self.seen.contains(&Digest::of(&bytes))
            {
                steps.push(Step {
                    bytes,
                    tag: Some(format!("sha256-{}.{suffix}", digest.hex())),
                    depth,
                    ready: false,
                });
            }
        }
        Ok(steps)
    }

    async fn blob(&mut self, blob: &Descriptor) -> Result<(), ArtifactError> {
        let there = match self.to.place() {
            Place::Registry(registry) => registry.has("blobs", blob.digest, Scope::Push).await?,
            Place::Layout { layout, .. } => layout.holds(blob).await?,
        };
        if there {
            self.copied.skipped += 1;
            return Ok(());
        }
        if let (Place::Registry(from), Place::Registry(to)) = (self.from.place(), self.to.place())
            && from.host() == to.host()
            && to.mount(blob.digest, from).await
        {
            self.copied.skipped += 1;
            return Ok(());
        }
        // Everything is checked before anything of it is written.
        if blob.size <= IN_MEMORY {
            let bytes = self.from.small_blob(blob, IN_MEMORY).await?;
            self.to.push_blob(blob, &Content::Bytes(bytes), &Silent).await?;
        } else {
            let failed = |error: std::io::Error| ArtifactError::io("write in", &std::env::temp_dir(), &error);
            let file = tempfile::NamedTempFile::new().map_err(failed)?;
            let mut sink = tokio::fs::File::from_std(file.reopen().map_err(failed)?);
            self.from.blob(blob, &mut sink, self.progress).await?;
            drop(sink);
            self.to
                .push_blob(blob, &Content::File(file.path().to_owned()), &Silent)
                .await?;
        }
        self.copied.blobs += 1;
        self.copied.bytes += blob.size;
        Ok(())
    }
}
