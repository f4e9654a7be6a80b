//! Compiled components: finds their code in the cache directory or in memory, and compiles them again where it is
//! missing. The files of the directory are handled by `directory`.
//!
//! Code that the directory cannot hold, because a disk is full or read-only, stays in memory for as long as a plugin
//! uses it. A directory that other users can write to is refused.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::Read;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;
use std::{fs, io};

use sha2::{Digest as _, Sha256};

use crate::compile::directory::{Directory, checked, sweep};
use crate::compile::turns::{CompileTurns, SliceEnd, TakesTooLong};
use crate::compile::{CompileEnd, CompileError, Compiler, memory};

/// Hexadecimal digits of a SHA-256 digest.
pub(crate) const DIGEST_LENGTH: usize = 64;

/// Most bytes of the directory; beyond it, least recently used files are removed. A plugin takes 2 MB, in Python 60.
const MOST_BYTES: u64 = 512 * 1024 * 1024;

/// Errors of the cache.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The directory cannot be made.
    #[error("cannot make the directory {} for compiled plugins: {source}", .path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Something else is in its place.
    #[error("{} is to hold compiled plugins, but it is not a directory; give another path", .path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory belongs to another user. Code is run from it, so only this user may own it.
    #[error(
        "the directory {} for compiled plugins belongs to user {owner}, and this process is user {user}; its files are run as \
         code, so give a directory of your own",
        .path.display()
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// The user who owns it.
        owner: u32,
        /// The user of this process.
        user: u32,
    },
    /// Other users can write to the directory. Code is run from it, so only this user may.
    #[error(
        "others may write to the directory {} for compiled plugins (its mode is {mode:03o}); its files are run as code, so \
         take that away: chmod 700 {}",
        .path.display(), .path.display()
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions (mode bits).
        mode: u32,
    },
    /// A file cannot be read, written or put in place; then the code stays in memory.
    #[error("cannot {action} {} in the cache of compiled plugins: {source}", .path.display())]
    File {
        /// The operation that failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The component is no longer in the cache.
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

/// Compiled components: in a directory that only this user can write to, and in memory where that cannot hold them.
pub(crate) struct CodeCache {
    /// The directory, or why there is none.
    directory: Result<PathBuf, Arc<str>>,
    /// Turns: one compilation at a time.
    compiling: CompileTurns,
    /// Code that the directory does not hold, by the component's digest.
    in_memory: Mutex<HashMap<String, Weak<InMemory>>>,
}

/// Compiled code whose bytes are verified to be the compiler's output.
#[derive(Clone, Debug)]
pub(crate) struct Code {
    place: CodeLocation,
    pub(crate) bytes: u64,
    /// The contract's version that the component speaks, one of [`VERSIONS`].
    pub(crate) version: &'static str,
    /// Set if this process compiled it.
    pub(crate) fresh: bool,
}

#[derive(Clone, Debug)]
enum CodeLocation {
    Disk {
        path: PathBuf,
        /// The file's identity when it was checked; while it is the same, the file need not be read again.
        identity: CodeIdentity,
        /// Shared lock on the file that keeps other processes from removing it while the code is in use.
        _use: Option<Arc<File>>,
    },
    Memory(Arc<InMemory>),
}

/// Code that exists only in memory.
#[derive(Debug)]
struct InMemory {
    /// The file, sealed against writes.
    file: File,
    version: &'static str,
    /// Reason why it is not on disk.
    why: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct CodeIdentity {
    device: u64,
    inode: u64,
    bytes: u64,
    changed: (i64, i64),
}

impl CodeIdentity {
    fn from_metadata(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

#[cfg(feature = "testing")]
impl CodeCache {
    /// Returns a cache that holds nothing.
    pub(crate) fn nowhere() -> Self {
        Self {
            directory: Err("a test needs no code".into()),
            compiling: CompileTurns::default(),
            in_memory: Mutex::default(),
        }
    }
}

impl Code {
    /// Returns code that does not exist.
    #[cfg(feature = "testing")]
    pub(crate) fn nowhere() -> Self {
        Self {
            place: CodeLocation::Disk {
                path: PathBuf::new(),
                identity: CodeIdentity {
                    device: 0,
                    inode: 0,
                    bytes: 0,
                    changed: (0, 0),
                },
                _use: None,
            },
            bytes: 0,
            version: "",
            fresh: false,
        }
    }

    /// Returns the path that it can be mapped from.
    pub(crate) fn path(&self) -> PathBuf {
        match &self.place {
            CodeLocation::Disk { path, .. } => path.clone(),
            CodeLocation::Memory(code) => memory::path(&code.file),
        }
    }

    /// Reports whether the file is still the one that was checked.
    pub(crate) fn is_unchanged(&self) -> bool {
        match &self.place {
            CodeLocation::Disk { path, identity, .. } => {
                fs::metadata(path).is_ok_and(|metadata| CodeIdentity::from_metadata(&metadata) == *identity)
            }
            CodeLocation::Memory(_) => true,
        }
    }

    /// Returns the reason why it is not on disk, if it is not.
    pub(crate) fn kept_in_memory_because(&self) -> Option<Arc<str>> {
        match &self.place {
            CodeLocation::Disk { .. } => None,
            CodeLocation::Memory(code) => Some(code.why.clone()),
        }
    }

    pub(crate) fn on_disk(
        path: PathBuf,
        metadata: &Metadata,
        version: &'static str,
        fresh: bool,
        is_used: Option<File>,
    ) -> Self {
        Self {
            bytes: metadata.len(),
            version,
            fresh,
            place: CodeLocation::Disk {
                path,
                identity: CodeIdentity::from_metadata(metadata),
                _use: is_used.map(Arc::new),
            },
        }
    }

    fn in_memory(code: Arc<InMemory>) -> io::Result<Self> {
        Ok(Self {
            bytes: code.file.metadata()?.len(),
            version: code.version,
            fresh: true,
            place: CodeLocation::Memory(code),
        })
    }
}

impl CodeCache {
    /// Opens or makes the directory, and refuses one that others can write to. Works without one if it cannot be made.
    pub(crate) fn open(directory: &Path) -> Result<Self, CacheError> {
        let directory = match checked(directory) {
            Ok(directory) => {
                sweep(&directory, SystemTime::now());
                Ok(directory)
            }
            Err(error @ CacheError::Make { .. }) => {
                tracing::warn!(
                    problem = %error,
                    "compiled plugins are kept in memory, and each start compiles them again; give a directory that can be \
                     written to with --cache-dir"
                );
                Err(error.to_string().into())
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            directory,
            compiling: CompileTurns::default(),
            in_memory: Mutex::default(),
        })
    }

    /// Returns the code of a component that speaks this version: from the cache, else compiled from `component`.
    pub(crate) fn code(
        &self,
        digest: &str,
        version: &'static str,
        component: &[u8],
        compiler: &Compiler,
    ) -> Result<Code, CacheError> {
        match self.find(digest) {
            Some(code) => Ok(code),
            None => self.compile(digest, version, component, compiler),
        }
    }

    /// Returns the code of a component that was loaded before.
    pub(crate) fn code_again(
        &self,
        digest: &str,
        version: &'static str,
        compiler: &Compiler,
    ) -> Result<Code, CacheError> {
        if let Some(code) = self.find(digest) {
            return Ok(code);
        }
        let component = self
            .directory()
            .and_then(|directory| fs::read(directory.component(digest)).ok());
        match component {
            Some(component) if self::digest(&component) == digest => {
                self.compile(digest, version, &component, compiler)
            }
            _ => Err(CacheError::Gone {
                digest: digest.to_owned(),
                directory: self.directory.as_ref().map_or_else(|_| PathBuf::new(), Clone::clone),
            }),
        }
    }

    /// Forgets the code of a component, because it cannot be used. If the file cannot be deleted from disk, code that
    /// is compiled next stays in memory.
    pub(crate) fn forget(&self, digest: &str) {
        if let Some(directory) = self.directory() {
            let _ = fs::remove_file(directory.index(digest));
        }
    }

    /// Returns the code of a component if it is cached and unchanged; code that was altered has to be compiled again.
    pub(crate) fn find(&self, digest: &str) -> Option<Code> {
        let held = self.lock_memory().get(digest).and_then(Weak::upgrade);
        match held {
            Some(held) => Code::in_memory(held).ok(),
            None => self.directory()?.find(digest),
        }
    }

    fn compile(
        &self,
        digest: &str,
        version: &'static str,
        component: &[u8],
        compiler: &Compiler,
    ) -> Result<Code, CacheError> {
        let out_of_time = |seconds| CacheError::Compile(CompileError::OutOfTime { seconds });
        let (mut code, turn) = loop {
            let turn = self.compiling.wait(digest, || self.find(digest));
            let turn = match turn.map_err(|TakesTooLong(seconds)| out_of_time(seconds))? {
                Ok(turn) => turn,
                Err(code) => return Ok(code),
            };
            // Another thread or process has compiled it meanwhile.
            if let Some(code) = self.find(digest) {
                return Ok(code);
            }
            let compiled = compiler.compile(component, &turn).inspect_err(|error| {
                if let CompileError::TimedOut { .. } = error {
                    let _ = turn.record_slice_over();
                }
            });
            match compiled? {
                CompileEnd::Code(code) => {
                    turn.compiled();
                    break (code, turn);
                }
                CompileEnd::GaveWay => turn.record_yield(),
                CompileEnd::SliceOver if turn.record_slice_over() == SliceEnd::Never => {
                    return Err(out_of_time(turn.seconds()));
                }
                CompileEnd::SliceOver => {}
            }
        };
        let kept = match &self.directory {
            Ok(path) => Directory(path).keep(digest, version, component, &mut code).map_err(|error| {
                let why: Arc<str> = error.to_string().into();
                tracing::warn!(
                    component = digest,
                    problem = &*why,
                    "the compiled code of a plugin stays in memory, and the next start compiles it again; make room on the \
                     disk, or give another directory with --cache-dir"
                );
                why
            }),
            Err(why) => Err(why.clone()),
        };
        let code = match kept {
            Ok(code) => Ok(code),
            Err(why) => self.hold(digest, version, code, why),
        };
        // Others that wait for the same component find its code from here on.
        drop(turn);
        if let Some(directory) = self.directory() {
            directory.shrink(MOST_BYTES);
        }
        code
    }

    /// Keeps code in memory, for as long as it is in use.
    fn hold(&self, digest: &str, version: &'static str, file: File, why: Arc<str>) -> Result<Code, CacheError> {
        let held = Arc::new(InMemory { file, version, why });
        let mut in_memory = self.lock_memory();
        in_memory.retain(|_, held| held.strong_count() > 0);
        in_memory.insert(digest.to_owned(), Arc::downgrade(&held));
        drop(in_memory);
        Code::in_memory(held).map_err(|source| CacheError::Compile(CompileError::Memory { source }))
    }

    fn lock_memory(&self) -> MutexGuard<'_, HashMap<String, Weak<InMemory>>> {
        self.in_memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn directory(&self) -> Option<Directory<'_>> {
        self.directory.as_deref().ok().map(Directory)
    }
}

/// Returns the SHA-256 of some bytes, in hexadecimal digits.
pub(crate) fn digest(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Returns the SHA-256 of everything that a reader yields, and its number of bytes.
pub(crate) fn digest_of(mut reader: impl Read) -> io::Result<(String, u64)> {
    let mut hash = Sha256::new();
    let bytes = io::copy(&mut reader, &mut hash)?;
    Ok((hexadecimal(&hash.finalize()), bytes))
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
    use std::fs;

    use crate::engine::WASMTIME_VERSION;

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
