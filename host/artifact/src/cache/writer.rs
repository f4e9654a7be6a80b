//! Writes blobs: in pieces, into a partial file that a later writer can continue, and put in place only if size and
//! digest are the announced ones.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags};
use sha2::{Digest as _, Sha256};
use tempfile::TempPath;

use super::directory::{create_own, sync, temporary};
use super::hold::{self, Hold};
use super::{ArtifactCache, damaged, is_link};
use crate::cache::error::CacheError;
use crate::content::digest::Digest;

/// A blob that is being written. If it is dropped before [`CacheWriter::commit`], the written bytes stay for the next
/// writer, unless this writer had to use a file of its own because another one was active.
pub struct CacheWriter {
    cache: ArtifactCache,
    target: Target,
    file: File,
    hasher: Sha256,
    expected: Digest,
    size: u64,
    position: u64,
}

/// The file to which the bytes are written.
enum Target {
    /// The blob's partial file, locked.
    Partial(PathBuf),
    /// A file that is removed if it is not put in place.
    Own(TempPath),
}

impl CacheWriter {
    pub(super) fn begin(cache: ArtifactCache, expected: Digest, size: u64) -> Result<Self, CacheError> {
        let directory = cache.files.partial();
        let path = directory.join(expected.hex());
        let partial = match partial(&path, size) {
            Ok(partial) => partial,
            Err(source) => {
                return Err(CacheError::File {
                    action: "open",
                    path,
                    source,
                });
            }
        };
        let (target, file, hasher, position) = if let Some((file, hasher, position)) = partial {
            (Target::Partial(path), file, hasher, position)
        } else {
            let (file, path) = temporary(&directory)?.into_parts();
            (Target::Own(path), file, Sha256::new(), 0)
        };
        let writer = Self {
            cache,
            target,
            file,
            hasher,
            expected,
            size,
            position,
        };
        writer.cache.files.make_room(size - position)?;
        Ok(writer)
    }

    /// The number of bytes that exist already: the position at which a download continues.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Starts again, for a server that does not send a part of a blob.
    pub fn restart(&mut self) -> Result<(), CacheError> {
        if self.position == 0 {
            return Ok(());
        }
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .map_err(|source| self.failed("write", source))?;
        (self.hasher, self.position) = (Sha256::new(), 0);
        Ok(())
    }

    /// Writes the next bytes. More bytes than announced are an error, before they reach the disk.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), CacheError> {
        let written = self.position + bytes.len() as u64;
        if written > self.size {
            return Err(CacheError::Size {
                expected: self.expected,
                size: self.size,
                written,
            });
        }
        if let Err(source) = self.file.write_all(bytes) {
            // Bytes that were written before the disk was full are removed, so that the partial file can be continued.
            let _ = self
                .file
                .set_len(self.position)
                .and_then(|()| self.file.seek(SeekFrom::Start(self.position)));
            return Err(self.failed("write", source));
        }
        self.hasher.update(bytes);
        self.position = written;
        Ok(())
    }

    /// Puts the blob in place and holds it, if size and digest are as announced. Otherwise it is removed.
    pub fn commit(self) -> Result<Hold, CacheError> {
        if self.position != self.size {
            // A shorter one can be gone on with, so its file stays.
            return Err(CacheError::Size {
                expected: self.expected,
                size: self.size,
                written: self.position,
            });
        }
        let actual = Digest::from_bytes(self.hasher.clone().finalize().into());
        if actual != self.expected {
            let _ = std::fs::remove_file(self.path());
            return Err(CacheError::Digest {
                expected: self.expected,
                actual,
            });
        }
        self.file.sync_all().map_err(|source| self.failed("write", source))?;
        let path = self.cache.files.blob(&self.expected);
        // Until the file is held under its new name, no process may evict it.
        let _lock = self.cache.files.lock()?;
        // Another writer may have been faster. Holding removes a damaged file.
        if let Some(hold) = self.cache.hold(&self.expected)? {
            let _ = std::fs::remove_file(self.path());
            return Ok(hold);
        }
        match rename_new(self.path(), &path) {
            Ok(()) => self.held(path),
            Err(source) => Err(CacheError::File {
                action: "put in place",
                path,
                source,
            }),
        }
    }

    /// Holds the blob that was just put in place.
    fn held(self, path: PathBuf) -> Result<Hold, CacheError> {
        let Self {
            target,
            file,
            expected,
            size,
            ..
        } = self;
        if let Target::Own(own) = target {
            // It has another name now.
            let _ = own.keep();
        }
        let failed = |source| CacheError::File {
            action: "lock",
            path: path.clone(),
            source,
        };
        hold::lock_shared(&file).map_err(failed)?;
        if !hold::is_at(&file, &path) {
            return Err(failed(io::Error::from(io::ErrorKind::NotFound)));
        }
        if let Some(directory) = path.parent() {
            sync(directory);
        }
        Ok(Hold::new(file, path, expected, size))
    }

    fn path(&self) -> &Path {
        match &self.target {
            Target::Partial(path) => path,
            Target::Own(path) => path,
        }
    }

    fn failed(&self, action: &'static str, source: io::Error) -> CacheError {
        CacheError::File {
            action,
            path: self.path().to_owned(),
            source,
        }
    }
}

/// Opens and locks the partial file of a blob, and reads its content; `None` if another writer has it.
fn partial(path: &Path, size: u64) -> io::Result<Option<(File, Sha256, u64)>> {
    let file = match create_own(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied || is_link(&error) => {
            damaged(path, "it is a link, or others own it or may write to it");
            create_own(path)?
        }
        opened => opened?,
    };
    // The file may have been put in place by its writer since it was opened.
    if !hold::try_lock_alone(&file)? || !hold::is_at(&file, path) {
        return Ok(None);
    }
    if file.metadata()?.len() > size {
        file.set_len(0)?;
    }
    let mut hasher = Sha256::new();
    let mut reader = &file;
    let position = io::copy(&mut reader, &mut hasher)?;
    Ok(Some((file, hasher, position)))
}

/// Renames a file to an unused name, so that no held file is replaced.
fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    use rustix::io::Errno;
    match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some network file systems cannot; then a file that is held may be replaced by an equal one.
        Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => std::fs::rename(from, to),
        result => Ok(result?),
    }
}

#[cfg(test)]
impl CacheWriter {
    /// Makes the writer write to another file.
    pub(super) fn redirected(mut self, file: File) -> Self {
        self.file = file;
        self
    }
}
