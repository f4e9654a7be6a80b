//! Holds: shared locks on files of the cache, which keep every process from evicting them.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::cache::error::CacheError;
use crate::content::digest::Digest;

/// A file of the cache that is in use: no process evicts it until the hold is dropped.
///
/// A hold is on the file, not on the name: if the file is damaged and fetched again, the new file needs a hold of its
/// own, which its writer returns.
#[derive(Debug)]
pub struct Hold {
    file: File,
    path: PathBuf,
    digest: Digest,
    size: u64,
}

impl Hold {
    pub(super) fn new(file: File, path: PathBuf, digest: Digest, size: u64) -> Self {
        Self {
            file,
            path,
            digest,
            size,
        }
    }

    /// The file. It was verified when the hold was made. A later reader that cannot trust that only this user writes to
    /// it must verify it again.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The digest of the held blob, or of the held record's content.
    pub fn digest(&self) -> &Digest {
        &self.digest
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The bytes, verified once more.
    pub fn read(&self) -> Result<Vec<u8>, CacheError> {
        let failed = |source| CacheError::File {
            action: "read",
            path: self.path.clone(),
            source,
        };
        let size = usize::try_from(self.size).map_err(|_| failed(io::Error::from(io::ErrorKind::FileTooLarge)))?;
        let mut bytes = vec![0; size];
        self.file.read_exact_at(&mut bytes, 0).map_err(failed)?;
        match Digest::of(&bytes) {
            actual if actual == self.digest => Ok(bytes),
            actual => Err(CacheError::Digest {
                expected: self.digest,
                actual,
            }),
        }
    }
}

/// Waits for a shared lock. Only an eviction of the file can delay it, and only briefly.
pub(super) fn lock_shared(file: &File) -> io::Result<()> {
    retried(|| rustix::fs::flock(file, FlockOperation::LockShared))
}

/// Tries to lock a file exclusively; `false` if it is in use.
pub(super) fn try_lock_alone(file: &File) -> io::Result<bool> {
    match retried(|| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive)) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(error),
    }
}

/// Waits to lock a file exclusively.
pub(super) fn lock_alone(file: &File) -> io::Result<()> {
    retried(|| rustix::fs::flock(file, FlockOperation::LockExclusive))
}

/// Reports whether the file still has this name.
pub(super) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    let there = std::fs::symlink_metadata(path).map(identity);
    file.metadata()
        .map(identity)
        .is_ok_and(|own| there.is_ok_and(|there| own == there))
}

fn retried(mut lock: impl FnMut() -> rustix::io::Result<()>) -> io::Result<()> {
    loop {
        match lock() {
            Err(rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}
