//! Reads and writes the tar around an OCI layout. Reading builds an index of its files, so that nothing is unpacked.
//!
//! A tar is not trusted. Names are only looked up and never used as paths, entries other than files and directories are
//! refused, and extended headers are skipped unread: a layout's names are too short to need them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Component, Path};

use tar::EntryType;

use crate::layout::{INDEX, MARK, keep, shown};
use crate::{ArtifactError, ErrorKind};

/// The highest number of entries of a tar.
const ENTRIES: usize = 100_000;

/// The files of a layout in a tar, with their offset and length.
pub(crate) type Entries = BTreeMap<String, (u64, u64)>;

pub(crate) fn entries(path: &Path) -> Result<Entries, ArtifactError> {
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::PermissionDenied => ArtifactError::io("read", path, &error),
        _ => refuse(path, &format!("it is not a tar ({error})")),
    };
    let file = File::open(path).map_err(failed)?;
    let length = file.metadata().map_err(failed)?.len();
    let mut archive = tar::Archive::new(file);
    let mut found = Entries::new();
    for (count, entry) in archive.entries_with_seek().map_err(failed)?.raw(true).enumerate() {
        let entry = entry.map_err(failed)?;
        if count >= ENTRIES {
            return Err(refuse(path, &format!("it has more than {ENTRIES} entries")));
        }
        let name = entry.path_bytes().into_owned();
        match entry.header().entry_type() {
            EntryType::Regular | EntryType::Continuous => {}
            EntryType::Directory
            | EntryType::XHeader
            | EntryType::XGlobalHeader
            | EntryType::GNULongName
            | EntryType::GNULongLink => continue,
            EntryType::Symlink | EntryType::Link => {
                return Err(refuse(path, &format!("its entry {} is a link", shown(&name))));
            }
            _ => {
                return Err(refuse(
                    path,
                    &format!("its entry {} is neither a file nor a directory", shown(&name)),
                ));
            }
        }
        let name = String::from_utf8(name).map_err(|error| {
            refuse(
                path,
                &format!("its entry {} has a name that is not UTF-8", shown(error.as_bytes())),
            )
        })?;
        let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !Path::new(&name).components().all(is_plain) {
            return Err(refuse(
                path,
                &format!("its entry {} leads out of it", shown(name.as_bytes())),
            ));
        }
        let (offset, size) = (entry.raw_file_position(), entry.size());
        if offset.checked_add(size).is_none_or(|end| end > length) {
            return Err(refuse(path, "it is cut off"));
        }
        let name = name.trim_start_matches("./").to_owned();
        let twice = found.insert(name, (offset, size));
        if twice.is_some() {
            return Err(refuse(path, "it has a file twice"));
        }
    }
    Ok(found)
}

fn refuse(path: &Path, problem: &str) -> ArtifactError {
    ArtifactError::new(
        ErrorKind::Layout,
        format!(
            "oci-archive:{} is refused: {problem}; make it anew with `pilothouse copy`",
            path.display()
        ),
    )
}

/// Writes a tar of the former and the staged files beside the old one, and renames it. Equal content, equal bytes.
pub(crate) fn write(path: &Path, base: &Entries, staged: &Path) -> Result<(), ArtifactError> {
    let failed = |error: std::io::Error| ArtifactError::io("write", path, &error);
    let parent = path
        .parent()
        .filter(|it| !it.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let file = tempfile::NamedTempFile::new_in(parent).map_err(failed)?;
    let mut names: BTreeMap<String, bool> = base
        .keys()
        .filter(|name| name.starts_with("blobs/sha256/"))
        .map(|name| (name.clone(), false))
        .collect();
    for entry in std::fs::read_dir(staged.join("blobs/sha256")).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.insert(format!("blobs/sha256/{}", name.to_string_lossy()), true);
    }
    let mut builder = tar::Builder::new(BufWriter::new(file));
    for (name, is_staged) in [(MARK, true), (INDEX, true)]
        .into_iter()
        .chain(names.iter().map(|(name, it)| (name.as_str(), *it)))
    {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_mtime(0);
        header.set_entry_type(EntryType::Regular);
        let (from, offset, size) = if is_staged {
            let from = staged.join(name);
            let size = std::fs::metadata(&from).map_err(failed)?.len();
            (from, 0, size)
        } else {
            let (offset, size) = base[name];
            (path.to_owned(), offset, size)
        };
        header.set_size(size);
        let mut source = File::open(from).map_err(failed)?;
        source.seek(SeekFrom::Start(offset)).map_err(failed)?;
        builder
            .append_data(&mut header, name, source.take(size))
            .map_err(failed)?;
    }
    let mut writer = builder.into_inner().map_err(failed)?;
    writer.flush().map_err(failed)?;
    let file = writer.into_inner().map_err(|error| failed(error.into_error()))?;
    keep(file, path)
}
