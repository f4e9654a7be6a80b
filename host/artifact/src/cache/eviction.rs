//! Keeps the cache within its limit: evicts the least recently used files first, and none that is held.

use std::fs::{self, DirEntry, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::directory::{TEMPORARY_PREFIX, create_own, open_own};
use super::{CacheUsage, Files, hold};
use crate::cache::error::CacheError;

/// The time after which an abandoned partial download is removed.
const ABANDONED: Duration = Duration::from_hours(7 * 24);

/// The time after which unfinished files that cannot be continued are removed.
const LEFT: Duration = Duration::from_hours(24);

/// A file of the cache.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

impl Entry {
    fn is_temporary(&self) -> bool {
        let name = self.path.file_name();
        name.is_some_and(|name| name.to_string_lossy().starts_with(TEMPORARY_PREFIX))
    }
}

impl Files {
    /// Evicts files until `needed` more bytes fit. One process does so at a time.
    pub fn make_room(&self, needed: u64) -> Result<(), CacheError> {
        let taken = self.entries().iter().map(|entry| entry.bytes).sum::<u64>();
        if taken.saturating_add(needed) <= self.limit {
            return Ok(());
        }
        let _lock = self.lock()?;
        // Looked at again, because another process may have made room meanwhile.
        let mut entries = self.entries();
        entries.sort_by(|a, b| (a.used, &a.path).cmp(&(b.used, &b.path)));
        let mut taken = entries.iter().map(|entry| entry.bytes).sum::<u64>();
        for entry in entries {
            if taken.saturating_add(needed) <= self.limit {
                return Ok(());
            }
            // One that was just made may not be locked yet.
            if !entry.is_temporary() && remove_unused(&entry.path) {
                tracing::debug!(path = %entry.path.display(), bytes = entry.bytes, "removed from the artifact cache");
                taken = taken.saturating_sub(entry.bytes);
            }
        }
        if taken.saturating_add(needed) <= self.limit {
            return Ok(());
        }
        Err(CacheError::Full {
            path: self.root.clone(),
            needed,
            used: taken,
            limit: self.limit,
        })
    }

    /// Waits until no other process evicts files, and prevents eviction until the lock is dropped.
    pub fn lock(&self) -> Result<File, CacheError> {
        let path = self.root.join("lock");
        let lock = create_own(&path).and_then(|lock| hold::lock_alone(&lock).map(|()| lock));
        lock.map_err(|source| CacheError::File {
            action: "lock",
            path,
            source,
        })
    }

    pub fn usage(&self) -> CacheUsage {
        let (blobs, partial, records) = (self.blobs(), self.partials(), self.record_files());
        let bytes = |entries: &[Entry]| entries.iter().map(|entry| entry.bytes).sum::<u64>();
        CacheUsage {
            bytes: bytes(&blobs) + bytes(&partial) + bytes(&records),
            limit: self.limit,
            blobs: blobs.len(),
            records: records.len(),
        }
    }

    /// Removes files left by killed processes. Those that cannot be removed now remain for the next time.
    pub fn sweep(&self) {
        let now = SystemTime::now();
        for entry in self.entries() {
            let most = match entry.path.parent() {
                _ if entry.is_temporary() => LEFT,
                Some(parent) if parent == self.partial() => ABANDONED,
                _ => continue,
            };
            if now.duration_since(entry.used).is_ok_and(|age| age > most) {
                remove_unused(&entry.path);
            }
        }
    }

    fn entries(&self) -> Vec<Entry> {
        let mut entries = self.blobs();
        entries.extend(self.partials());
        entries.extend(self.record_files());
        entries
    }

    fn blobs(&self) -> Vec<Entry> {
        files(&self.root.join("blobs/sha256"))
    }

    fn partials(&self) -> Vec<Entry> {
        files(&self.partial())
    }

    fn record_files(&self) -> Vec<Entry> {
        let kinds = fs::read_dir(self.records()).into_iter().flatten().flatten();
        let is_directory = |kind: &DirEntry| kind.file_type().is_ok_and(|kind| kind.is_dir());
        kinds
            .filter(is_directory)
            .flat_map(|kind| files(&kind.path()))
            .collect()
    }
}

/// The files of a directory; none if it cannot be read.
fn files(directory: &Path) -> Vec<Entry> {
    let entry = |entry: DirEntry| {
        // Links are not followed.
        let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
        let used = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        Some(Entry {
            path: entry.path(),
            bytes: metadata.len(),
            used,
        })
    };
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(entry)
        .collect()
}

/// Removes a file unless it is in use. Returns whether it is gone.
fn remove_unused(path: &Path) -> bool {
    match open_own(path) {
        // The lock is held until after the removal, so that no reader opens the file in between.
        Ok(file) if matches!(hold::try_lock_alone(&file), Ok(true)) && hold::is_at(&file, path) => {
            fs::remove_file(path).is_ok()
        }
        Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        Ok(_) => false,
    }
}
