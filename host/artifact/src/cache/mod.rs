//! Caches artifacts: blobs under their digest, and small records that an offline start needs.
//!
//! Four kinds of files, in a directory that only this user may write to:
//! - `blobs/sha256/HEX`: a whole blob. Put in place by one rename, and verified against its name on every read.
//! - `partial/HEX`: the beginning of a blob whose download was interrupted. One writer has it, by a lock on the file; another
//!   writer of the same blob, in this process or another, does not wait but downloads into a file of its own.
//! - `records/KIND/HEX`: a record under the digest of its key, beginning with the digest of the rest.
//! - `lock`: held by the process that evicts files.
//!
//! Files in use are held: a [`Hold`] has a shared lock on the file, which other processes see too, and no held file is
//! evicted. Everything here blocks; call it where blocking is allowed.
//!
//! A cache that cannot be written to, because its disk is full or read-only, still answers reads.

mod directory;
mod eviction;
mod hold;
mod record;

use crate::cache::error::CacheError;
pub mod error;
#[cfg(test)]
mod tests;
mod writer;

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use self::directory::{checked, open_own, own_subdirectory};
pub use self::hold::Hold;
pub use self::writer::CacheWriter;
use crate::content::digest::Digest;

/// The default limit of the cache in bytes: 1 GiB, which is some thousand plugins.
pub const DEFAULT_CACHE_BYTES: u64 = 1 << 30;

/// The number of bytes that are read at once.
const CHUNK: usize = 64 << 10;

/// A directory of blobs and records. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ArtifactCache {
    files: Arc<Files>,
}

/// The location and the limit of the cache.
#[derive(Debug)]
struct Files {
    root: PathBuf,
    limit: u64,
}

/// The usage of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUsage {
    /// Bytes of all blobs, partial downloads and records.
    pub bytes: u64,
    /// The limit of the bytes.
    pub limit: u64,
    /// Whole blobs.
    pub blobs: usize,
    /// Records.
    pub records: usize,
}

impl ArtifactCache {
    /// Opens the cache in a directory, which is created if it does not exist, and refused if others can write to it.
    /// `limit` is the limit of the cache in bytes.
    pub fn open(directory: &Path, limit: u64) -> Result<Self, CacheError> {
        let files = Files {
            root: checked(directory)?,
            limit,
        };
        for name in ["blobs", "blobs/sha256", "partial", "records"] {
            own_subdirectory(&files.root.join(name))?;
        }
        let cache = Self { files: Arc::new(files) };
        cache.files.sweep();
        Ok(cache)
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.files.root
    }

    /// Holds a blob, so that no process evicts it, or `None` if the cache does not have it. The whole blob is read and
    /// verified: a damaged one is removed, and counts as missing.
    pub fn hold(&self, digest: &Digest) -> Result<Option<Hold>, CacheError> {
        let path = self.files.blob(digest);
        let Some(file) = open_shared(&path)? else {
            return Ok(None);
        };
        let (actual, size) = digest_of(&file).map_err(|source| CacheError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        if actual != *digest {
            damaged(&path, &format!("it has the digest {actual}"));
            return Ok(None);
        }
        directory::record_use(&file);
        Ok(Some(Hold::new(file, path, *digest, size)))
    }

    /// The bytes of a blob, or `None` if the cache does not have it, or it is longer than `most` bytes.
    pub fn read(&self, digest: &Digest, most: u64) -> Result<Option<Vec<u8>>, CacheError> {
        match self.hold(digest)? {
            Some(hold) if hold.size() <= most => hold.read().map(Some),
            _ => Ok(None),
        }
    }

    /// At most this many bytes of a blob from an offset on, not verified, or `None` if the cache does not have the blob.
    pub fn part(&self, digest: &Digest, offset: u64, most: u64) -> Result<Option<Vec<u8>>, CacheError> {
        use std::os::unix::fs::FileExt as _;
        let path = self.files.blob(digest);
        let Some(file) = open_shared(&path)? else {
            return Ok(None);
        };
        let read = || -> io::Result<Vec<u8>> {
            let rest = file.metadata()?.len().saturating_sub(offset).min(most);
            let mut bytes = vec![0; usize::try_from(rest).unwrap_or_default()];
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        };
        read().map(Some).map_err(|source| CacheError::File {
            action: "read",
            path,
            source,
        })
    }

    /// The file of a component, verified just now. Hold the digest as long as the file is used.
    pub fn component_path(&self, digest: &Digest) -> Result<Option<PathBuf>, CacheError> {
        Ok(self.hold(digest)?.map(|hold| hold.path().to_owned()))
    }

    /// Stores a blob from memory, and holds it.
    pub fn put(&self, bytes: &[u8]) -> Result<Hold, CacheError> {
        let digest = Digest::of(bytes);
        if let Some(hold) = self.hold(&digest)? {
            return Ok(hold);
        }
        let mut writer = self.writer(digest, bytes.len() as u64)?;
        writer.restart()?;
        writer.write(bytes)?;
        writer.commit()
    }

    /// Begins to write a blob of this size, or continues where an earlier writer stopped: see
    /// [`CacheWriter::position`]. Makes room for it.
    pub fn writer(&self, expected: Digest, size: u64) -> Result<CacheWriter, CacheError> {
        CacheWriter::begin(self.clone(), expected, size)
    }

    /// The usage of the cache.
    pub fn usage(&self) -> CacheUsage {
        self.files.usage()
    }
}

impl Files {
    fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    fn records(&self) -> PathBuf {
        self.root.join("records")
    }
}

/// Opens a file with a shared lock, so that it is not evicted. `None` if it does not exist or is not ours.
fn open_shared(path: &Path) -> Result<Option<File>, CacheError> {
    let failed = |action, source| CacheError::File {
        action,
        path: path.to_owned(),
        source,
    };
    // If the file was removed or replaced between opening and locking, try again.
    for _ in 0..8 {
        let file = match open_own(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied || is_link(&error) => {
                damaged(path, "it is a link, or others own it or may write to it");
                return Ok(None);
            }
            Err(error) => return Err(failed("open", error)),
        };
        hold::lock_shared(&file).map_err(|source| failed("lock", source))?;
        if hold::is_at(&file, path) {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

/// Logs a file whose content is not what a host has put there, and removes it.
fn damaged(path: &Path, cause: &str) {
    let removed = std::fs::remove_file(path);
    tracing::warn!(
        path = %path.display(),
        cause,
        removed = removed.is_ok(),
        "a file of the artifact cache is damaged or was edited; it is fetched again when needed"
    );
}

fn is_link(error: &io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

/// The digest and the size of a file, from its beginning.
fn digest_of(file: &File) -> io::Result<(Digest, u64)> {
    use sha2::Digest as _;
    use std::os::unix::fs::FileExt as _;
    let (mut hasher, mut size, mut chunk) = (sha2::Sha256::new(), 0, vec![0; CHUNK]);
    loop {
        match file.read_at(&mut chunk, size)? {
            0 => return Ok((Digest::from_bytes(hasher.finalize().into()), size)),
            read => {
                hasher.update(&chunk[..read]);
                size += read as u64;
            }
        }
    }
}
