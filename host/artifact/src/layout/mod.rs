//! Reads and writes OCI layouts on disk, in a directory or in a tar:
//! <https://github.com/opencontainers/image-spec/blob/main/image-layout.md>. oras and skopeo can read them.

pub(crate) mod archive;
pub(crate) mod reads;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::content::blob::{Content, Resolved};
use crate::content::descriptor::{Listed, media_type, parse_lenient};
use crate::error::quoted;
use crate::fetch::download::{Download, sink_failed};
use crate::layout::archive::Entries;
use crate::layout::reads::DirectoryReads;
use crate::limits::MANIFEST_LIMIT;
use crate::reference::is_tag;
use crate::registry::{Belonging, Index, fallback_tag};
use crate::{ArtifactError, Descriptor, Digest, ErrorKind, LayoutLocation, Limits, Location, Progress, Target};

/// The annotation with the tag of an entry of index.json.
const TAG: &str = "org.opencontainers.image.ref.name";
/// The annotation with an entry's repository, as Docker and containerd write it: a layout with it can be a mirror.
const IMAGE: &str = "io.containerd.image.name";
/// The file that marks a directory as a layout.
pub(crate) const MARK: &str = "oci-layout";
/// Its content.
const MARK_TEXT: &str = "{\"imageLayoutVersion\":\"1.0.0\"}";
/// The list of manifests.
pub(crate) const INDEX: &str = "index.json";
/// The number of bytes that are read at a time.
const PIECE: usize = 256 << 10;

/// A layout.
pub(crate) struct Layout(Arc<Inner>);

struct Inner {
    location: LayoutLocation,
    limits: Limits,
    reads: DirectoryReads,
    /// The index of an archive, and the files to be added to it.
    archive: Mutex<Archive>,
}

#[derive(Default)]
struct Archive {
    entries: Option<Arc<Entries>>,
    staged: Option<Arc<TempDir>>,
}

/// The position of a file of a layout: a range of bytes in a file.
struct Span {
    file: PathBuf,
    offset: u64,
    length: u64,
}

impl Layout {
    pub(crate) fn new(location: LayoutLocation, limits: &Limits, reads: &DirectoryReads) -> Self {
        Self(Arc::new(Inner {
            location,
            limits: limits.clone(),
            reads: reads.clone(),
            archive: Mutex::default(),
        }))
    }

    pub(crate) fn name(&self) -> String {
        self.0.name()
    }

    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, ArtifactError> + Send + 'static,
    ) -> Result<T, ArtifactError> {
        let inner = Arc::clone(&self.0);
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .expect("writing a layout does not panic")
    }

    /// Reads a part of the layout, which may be on a mount that hangs.
    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Inner) -> Result<T, ArtifactError> + Send + 'static,
    ) -> Result<T, ArtifactError> {
        let inner = Arc::clone(&self.0);
        self.0.reads.run(&self.0.location.path, move || read(&inner)).await?
    }

    /// Resolves a tag or digest. `image` is `HOST/REPOSITORY:TAG` if the layout mirrors a registry: its tags may be
    /// those of several repositories.
    pub(crate) async fn resolve(&self, target: &Target, image: Option<String>) -> Result<Resolved, ArtifactError> {
        let target = target.clone();
        self.read(move |inner| inner.resolve(&target, image.as_deref())).await
    }

    pub(crate) async fn manifest(&self, digest: Digest) -> Result<Bytes, ArtifactError> {
        self.read(move |inner| inner.manifest(digest)).await
    }

    pub(crate) async fn tags(&self) -> Result<Vec<String>, ArtifactError> {
        self.read(Inner::tags).await
    }

    pub(crate) async fn referrers(&self, digest: Digest) -> Result<Vec<Descriptor>, ArtifactError> {
        self.read(move |inner| inner.referrers(digest)).await
    }

    /// The `HOST/REPOSITORY` from which a manifest was copied, if it is known.
    pub(crate) async fn origin(&self, digest: Digest) -> Result<Option<String>, ArtifactError> {
        self.read(move |inner| {
            let entries = inner.index()?.descriptors(usize::MAX);
            let images = entries
                .iter()
                .filter(|it| it.digest == digest)
                .find_map(|it| it.annotations.get(IMAGE));
            Ok(images
                .and_then(|image| image.rsplit_once(':'))
                .map(|(name, _)| name.to_owned()))
        })
        .await
    }

    pub(crate) async fn has(&self, digest: Digest) -> Result<bool, ArtifactError> {
        self.read(move |inner| Ok(inner.find(&blob_path(digest))?.is_some()))
            .await
    }

    /// Reports whether a blob exists and is intact, so that a copy repairs damaged ones.
    pub(crate) async fn holds(&self, descriptor: &Descriptor) -> Result<bool, ArtifactError> {
        let (digest, size) = (descriptor.digest, descriptor.size);
        self.run(move |inner| inner.holds(digest, size)).await
    }

    pub(crate) async fn blob(
        &self,
        download: &mut Download,
        sink: &mut (dyn AsyncWrite + Unpin + Send),
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        let digest = download.digest();
        let what = format!("cannot read {digest} of {}", self.name());
        let span = self.read(move |inner| inner.find(&blob_path(digest))).await?;
        let span = span.ok_or_else(|| self.0.error(ErrorKind::NotFound, &format!("it has no blob {digest}")))?;
        if span.length > download.size() {
            return Err(download.too_much(&what));
        }
        let span = Arc::new(span);
        let opened = Arc::clone(&span);
        let open = move |_: &Inner| File::open(&opened.file).map_err(|error| opened.unread(&error));
        let file = Arc::new(self.read(open).await?);
        while download.received() < span.length {
            let (file, span, from) = (Arc::clone(&file), Arc::clone(&span), download.received());
            let piece = self.read(move |_| span.piece(&file, from)).await?;
            if piece.is_empty() {
                break;
            }
            download.write(&piece, sink, progress, &what).await?;
        }
        if download.received() < download.size() {
            let cause = format!(
                "the blob {digest} has {} of {} bytes",
                download.received(),
                download.size()
            );
            return Err(self.0.error(ErrorKind::Truncated, &cause));
        }
        download.finish(&what, &self.name())?;
        sink.flush().await.map_err(|error| sink_failed(&what, &error))
    }

    pub(crate) async fn push_blob(
        &self,
        descriptor: &Descriptor,
        content: &Content,
        progress: &dyn Progress,
    ) -> Result<(), ArtifactError> {
        progress.started(descriptor.size);
        let (digest, size, content) = (descriptor.digest, descriptor.size, content.clone());
        self.run(move |inner| inner.write_blob(digest, size, &content)).await?;
        progress.advanced(descriptor.size);
        progress.done();
        Ok(())
    }

    pub(crate) async fn push_manifest(
        &self,
        bytes: &Bytes,
        media_type: &str,
        tag: Option<&str>,
        image: Option<String>,
    ) -> Result<Descriptor, ArtifactError> {
        let descriptor = Descriptor::of(media_type, bytes);
        let (bytes, tag, entry) = (bytes.clone(), tag.map(str::to_owned), descriptor.clone());
        self.run(move |inner| inner.write_manifest(&bytes, entry, tag.as_deref(), image))
            .await?;
        Ok(descriptor)
    }

    /// Writes the archive. A directory is always complete.
    pub(crate) async fn finish(&self) -> Result<(), ArtifactError> {
        self.run(Inner::finish).await
    }
}

impl Span {
    /// The next bytes from an offset, at most [`PIECE`]; none at the end.
    fn piece(&self, file: &File, from: u64) -> Result<Vec<u8>, ArtifactError> {
        let left = usize::try_from(self.length.saturating_sub(from)).unwrap_or(PIECE);
        let mut piece = vec![0; left.min(PIECE)];
        let read = file.read_at(&mut piece, self.offset + from);
        piece.truncate(read.map_err(|error| self.unread(&error))?);
        Ok(piece)
    }

    fn unread(&self, error: &std::io::Error) -> ArtifactError {
        ArtifactError::io("read", &self.file, error)
    }
}

fn blob_path(digest: Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

/// A manifest's media type, by its content.
pub(crate) fn media_type_of(bytes: &[u8]) -> String {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Typed {
        media_type: Option<String>,
        manifests: Option<serde::de::IgnoredAny>,
    }
    let typed: Option<Typed> = serde_json::from_slice(bytes).ok();
    match typed {
        Some(Typed {
            media_type: Some(media_type),
            ..
        }) => media_type,
        Some(Typed { manifests: Some(_), .. }) => media_type::INDEX.to_owned(),
        _ => media_type::MANIFEST.to_owned(),
    }
}

impl Inner {
    fn name(&self) -> String {
        let location = LayoutLocation {
            tag: None,
            digest: None,
            ..self.location.clone()
        };
        Location::Layout(location).to_string()
    }

    fn error(&self, kind: ErrorKind, cause: &str) -> ArtifactError {
        ArtifactError::new(kind, format!("{}: {cause}", self.name()))
    }

    /// Finds a file of the layout: staged files come before those of the archive.
    fn find(&self, path: &str) -> Result<Option<Span>, ArtifactError> {
        let whole = |file: PathBuf| match std::fs::metadata(&file) {
            Ok(data) if data.is_file() => Ok(Some(Span {
                file,
                offset: 0,
                length: data.len(),
            })),
            Ok(_) => Ok(None),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(ArtifactError::io("read", &file, &error)),
        };
        let root = &self.location.path;
        if !self.location.archive {
            return whole(root.join(path));
        }
        let mut archive = self.archive.lock();
        if let Some(staged) = &archive.staged
            && let Some(span) = whole(staged.path().join(path))?
        {
            return Ok(Some(span));
        }
        let entries = match &archive.entries {
            Some(entries) => Arc::clone(entries),
            None if !root.exists() => return Ok(None),
            None => Arc::clone(archive.entries.insert(Arc::new(archive::entries(root)?))),
        };
        Ok(entries.get(path).map(|(offset, length)| Span {
            file: root.clone(),
            offset: *offset,
            length: *length,
        }))
    }

    fn read(&self, path: &str, limit: u64) -> Result<Option<Bytes>, ArtifactError> {
        let Some(span) = self.find(path)? else {
            return Ok(None);
        };
        if span.length > limit {
            return Err(self.error(ErrorKind::TooLarge, &format!("{path} is larger than {limit} bytes")));
        }
        let mut bytes = Vec::new();
        let read = File::open(&span.file).and_then(|mut file| {
            file.seek(SeekFrom::Start(span.offset))?;
            file.take(span.length).read_to_end(&mut bytes)
        });
        read.map_err(|error| ArtifactError::io("read", &span.file, &error))?;
        Ok(Some(bytes.into()))
    }

    fn index(&self) -> Result<Index, ArtifactError> {
        let missing = |what: &str| {
            let cause = format!(
                "it is not an OCI layout, {what}; make one with `pilothouse copy REF {}`",
                self.name()
            );
            self.error(ErrorKind::Layout, &cause)
        };
        if !self.location.path.exists() && self.archive.lock().staged.is_none() {
            return Err(self.error(ErrorKind::NotFound, "it does not exist; check the path"));
        }
        let mark = self
            .read(MARK, MANIFEST_LIMIT)?
            .ok_or_else(|| missing("because it has no file oci-layout"))?;
        let version = serde_json::from_slice::<serde_json::Value>(&mark).ok();
        let version = version.as_ref().and_then(|it| it.get("imageLayoutVersion")?.as_str());
        if version != Some("1.0.0") {
            return Err(missing("because its oci-layout does not say version 1.0.0"));
        }
        let index = self
            .read(INDEX, MANIFEST_LIMIT)?
            .ok_or_else(|| missing("because it has no index.json"))?;
        serde_json::from_slice(&index)
            .map_err(|error| self.error(ErrorKind::Layout, &format!("index.json cannot be read: {error}")))
    }

    fn resolve(&self, target: &Target, image: Option<&str>) -> Result<Resolved, ArtifactError> {
        let index = self.index()?;
        let digest = match target {
            Target::Digest(digest) => *digest,
            Target::Tag(tag) => {
                let entries = index.descriptors(usize::MAX);
                let is = |entry: &&Descriptor| match image {
                    Some(image) => entry.annotations.get(IMAGE).is_some_and(|it| it == image),
                    None => entry.annotations.get(TAG) == Some(tag),
                };
                let mut found: Vec<Digest> = entries.iter().filter(is).map(|it| it.digest).collect();
                found.dedup();
                match found[..] {
                    [digest] => digest,
                    [] => {
                        return Err(self.error(ErrorKind::NotFound, &format!("it has no tag {}", image.unwrap_or(tag))));
                    }
                    _ => {
                        let cause = format!("the tag {tag} stands for several artifacts; name one by digest");
                        return Err(self.error(ErrorKind::Layout, &cause));
                    }
                }
            }
        };
        let bytes = self.manifest(digest)?;
        Ok(Resolved {
            digest,
            size: bytes.len() as u64,
            media_type: media_type_of(&bytes),
        })
    }

    fn manifest(&self, digest: Digest) -> Result<Bytes, ArtifactError> {
        let bytes = self.read(&blob_path(digest), MANIFEST_LIMIT)?;
        let bytes = bytes.ok_or_else(|| self.error(ErrorKind::NotFound, &format!("it has no manifest {digest}")))?;
        let found = Digest::of(&bytes);
        if found != digest {
            let cause = format!("the file of {digest} has the digest {found}; copy the artifact again");
            return Err(self.error(ErrorKind::DigestMismatch, &cause));
        }
        Ok(bytes)
    }

    fn tags(&self) -> Result<Vec<String>, ArtifactError> {
        let mut tags: Vec<String> = self
            .index()?
            .descriptors(self.limits.tags)
            .iter()
            .filter_map(|it| it.annotations.get(TAG).cloned())
            .collect();
        tags.retain(|tag| is_tag(tag));
        tags.sort();
        tags.dedup();
        Ok(tags)
    }

    /// The manifests of index.json with this subject, and the content of the fallback tag.
    fn referrers(&self, digest: Digest) -> Result<Vec<Descriptor>, ArtifactError> {
        let Target::Tag(fallback) = fallback_tag(digest) else {
            return Ok(Vec::new());
        };
        let mut found: BTreeMap<Digest, Descriptor> = BTreeMap::new();
        for entry in self.index()?.descriptors(usize::MAX) {
            if found.len() >= self.limits.referrers {
                break;
            }
            let is_fallback = entry.annotations.get(TAG) == Some(&fallback);
            let Ok(bytes) = self.manifest(entry.digest) else {
                continue;
            };
            if is_fallback && let Some(index) = Listed::read(&bytes) {
                let rest = self.limits.referrers - found.len();
                found.extend(index.descriptors(rest).into_iter().map(|it| (it.digest, it)));
                continue;
            }
            let document: Belonging = parse_lenient(&bytes);
            if document.subject.is_some_and(|subject| subject.digest == digest) {
                let mut descriptor = Descriptor::of(&entry.media_type, &bytes);
                descriptor.artifact_type = document.artifact_type.or(document.config.map(|it| it.media_type));
                descriptor.annotations = document.annotations.unwrap_or_default();
                found.insert(descriptor.digest, descriptor);
            }
        }
        Ok(found.into_values().collect())
    }

    /// The directory to write to, made a layout if it is none.
    fn writable(&self) -> Result<PathBuf, ArtifactError> {
        let root = &self.location.path;
        if !self.location.archive {
            let is_empty = |mut directory: std::fs::ReadDir| directory.next().is_none();
            if !root.join(MARK).exists() && std::fs::read_dir(root).is_ok_and(|directory| !is_empty(directory)) {
                let cause = "the directory has other files; name an empty one, or an OCI layout";
                return Err(self.error(ErrorKind::Layout, cause));
            }
            begin(root)?;
            return Ok(root.clone());
        }
        let mut archive = self.archive.lock();
        if let Some(staged) = &archive.staged {
            return Ok(staged.path().to_owned());
        }
        let parent = root
            .parent()
            .filter(|it| !it.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let staged = TempDir::new_in(parent).map_err(|error| ArtifactError::io("write in", parent, &error))?;
        if root.exists() {
            // The existing content stays, if it is a layout at all.
            drop(archive);
            let index = serde_json::to_vec(&self.index()?).expect("it is written as JSON");
            begin(staged.path())?;
            replace(&staged.path().join(INDEX), &index)?;
            archive = self.archive.lock();
        } else {
            archive.entries = Some(Arc::default());
            begin(staged.path())?;
        }
        let path = staged.path().to_owned();
        archive.staged = Some(Arc::new(staged));
        Ok(path)
    }

    fn holds(&self, digest: Digest, size: u64) -> Result<bool, ArtifactError> {
        let Some(span) = self.find(&blob_path(digest))?.filter(|span| span.length == size) else {
            return Ok(false);
        };
        let mut hasher = Hashing::default();
        let read = File::open(&span.file).and_then(|mut file| {
            file.seek(SeekFrom::Start(span.offset))?;
            hasher.copy(&mut file.take(span.length), &mut std::io::sink())
        });
        read.map_err(|error| ArtifactError::io("read", &span.file, &error))?;
        Ok(hasher.digest() == digest)
    }

    fn write_blob(&self, digest: Digest, size: u64, content: &Content) -> Result<(), ArtifactError> {
        let root = self.writable()?;
        if self.holds(digest, size)? {
            return Ok(());
        }
        let path = root.join(blob_path(digest));
        let failed = |error: std::io::Error| ArtifactError::io("write", &path, &error);
        let mut file = tempfile::NamedTempFile::new_in(root.join("blobs/sha256")).map_err(failed)?;
        let mut hasher = Hashing::default();
        let copied = match content {
            Content::Bytes(bytes) => hasher.copy(&mut &bytes[..], file.as_file_mut()),
            Content::File(source) => {
                let mut source_file = File::open(source).map_err(|error| ArtifactError::io("read", source, &error))?;
                hasher.copy(&mut source_file, file.as_file_mut())
            }
        };
        copied.map_err(failed)?;
        if hasher.digest() != digest || hasher.length != size {
            let cause = format!("what was to be written as {digest} has the digest {}", hasher.digest());
            return Err(self.error(ErrorKind::DigestMismatch, &cause));
        }
        keep(file, &path)
    }

    fn write_manifest(
        &self,
        bytes: &Bytes,
        mut entry: Descriptor,
        tag: Option<&str>,
        image: Option<String>,
    ) -> Result<(), ArtifactError> {
        self.write_blob(entry.digest, entry.size, &Content::Bytes(bytes.clone()))?;
        let root = self.writable()?;
        // Two processes may copy into one directory.
        let mark = root.join(MARK);
        let lock = File::open(&mark).and_then(|file| file.lock().map(|()| file));
        let _lock = lock.map_err(|error| ArtifactError::io("lock", &mark, &error))?;
        let mut index = self.index()?;
        let read = |it: &serde_json::Value| Descriptor::deserialize(it).ok();
        let document: Belonging = parse_lenient(bytes);
        entry.artifact_type = document.artifact_type;
        if let Some(tag) = tag {
            entry.annotations.insert(TAG.to_owned(), tag.to_owned());
            if let Some(image) = image {
                entry.annotations.insert(IMAGE.to_owned(), image);
            }
            // The tag moves, but not from an artifact of another repository that has the same.
            let moved = |it: &Descriptor| {
                let other = it.annotations.get(IMAGE);
                it.annotations.get(TAG).is_some_and(|it| it == tag)
                    && (other.is_none() || other == entry.annotations.get(IMAGE))
            };
            let unnamed = |it: &Descriptor| it.digest == entry.digest && !it.annotations.contains_key(TAG);
            index
                .manifests
                .retain(|it| !read(it).is_some_and(|it| moved(&it) || unnamed(&it)));
        } else if index
            .manifests
            .iter()
            .filter_map(read)
            .any(|it| it.digest == entry.digest)
        {
            return Ok(());
        }
        index
            .manifests
            .push(serde_json::to_value(&entry).expect("it is written as JSON"));
        let index = serde_json::to_vec(&index).expect("it is written as JSON");
        if index.len() as u64 > MANIFEST_LIMIT {
            return Err(self.error(
                ErrorKind::TooLarge,
                "its index.json would become too large; use another layout",
            ));
        }
        replace(&root.join(INDEX), &index)
    }

    fn finish(&self) -> Result<(), ArtifactError> {
        let mut archive = self.archive.lock();
        let Some(staged) = archive.staged.take() else {
            return Ok(());
        };
        let base = archive.entries.take().unwrap_or_default();
        archive::write(&self.location.path, &base, staged.path())
    }
}

fn is_absent(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
    )
}

/// Creates an empty layout if there is none.
fn begin(root: &Path) -> Result<(), ArtifactError> {
    let blobs = root.join("blobs/sha256");
    std::fs::create_dir_all(&blobs).map_err(|error| ArtifactError::io("make", &blobs, &error))?;
    for (name, text) in [
        (
            INDEX,
            serde_json::to_string(&Index::empty()).expect("it is written as JSON"),
        ),
        (MARK, MARK_TEXT.to_owned()),
    ] {
        let path = root.join(name);
        if !path.exists() {
            replace(&path, text.as_bytes())?;
        }
    }
    Ok(())
}

/// Writes beside the file and renames.
fn replace(path: &Path, bytes: &[u8]) -> Result<(), ArtifactError> {
    let failed = |error: std::io::Error| ArtifactError::io("write", path, &error);
    let mut file = tempfile::NamedTempFile::new_in(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    keep(file, path)
}

/// Gives a written file its name, and a mode that lets others read it.
pub(crate) fn keep(file: tempfile::NamedTempFile, path: &Path) -> Result<(), ArtifactError> {
    use std::os::unix::fs::PermissionsExt as _;
    let failed = |error: std::io::Error| ArtifactError::io("write", path, &error);
    file.as_file().sync_all().map_err(failed)?;
    file.as_file()
        .set_permissions(std::fs::Permissions::from_mode(0o644))
        .map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Copies and hashes.
#[derive(Default)]
struct Hashing {
    hasher: sha2::Sha256,
    length: u64,
}

impl Hashing {
    fn copy(&mut self, from: &mut dyn std::io::Read, to: &mut dyn std::io::Write) -> std::io::Result<()> {
        use sha2::Digest as _;
        let mut piece = vec![0; PIECE];
        loop {
            let read = from.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            self.hasher.update(&piece[..read]);
            self.length += read as u64;
            to.write_all(&piece[..read])?;
        }
    }

    fn digest(&self) -> Digest {
        use sha2::Digest as _;
        Digest::from_bytes(self.hasher.clone().finalize().into())
    }
}

/// An untrusted path in an archive, for messages.
pub(crate) fn shown(path: &[u8]) -> String {
    quoted(&String::from_utf8_lossy(path))
}
