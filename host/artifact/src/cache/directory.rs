//! Guards the cache's directories and files: the directories belong to this user alone, and only files of this user are
//! read. The rules are those of the cache of compiled components.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{Mode, OFlags};
use tempfile::NamedTempFile;

use super::hold::lock_shared;
use crate::cache::error::CacheError;

/// The shortest interval at which a file's use is recorded: recording it is a write.
const NOTED: Duration = Duration::from_mins(10);

/// The prefix of unfinished files, which a killed process leaves behind.
pub(super) const TEMPORARY_PREFIX: &str = ".new-";

/// The directory, created if it does not exist; an error if others can write to it.
pub(super) fn checked(directory: &Path) -> Result<PathBuf, CacheError> {
    let make = |source| CacheError::Make {
        path: directory.to_owned(),
        source,
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    match made {
        // `create` fails with this error for a file in its place, too; the check below has a better message.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(make(error)),
        Ok(()) | Err(_) => {}
    }
    let directory = directory.canonicalize().map_err(make)?;
    let metadata = fs::metadata(&directory).map_err(make)?;
    own(&directory, &metadata)?;
    Ok(directory)
}

/// Checks a directory inside of the cache, and creates it if it does not exist. If it cannot be created, because the
/// disk is full or read-only, the cache is empty, and the error appears when something is to be stored.
pub(super) fn own_subdirectory(path: &Path) -> Result<(), CacheError> {
    let made = fs::DirBuilder::new().mode(0o700).create(path);
    // A link is not followed: it would lead out of the directory whose owner was checked.
    match fs::symlink_metadata(path) {
        Ok(metadata) => own(path, &metadata),
        Err(error) if made.is_err() => {
            tracing::warn!(path = %path.display(), %error, "the artifact cache cannot be written to");
            Ok(())
        }
        Err(source) => Err(CacheError::File {
            action: "read",
            path: path.to_owned(),
            source,
        }),
    }
}

fn own(path: &Path, metadata: &fs::Metadata) -> Result<(), CacheError> {
    let path = path.to_owned();
    if !metadata.is_dir() {
        return Err(CacheError::NotADirectory { path });
    }
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(CacheError::ForeignOwner { path, owner, user });
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(CacheError::WritableByOthers { path, mode });
    }
    Ok(())
}

/// Opens a file for reading, if a host has put it there: no other user owns it or may write to it, and it is neither a
/// link to another place nor endless, such as a pipe or a device.
pub(super) fn open_own(path: &Path) -> io::Result<File> {
    own_file(path, OFlags::RDONLY)
}

/// Opens a file for reading and writing by the same rules, and creates it if it does not exist.
pub(super) fn create_own(path: &Path) -> io::Result<File> {
    own_file(path, OFlags::RDWR | OFlags::CREATE)
}

fn own_file(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR)?);
    let metadata = file.metadata()?;
    let is_own = metadata.is_file()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.permissions().mode() & 0o022 == 0;
    if is_own {
        Ok(file)
    } else {
        Err(io::Error::from(io::ErrorKind::PermissionDenied))
    }
}

/// Creates a file that only this user can read and write, and that is removed unless it is put in place. It is held
/// from the beginning, whatever name it gets.
pub(super) fn temporary(directory: &Path) -> Result<NamedTempFile, CacheError> {
    let made = tempfile::Builder::new().prefix(TEMPORARY_PREFIX).tempfile_in(directory);
    let made = made.and_then(|file| lock_shared(file.as_file()).map(|()| file));
    made.map_err(|source| CacheError::File {
        action: "make a file in",
        path: directory.to_owned(),
        source,
    })
}

/// Records the use of a file in its modification time. At worst it is evicted too early.
pub(super) fn record_use(file: &File) {
    let now = SystemTime::now();
    let noted = file.metadata().and_then(|metadata| metadata.modified());
    if noted.is_ok_and(|noted| now.duration_since(noted).is_ok_and(|age| age < NOTED)) {
        return;
    }
    let _ = file.set_modified(now);
}

/// Makes a rename durable. A file system that cannot do so is no reason to fail: at worst the file is fetched again.
pub(super) fn sync(directory: &Path) {
    let _ = File::open(directory).and_then(|directory| directory.sync_all());
}
