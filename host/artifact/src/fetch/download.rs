//! The state of one blob's download: its position and its digest so far. It outlives connections, so a download that
//! fails at a mirror continues at the registry.

use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::{ArtifactError, Descriptor, Digest, ErrorKind, Progress};

/// A blob that is being downloaded.
pub(crate) struct Download {
    digest: Digest,
    size: u64,
    received: u64,
    hasher: Sha256,
}

impl Download {
    pub(crate) fn new(descriptor: &Descriptor) -> Self {
        Self {
            digest: descriptor.digest,
            size: descriptor.size,
            received: 0,
            hasher: Sha256::new(),
        }
    }

    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Writes the next bytes, unless they are more than was declared.
    pub(crate) async fn write(
        &mut self,
        bytes: &[u8],
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
        what: &str,
    ) -> Result<(), ArtifactError> {
        let length = bytes.len() as u64;
        if length > self.size - self.received {
            return Err(self.too_much(what));
        }
        sink.write_all(bytes).await.map_err(|error| sink_failed(what, &error))?;
        self.hasher.update(bytes);
        self.received += length;
        progress.advanced(length);
        Ok(())
    }

    /// Checks the digest of the written bytes.
    pub(crate) fn finish(&self, what: &str, from: &str) -> Result<(), ArtifactError> {
        let found = Digest::from_bytes(self.hasher.clone().finalize().into());
        if found == self.digest {
            return Ok(());
        }
        let cause = format!("{from} answered with other bytes, which have the digest {found}; do not use this source");
        Err(ArtifactError::new(
            ErrorKind::DigestMismatch,
            format!("{what}: {cause}"),
        ))
    }

    pub(crate) fn too_much(&self, what: &str) -> ArtifactError {
        let cause = format!(
            "it is larger than the {} bytes that the manifest declares; do not use this source",
            self.size
        );
        ArtifactError::new(ErrorKind::TooLarge, format!("{what}: {cause}"))
    }
}

/// The error for downloaded bytes that cannot be written.
pub(crate) fn sink_failed(what: &str, error: &std::io::Error) -> ArtifactError {
    let cause = match error.kind() {
        std::io::ErrorKind::StorageFull => "the file system is full; free some space".to_owned(),
        _ => format!("what was downloaded cannot be written: {error}"),
    };
    ArtifactError::new(ErrorKind::Io, format!("{what}: {cause}"))
}
