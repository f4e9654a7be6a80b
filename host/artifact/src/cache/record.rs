//! Stores records: small texts under a kind and a key, such as the signatures of a manifest, for an offline start.
//!
//! A record's file has the digest of the rest in its first line, the key in its second, and then the content. It is
//! replaced by one rename.

use std::fs::DirBuilder;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;

use super::directory::{own_subdirectory, record_use, sync, temporary};
use super::hold::Hold;
use super::{ArtifactCache, damaged, open_shared};
use crate::cache::error::CacheError;
use crate::content::digest::Digest;

/// The largest record, in bytes.
const MAX_RECORD: usize = 8 << 20;

/// The longest key, in bytes.
const MAX_KEY: usize = 1024;

/// The longest kind, in bytes.
const MAX_KIND: usize = 32;

impl ArtifactCache {
    /// Stores a record in place of an earlier one with the same kind and key, and holds it. The kind is a short name of
    /// lower-case letters and `-`; the key is one line.
    pub fn put_record(&self, kind: &str, key: &str, bytes: &[u8]) -> Result<Hold, CacheError> {
        let path = self.record_path(kind, key)?;
        if bytes.len() > MAX_RECORD {
            return Err(invalid(kind, key, "it has more than 8 MiB"));
        }
        if let Some((content, hold)) = self.open_record(kind, key)?
            && content == bytes
        {
            return Ok(hold);
        }
        let mut file = format!("{key}\n").into_bytes();
        file.extend_from_slice(bytes);
        let digest = Digest::of(&file);
        self.files.make_room(file.len() as u64)?;
        let directory = self.files.records().join(kind);
        let _ = DirBuilder::new().mode(0o700).create(&directory);
        own_subdirectory(&directory)?;
        let failed = |action, source| CacheError::File {
            action,
            path: path.clone(),
            source,
        };
        let mut temporary = temporary(&directory)?;
        let written = writeln!(temporary, "{digest}").and_then(|()| temporary.write_all(&file));
        written
            .and_then(|()| temporary.as_file().sync_all())
            .map_err(|source| failed("write", source))?;
        let file = temporary
            .persist(&path)
            .map_err(|error| failed("put in place", error.error))?;
        sync(&directory);
        Ok(Hold::new(file, path, Digest::of(bytes), bytes.len() as u64))
    }

    /// A record's content, or `None` if there is none. A damaged record is removed, and counts as missing.
    pub fn record(&self, kind: &str, key: &str) -> Result<Option<Vec<u8>>, CacheError> {
        Ok(self.open_record(kind, key)?.map(|(content, _)| content))
    }

    /// Holds a record, so that no process evicts it.
    pub fn hold_record(&self, kind: &str, key: &str) -> Result<Option<Hold>, CacheError> {
        Ok(self.open_record(kind, key)?.map(|(_, hold)| hold))
    }

    /// Removes a record, held or not.
    pub fn remove_record(&self, kind: &str, key: &str) -> Result<(), CacheError> {
        let path = self.record_path(kind, key)?;
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => Err(CacheError::File {
                action: "remove",
                path,
                source,
            }),
            _ => Ok(()),
        }
    }

    fn open_record(&self, kind: &str, key: &str) -> Result<Option<(Vec<u8>, Hold)>, CacheError> {
        let path = self.record_path(kind, key)?;
        let Some(file) = open_shared(&path)? else {
            return Ok(None);
        };
        let mut bytes = Vec::new();
        let most = (MAX_RECORD + MAX_KEY + 256) as u64;
        let read = (&file).take(most).read_to_end(&mut bytes);
        read.map_err(|source| CacheError::File {
            action: "read",
            path: path.clone(),
            source,
        })?;
        let Some(content) = content(&bytes, key) else {
            damaged(&path, "its content is not what was recorded under its key");
            return Ok(None);
        };
        record_use(&file);
        let (digest, size) = (Digest::of(content), content.len() as u64);
        Ok(Some((content.to_vec(), Hold::new(file, path, digest, size))))
    }

    fn record_path(&self, kind: &str, key: &str) -> Result<PathBuf, CacheError> {
        let is_kind = |byte: u8| byte.is_ascii_lowercase() || byte == b'-';
        if kind.is_empty() || kind.len() > MAX_KIND || !kind.bytes().all(is_kind) {
            return Err(invalid(kind, key, "a kind is a name of lower-case letters and -"));
        }
        if key.is_empty() || key.len() > MAX_KEY || key.chars().any(char::is_control) {
            return Err(invalid(kind, key, "a key is one line of at most 1024 bytes"));
        }
        Ok(self.files.records().join(kind).join(Digest::of(key.as_bytes()).hex()))
    }
}

/// The content of a record's file, if the file is intact and has this key.
fn content<'a>(file: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let end = file.iter().position(|byte| *byte == b'\n')?;
    let (digest, rest) = (std::str::from_utf8(&file[..end]).ok()?, &file[end + 1..]);
    let digest: Digest = digest.parse().ok()?;
    if Digest::of(rest) != digest {
        return None;
    }
    rest.strip_prefix(key.as_bytes())?.strip_prefix(b"\n")
}

fn invalid(kind: &str, key: &str, cause: &'static str) -> CacheError {
    let one_line = |text: &str| text.chars().take(160).flat_map(char::escape_debug).collect();
    CacheError::Record {
        kind: one_line(kind),
        key: one_line(key),
        cause,
    }
}
