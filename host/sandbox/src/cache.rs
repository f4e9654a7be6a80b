//! Owns the directory of compiled components: who may write to it, how a file is found, checked and replaced.
//!
//! Three kinds of files, each put in place by one rename, so that several processes can share the directory:
//! `COMPONENT.wasm` is the component, `CODE.cwasm` is compiled code under the digest of its own bytes, and
//! `COMPONENT-WASMTIME-SETTINGS-TARGET.index` holds the digest of the code that was compiled from a component, and the
//! version of the contract that the component was found to speak: who finds code need not look at the component again.

use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pilothouse_core::contract::VERSIONS;
use rustix::fs::{Mode, OFlags};
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::compile::{CompileError, Compiler};
use crate::engine::{SETTINGS_VERSION, WASMTIME_VERSION};

/// What was not used for so long is removed when a sandbox is made.
const UNUSED: Duration = Duration::from_hours(30 * 24);

/// How often a file's use is noted at most: noting it means a write.
const NOTED: Duration = Duration::from_hours(24);

/// What a process that was killed has left half-written.
const TEMPORARY_PREFIX: &str = ".new-";

/// Hexadecimal digits of a SHA-256 digest.
const DIGEST_LENGTH: usize = 64;

/// The longest index that is read: a digest and a version.
const INDEX_LENGTH: u64 = 256;

/// Why the cache cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The directory cannot be made.
    #[error("cannot make the directory {} for compiled plugins: {source}", .path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// Something else is in its place.
    #[error("{} is to hold compiled plugins, but it is not a directory; give another path", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Code is run from it, so nobody else may own it.
    #[error(
        "the directory {} for compiled plugins belongs to user {owner}, and this process is user {user}; its files are run as \
         code, so give a directory of your own",
        .path.display()
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        user: u32,
    },
    /// Code is run from it, so nobody else may write to it.
    #[error(
        "others may write to the directory {} for compiled plugins (its mode is {mode:03o}); its files are run as code, so \
         take that away: chmod 700 {}",
        .path.display(), .path.display()
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file cannot be read, written or put in place.
    #[error("cannot {action} {} in the cache of compiled plugins: {source}", .path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The component is not in the cache any more.
    #[error("the component {digest} is gone from the cache {}; load the plugin again", .directory.display())]
    Gone {
        /// The component's digest.
        digest: String,
        /// The cache.
        directory: PathBuf,
    },
    /// Compiling failed.
    #[error(transparent)]
    Compile(#[from] CompileError),
}

/// A directory that only this user can write to.
pub(crate) struct Cache {
    directory: PathBuf,
    /// One compilation at a time: a compiler takes up to 360 MiB, and all cores.
    compiling: Mutex<()>,
}

/// Compiled code whose bytes were found to be those that were written.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
    /// The contract's version that the component speaks, one of [`VERSIONS`].
    pub(crate) version: &'static str,
    /// As the file was when it was checked; if it still is, it need not be read again.
    identity: Identity,
    /// Whether it was compiled just now, by this process.
    pub(crate) fresh: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Code {
    /// Whether the file is still the one that was checked.
    pub(crate) fn is_unchanged(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|metadata| Identity::of(&metadata) == self.identity)
    }
}

impl Cache {
    /// Makes the directory if it is not there, and refuses one that others can write to.
    pub(crate) fn open(directory: &Path) -> Result<Self, CacheError> {
        let make = |source| CacheError::Make {
            path: directory.to_owned(),
            source,
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .or_else(|error| {
                // `create` says so too when a file is in its place; the check below has better words.
                if error.kind() == io::ErrorKind::AlreadyExists {
                    Ok(())
                } else {
                    Err(make(error))
                }
            })?;
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
        let cache = Self {
            directory,
            compiling: Mutex::new(()),
        };
        cache.sweep(SystemTime::now());
        Ok(cache)
    }

    /// Removes what was not used for long. A file that cannot be removed is left for the next time.
    fn sweep(&self, now: SystemTime) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let most = match name.rsplit_once('.') {
                _ if name.starts_with(TEMPORARY_PREFIX) => NOTED,
                Some((_, "wasm" | "cwasm" | "index")) => UNUSED,
                _ => continue,
            };
            let used = entry.metadata().and_then(|metadata| metadata.modified());
            if used.is_ok_and(|used| now.duration_since(used).is_ok_and(|age| age > most)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    /// Notes that the files of a component are in use, so that they are not swept.
    fn note(&self, digest: &str, code: &Path, now: SystemTime) {
        for path in [&*self.component_path(digest), &*self.index_path(digest), code] {
            let note = || {
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
            let _ = note();
        }
    }

    /// The code of a component that speaks this version: from the cache, else compiled from `component`.
    pub(crate) fn code(
        &self,
        digest: &str,
        version: &'static str,
        component: &[u8],
        compiler: &Compiler,
    ) -> Result<Code, CacheError> {
        let _one_at_a_time = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(code) = self.find(digest) {
            return Ok(code);
        }
        self.put(&self.component_path(digest), component)?;
        self.compile(digest, version, compiler)
    }

    /// The code of a component that was loaded before.
    pub(crate) fn code_again(
        &self,
        digest: &str,
        version: &'static str,
        compiler: &Compiler,
    ) -> Result<Code, CacheError> {
        if let Some(code) = self.find(digest) {
            return Ok(code);
        }
        let _one_at_a_time = self.compiling.lock().unwrap_or_else(PoisonError::into_inner);
        match digest_of_file(&self.component_path(digest)) {
            Ok(found) if found == digest => self.compile(digest, version, compiler),
            _ => Err(CacheError::Gone {
                digest: digest.to_owned(),
                directory: self.directory.clone(),
            }),
        }
    }

    /// Forgets the code of a component, because it cannot be used.
    pub(crate) fn forget(&self, digest: &str) -> Result<(), CacheError> {
        let path = self.index_path(digest);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(CacheError::File {
                action: "remove",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }

    /// The code of a component if it is there and is what was written: anything else is compiled again.
    pub(crate) fn find(&self, digest: &str) -> Option<Code> {
        let mut index = String::new();
        open_own(&self.index_path(digest))
            .ok()?
            .take(INDEX_LENGTH)
            .read_to_string(&mut index)
            .ok()?;
        let (code, version) = index.strip_suffix('\n')?.split_once(' ')?;
        let version = VERSIONS.iter().find(|known| **known == version)?;
        if code.len() != DIGEST_LENGTH || !code.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        let path = self.code_path(code);
        let file = open_own(&path).ok()?;
        self.note(digest, &path, SystemTime::now());
        // After the note, which changes the file's times.
        let metadata = file.metadata().ok()?;
        if digest_of(file).ok()?.0 != code {
            return None;
        }
        Some(Code {
            path,
            bytes: metadata.len(),
            version,
            identity: Identity::of(&metadata),
            fresh: false,
        })
    }

    fn compile(&self, digest: &str, version: &'static str, compiler: &Compiler) -> Result<Code, CacheError> {
        let output = self.temporary()?;
        compiler.compile(&self.component_path(digest), output.path())?;
        let file = |action, path: &Path, source| CacheError::File {
            action,
            path: path.to_owned(),
            source,
        };
        let code = digest_of_file(output.path()).map_err(|source| file("read", output.path(), source))?;
        let path = self.code_path(&code);
        output
            .as_file()
            .sync_all()
            .map_err(|source| file("write", &path, source))?;
        output
            .persist(&path)
            .map_err(|error| file("put in place", &path, error.error))?;
        self.put(&self.index_path(digest), format!("{code} {version}\n").as_bytes())?;
        let metadata = fs::metadata(&path).map_err(|source| file("read", &path, source))?;
        Ok(Code {
            path,
            bytes: metadata.len(),
            version,
            identity: Identity::of(&metadata),
            fresh: true,
        })
    }

    /// Writes a whole file under another name, then renames it.
    fn put(&self, path: &Path, bytes: &[u8]) -> Result<(), CacheError> {
        let file = |action, source| CacheError::File {
            action,
            path: path.to_owned(),
            source,
        };
        let mut temporary = self.temporary()?;
        temporary.write_all(bytes).map_err(|source| file("write", source))?;
        temporary.as_file().sync_all().map_err(|source| file("write", source))?;
        temporary
            .persist(path)
            .map_err(|error| file("put in place", error.error))?;
        Ok(())
    }

    /// Readable and writable for this user alone, and removed unless it is put in place.
    fn temporary(&self) -> Result<NamedTempFile, CacheError> {
        tempfile::Builder::new()
            .prefix(TEMPORARY_PREFIX)
            .tempfile_in(&self.directory)
            .map_err(|source| CacheError::File {
                action: "make a file in",
                path: self.directory.clone(),
                source,
            })
    }

    fn component_path(&self, digest: &str) -> PathBuf {
        self.directory.join(format!("{digest}.wasm"))
    }

    fn code_path(&self, code: &str) -> PathBuf {
        self.directory.join(format!("{code}.cwasm"))
    }

    fn index_path(&self, digest: &str) -> PathBuf {
        let (architecture, system) = (std::env::consts::ARCH, std::env::consts::OS);
        self.directory.join(format!(
            "{digest}-{WASMTIME_VERSION}-{SETTINGS_VERSION}-{architecture}-{system}.index"
        ))
    }
}

/// The SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The same of all that a reader has, and how many bytes those are.
pub(crate) fn digest_of(mut reader: impl Read) -> io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut reader, &mut hash)?;
    Ok((hexadecimal(&hash.finalize()), bytes))
}

fn digest_of_file(path: &Path) -> io::Result<String> {
    Ok(digest_of(open_own(path)?)?.0)
}

/// Opens a file of the cache, if it is one that a host has put there: nobody else owns it or may write to it, and it is
/// neither a link to somewhere else nor something that never ends, such as a pipe or a device.
fn open_own(path: &Path) -> io::Result<File> {
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

fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(DIGEST_LENGTH), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a String cannot fail");
            text
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn age(path: &Path, age: Duration) {
        File::open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }

    #[test]
    fn what_was_not_used_for_long_is_swept_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let old = ["a.wasm", "b.cwasm", "c.index", ".new-d"];
        let kept = ["e.wasm", "notes.txt", "f"];
        for name in old.iter().chain(&kept) {
            fs::write(cache.directory.join(name), "x").unwrap();
            age(&cache.directory.join(name), UNUSED * 2);
        }
        age(&cache.directory.join("e.wasm"), UNUSED / 2);
        Cache::open(directory.path()).unwrap();
        assert_eq!(old.map(|name| cache.directory.join(name).exists()), [false; 4]);
        assert_eq!(kept.map(|name| cache.directory.join(name).exists()), [true; 3]);
    }

    #[test]
    fn what_is_used_is_not_swept() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let (component, code) = (digest(b"component"), digest(b"code"));
        let files = [
            cache.component_path(&component),
            cache.code_path(&code),
            cache.index_path(&component),
        ];
        for (path, bytes) in files
            .iter()
            .zip(["component", "code", &format!("{code} {}\n", VERSIONS[0])])
        {
            fs::write(path, bytes).unwrap();
            age(path, UNUSED * 2);
        }
        assert!(cache.find(&component).is_some_and(|code| code.is_unchanged()));
        Cache::open(directory.path()).unwrap();
        assert_eq!(files.map(|path| path.exists()), [true; 3]);
    }

    #[test]
    fn only_files_that_a_host_has_put_there_are_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path()).unwrap();
        let (component, code) = (digest(b"component"), digest(b"code"));
        let (index, compiled) = (cache.index_path(&component), cache.code_path(&code));
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
            rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::Fifo,
                Mode::RUSR | Mode::WUSR,
                0,
            )
            .unwrap();
            assert!(cache.find(&component).is_none(), "{} is a pipe", path.display());
        }
    }

    #[test]
    fn the_version_in_the_cache_is_that_of_cargo_lock() {
        let lock = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.lock")).unwrap();
        let version = lock
            .split_once("name = \"wasmtime\"\nversion = \"")
            .unwrap()
            .1
            .split_once('"')
            .unwrap()
            .0;
        assert_eq!(version, WASMTIME_VERSION, "set WASMTIME_VERSION in engine.rs");
    }
}
