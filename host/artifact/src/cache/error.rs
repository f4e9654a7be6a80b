//! Errors of the cache of artifacts.

use std::io;
use std::path::PathBuf;

use crate::content::digest::Digest;

/// An operation of the cache failed.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory cannot be created.
    #[error("cannot make the artifact cache {}: {source}; give another directory with --cache-dir", path.display())]
    Make {
        /// The directory.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A file or a link is in the place of a directory.
    #[error("the artifact cache {} is not a directory; remove it, or give another directory with --cache-dir", path.display())]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// Another user owns the directory.
    #[error(
        "the artifact cache {} belongs to user {owner}, and this process runs as user {user}; give it a directory of its own \
         with --cache-dir", path.display()
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Its owner.
        owner: u32,
        /// This process's user.
        user: u32,
    },
    /// Other users may write to the directory.
    #[error(
        "others may write to the artifact cache {} (mode {mode:o}); run chmod go-w on it, or give another directory with \
         --cache-dir", path.display()
    )]
    WritableByOthers {
        /// The directory.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file cannot be read or written.
    #[error("cannot {action} {} in the artifact cache: {source}; check the disk's free space and permissions", path.display())]
    File {
        /// The attempted action.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// There is no room, because the files that fill the cache are in use.
    #[error(
        "{needed} bytes do not fit into the artifact cache {}: {used} of {limit} bytes are taken by what is in use; give it \
         more with --artifact-cache-size", path.display()
    )]
    Full {
        /// The directory.
        path: PathBuf,
        /// The bytes that were to be written.
        needed: u64,
        /// The bytes that cannot be removed.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// The blob does not have the announced size.
    #[error("{expected} was announced with {size} bytes, and {written} bytes came; fetch it again")]
    Size {
        /// The blob.
        expected: Digest,
        /// Its announced size.
        size: u64,
        /// The bytes that were written, or would have been.
        written: u64,
    },
    /// The blob has another digest.
    #[error(
        "{expected} was expected, and what came has the digest {actual}; fetch it again, or ask its registry's operator"
    )]
    Digest {
        /// The expected digest.
        expected: Digest,
        /// The digest of the written bytes.
        actual: Digest,
    },
    /// A record cannot be stored.
    #[error("the record {kind}/{key} cannot be kept: {cause}")]
    Record {
        /// The kind.
        kind: String,
        /// The key.
        key: String,
        /// The problem.
        cause: &'static str,
    },
}
