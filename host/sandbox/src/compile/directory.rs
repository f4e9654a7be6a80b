//! Finds, checks and replaces the files of the directory of compiled components, and checks who may write to it.
//!
//! Three kinds of files, each put in place by one rename, so that several processes can share the directory:
//! `COMPONENT.wasm` is the component, `CODE.cwasm` is compiled code under the digest of its own bytes, and
//! `COMPONENT-WASMTIME-SETTINGS-TARGET.index` holds the digest of the code that was compiled from a component, and the
//! contract version that the component speaks, so that the component need not be inspected again.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pilothouse_core::plugin::contract::VERSIONS;
use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use tempfile::NamedTempFile;

use crate::compile::cache::{CacheError, Code, DIGEST_LENGTH, digest_of};
use crate::engine::{SETTINGS_VERSION, WASMTIME_VERSION};

/// Age after which an unused file is removed when a sandbox is made.
const UNUSED: Duration = Duration::from_hours(30 * 24);

/// Shortest interval between two records of a file's use: recording it means a write.
const NOTED: Duration = Duration::from_hours(1);

/// Age after which a file that a process has left half-written is removed.
const HALF_WRITTEN: Duration = Duration::from_hours(24);

/// Prefix of temporary files; a process that was killed leaves them half-written.
const TEMPORARY_PREFIX: &str = ".new-";

/// The longest index that is read: a digest and a version.
const INDEX_LENGTH: u64 = 256;

/// A directory that exists and has been checked.
#[derive(Clone, Copy)]
pub(crate) struct Directory<'a>(pub(crate) &'a Path);

impl Directory<'_> {
    /// Records that the files of a component are in use, so that they are not swept.
    fn record_use(self, digest: &str, code: &Path, now: SystemTime) {
        for path in [&*self.component(digest), &*self.index(digest), code] {
            let record = || {
                let file = open_own(path)?;
                if now
                    .duration_since(file.metadata()?.modified()?)
                    .is_ok_and(|age| age > NOTED)
                {
                    file.set_modified(now)?;
                }
                io::Result::Ok(())
            };
            // At worst the component is compiled again after it was swept.
            let _ = record();
        }
    }

    pub(crate) fn find(self, digest: &str) -> Option<Code> {
        let used = open_used(&self.index(digest))?;
        let mut index = String::new();
        used.take(INDEX_LENGTH).read_to_string(&mut index).ok()?;
        let (code, version) = index.strip_suffix('\n')?.split_once(' ')?;
        let version = VERSIONS.iter().find(|known| **known == version)?;
        if code.len() != DIGEST_LENGTH || !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let path = self.code(code);
        let file = open_own(&path).ok()?;
        self.record_use(digest, &path, SystemTime::now());
        // Read after the record of use, which changes the file's times.
        let metadata = file.metadata().ok()?;
        if digest_of(file).ok()?.0 != code {
            return None;
        }
        let used = open_used(&self.index(digest));
        Some(Code::on_disk(path, &metadata, version, false, used))
    }

    /// Stores a component and its code.
    pub(crate) fn keep(
        self,
        digest: &str,
        version: &'static str,
        component: &[u8],
        code: &mut File,
    ) -> Result<Code, CacheError> {
        let file = |action, path: &Path, source| CacheError::File {
            action,
            path: path.to_owned(),
            source,
        };
        let compiled = digest_of(&*code).and_then(|(digest, _)| code.rewind().map(|()| digest));
        let compiled = compiled.map_err(|source| file("read the code for", self.0, source))?;
        let path = self.code(&compiled);
        self.put(&self.component(digest), component)?;
        self.put(&path, &mut *code)?;
        self.put(&self.index(digest), format!("{compiled} {version}\n").as_bytes())?;
        let metadata = fs::metadata(&path).map_err(|source| file("read", &path, source))?;
        let used = open_used(&self.index(digest));
        Ok(Code::on_disk(path, &metadata, version, true, used))
    }

    /// Removes the least recently used files until the rest has at most `most` bytes. Files that a process uses stay.
    pub(crate) fn shrink(self, most: u64) {
        let mut files: Vec<(SystemTime, String, u64)> = Vec::new();
        for entry in fs::read_dir(self.0).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let is_ours = matches!(name.rsplit_once('.'), Some((_, "wasm" | "cwasm" | "index")));
            if let Some(metadata) = entry.metadata().ok().filter(|_| is_ours) {
                files.push((
                    metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH),
                    name,
                    metadata.len(),
                ));
            }
        }
        let mut bytes: u64 = files.iter().map(|(.., bytes)| bytes).sum();
        if bytes <= most {
            return;
        }
        files.sort();
        let sizes: HashMap<&str, u64> = files.iter().map(|(_, name, bytes)| (name.as_str(), *bytes)).collect();
        let mut kept: HashSet<String> = HashSet::new();
        let mut remove = |name: &str| {
            if fs::remove_file(self.0.join(name)).is_ok() {
                bytes -= sizes.get(name).copied().unwrap_or_default();
            }
            bytes <= most
        };
        let is_index = |name: &str| matches!(name.rsplit_once('.'), Some((_, "index")));
        let indices = files.iter().filter(|(_, name, _)| is_index(name));
        for (_, index, _) in indices {
            let code = fs::read_to_string(self.0.join(index)).unwrap_or_default();
            let code = code.split(' ').next().unwrap_or_default();
            let component = index.split('-').next().unwrap_or_default();
            let parts = [format!("{code}.cwasm"), format!("{component}.wasm")];
            // No process uses the file while this lock is held, and none can begin to.
            let Some(_alone) = open_alone(&self.0.join(index)) else {
                kept.extend(parts);
                continue;
            };
            let _ = remove(index);
            if parts
                .iter()
                .map(|part| remove(part))
                .fold(false, |_, is_enough| is_enough)
            {
                return;
            }
        }
        // Files that no index names any more, such as code that was compiled for another version.
        for (_, name, _) in files.iter().filter(|(_, name, _)| !is_index(name)) {
            if !kept.contains(name) && sizes.contains_key(name.as_str()) && remove(name) {
                return;
            }
        }
    }

    /// Writes a whole file under another name, then renames it.
    fn put(self, path: &Path, mut content: impl Read) -> Result<(), CacheError> {
        let file = |action, source| CacheError::File {
            action,
            path: path.to_owned(),
            source,
        };
        let mut temporary = self.temporary()?;
        io::copy(&mut content, &mut temporary).map_err(|source| file("write", source))?;
        temporary.flush().map_err(|source| file("write", source))?;
        temporary.as_file().sync_all().map_err(|source| file("write", source))?;
        temporary
            .persist(path)
            .map_err(|error| file("put in place", error.error))?;
        Ok(())
    }

    /// Returns a temporary file that only this user can read and write, removed unless it is put in place.
    fn temporary(self) -> Result<NamedTempFile, CacheError> {
        tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempfile_in(self.0)
            .map_err(|source| CacheError::File {
                action: "make a file in",
                path: self.0.to_owned(),
                source,
            })
    }

    pub(crate) fn component(self, digest: &str) -> PathBuf {
        self.0.join(format!("{digest}.wasm"))
    }

    fn code(self, code: &str) -> PathBuf {
        self.0.join(format!("{code}.cwasm"))
    }

    pub(crate) fn index(self, digest: &str) -> PathBuf {
        let (architecture, system) = (std::env::consts::ARCH, std::env::consts::OS);
        self.0.join(format!(
            "{digest}-{WASMTIME_VERSION}-{SETTINGS_VERSION}-{architecture}-{system}.index"
        ))
    }
}

/// Checks the directory, making it if it is missing; an error if others can write to it.
pub(crate) fn checked(directory: &Path) -> Result<PathBuf, CacheError> {
    let make = |source| CacheError::Make {
        path: directory.to_owned(),
        source,
    };
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory);
    match made {
        // Also returned if a file is in its place; the check below has the better message.
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(make(error)),
        Ok(()) | Err(_) => {}
    }
    let directory = directory.canonicalize().map_err(make)?;
    let metadata = fs::metadata(&directory).map_err(make)?;
    if !metadata.is_dir() {
        return Err(CacheError::NotADirectory { path: directory });
    }
    let (owner, user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != user {
        return Err(CacheError::ForeignOwner {
            path: directory,
            owner,
            user,
        });
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        return Err(CacheError::WritableByOthers { path: directory, mode });
    }
    Ok(directory)
}

/// Opens a file of the cache, if a host has put it there: no other user owns it or may write to it, and it is neither a
/// symbolic link nor an endless file such as a pipe or a device.
pub(crate) fn open_own(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
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

/// Opens a file with a shared lock, held until the result is dropped; none if it is being removed.
fn open_used(path: &Path) -> Option<File> {
    let file = open_own(path).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => None,
        // Some file systems have no locks; a file that cannot be locked is never removed either.
        _ => Some(file),
    }
}

/// Opens a file that nobody uses; none if it is in use.
fn open_alone(path: &Path) -> Option<File> {
    let file = open_own(path).ok()?;
    flock(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(file)
}

/// Removes files that were unused for long. A file that cannot be removed is left for the next sweep.
pub(crate) fn sweep(directory: &Path, now: SystemTime) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let most = match name.rsplit_once('.') {
            _ if name.starts_with(TEMPORARY_PREFIX) => HALF_WRITTEN,
            Some((_, "wasm" | "cwasm" | "index")) => UNUSED,
            _ => continue,
        };
        let used = entry.metadata().and_then(|metadata| metadata.modified());
        if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > most)) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::cache::{CodeCache, digest};

    fn age(path: &Path, age: Duration) {
        File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn what_was_not_used_for_long_is_swept_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        CodeCache::open(directory.path()).unwrap();
        let old = ["a.wasm", "b.cwasm", "c.index", ".new-d"];
        let kept = ["e.wasm", "notes.txt", "f"];
        for name in old.iter().chain(&kept) {
            fs::write(directory.path().join(name), "x").unwrap();
            age(&directory.path().join(name), UNUSED * 2);
        }
        age(&directory.path().join("e.wasm"), UNUSED / 2);
        CodeCache::open(directory.path()).unwrap();
        assert_eq!(old.map(|name| directory.path().join(name).exists()), [false; 4]);
        assert_eq!(kept.map(|name| directory.path().join(name).exists()), [true; 3]);
    }

    #[test]
    fn what_is_used_is_not_swept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(directory.path()).unwrap();
        let files = Directory(directory.path());
        let (component, code) = (digest(b"component"), digest(b"code"));
        let files = [files.component(&component), files.code(&code), files.index(&component)];
        for (path, bytes) in files
            .iter()
            .zip(["component", "code", &format!("{code} {}\n", VERSIONS[0])])
        {
            fs::write(path, bytes).unwrap();
            age(path, UNUSED * 2);
        }
        assert!(cache.find(&component).is_some_and(|code| code.is_unchanged()));
        CodeCache::open(directory.path()).unwrap();
        assert_eq!(files.map(|path| path.exists()), [true; 3]);
    }

    #[test]
    fn the_least_recently_used_files_are_removed_first() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(directory.path()).unwrap();
        let files = Directory(directory.path());
        // Twenty versions of a component, each of 2 KB and an index; the first runs.
        let names: Vec<_> = (0..20_u8)
            .map(|number| (digest(&[number; 1000]), digest(&[!number; 1000])))
            .collect();
        for ((component, code), number) in names.iter().zip(0_u8..) {
            fs::write(files.component(component), [number; 1000]).unwrap();
            fs::write(files.code(code), [!number; 1000]).unwrap();
            fs::write(files.index(component), format!("{code} {}\n", VERSIONS[0])).unwrap();
            for path in [files.component(component), files.code(code), files.index(component)] {
                age(&path, Duration::from_secs(100 - u64::from(number)));
            }
        }
        let running = cache.find(&names[0].0);
        let orphan = digest(b"orphan");
        fs::write(files.code(&orphan), [0; 1000]).unwrap();
        files.shrink(1 << 20);
        assert!(files.code(&orphan).exists() && cache.find(&names[1].0).is_some());
        files.shrink(10_000);
        let bytes = fs::read_dir(directory.path())
            .unwrap()
            .map(|it| it.unwrap().metadata().unwrap().len());
        assert!(bytes.sum::<u64>() <= 10_000);
        assert!(running.is_some_and(|code| code.is_unchanged()));
        let left: Vec<_> = names
            .iter()
            .map(|(component, _)| cache.find(component).is_some())
            .collect();
        assert!(left[0] && left[19] && left[18] && !left[1] && !left[10], "{left:?}");
        files.shrink(0);
        assert!(cache.find(&names[0].0).is_none(), "nobody uses it any more");
    }

    #[test]
    fn only_files_that_a_host_has_put_there_are_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = CodeCache::open(directory.path()).unwrap();
        let files = Directory(directory.path());
        let (component, code) = (digest(b"component"), digest(b"code"));
        let (index, compiled) = (files.index(&component), files.code(&code));
        let elsewhere = NamedTempFile::new().unwrap();
        fs::write(&elsewhere, "code").unwrap();
        let restore = || {
            for (path, bytes) in [
                (&index, format!("{code} {}\n", VERSIONS[0])),
                (&compiled, "code".to_owned()),
            ] {
                let _ = fs::remove_file(path);
                fs::write(path, bytes).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
            }
        };
        for path in [&index, &compiled] {
            restore();
            assert!(cache.find(&component).is_some());
            fs::set_permissions(path, fs::Permissions::from_mode(0o622)).unwrap();
            assert!(
                cache.find(&component).is_none(),
                "others may write to {}",
                path.display()
            );
            restore();
            fs::remove_file(path).unwrap();
            std::os::unix::fs::symlink(elsewhere.path(), path).unwrap();
            assert!(cache.find(&component).is_none(), "{} is a link", path.display());
            fs::remove_file(path).unwrap();
            let (kind, mode) = (rustix::fs::FileType::Fifo, Mode::RUSR | Mode::WUSR);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
            assert!(cache.find(&component).is_none(), "{} is a pipe", path.display());
        }
    }
}
