//! Finds a component in the plugin directory, and notices another one. OCI registries are handled by a crate of their
//! own, a hanging file system by `directory_reader`.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::directory_reader::{DirectoryReader, ReadHung};

/// Interval of the checks of a file.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Identity of a component's file at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComponentFile {
    /// Path of the file.
    pub file: PathBuf,
    stamp: FileStamp,
}

/// Properties that change when a file is written or replaced: device, inode, length, and the time of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct FileStamp(u64, u64, u64, i64, i64);

/// Reason why no component was found.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}; put the component there, or correct spec.source.file", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file system does not respond.
    #[error("cannot look at {}: {hung}", .path.display())]
    Hung {
        /// The file.
        path: PathBuf,
        /// The reads that have not returned.
        hung: ReadHung,
    },
    /// A link points outside of the plugin directory.
    #[error("{} leads out of the plugin directory {}; put the component itself there", .path.display(), .root.display())]
    Outside {
        /// The file.
        path: PathBuf,
        /// The plugin directory.
        root: PathBuf,
    },
    /// A directory does not contain exactly one component.
    #[error("the directory {} has {} components: [{}]; leave one there, or name it in spec.source.file",
        .path.display(), .names.len(), .names.join(", "))]
    NotOne {
        /// The directory.
        path: PathBuf,
        /// The components in it.
        names: Vec<String>,
    },
}

impl DirectoryReader {
    /// Finds a component: a file, or the only `.wasm` file of a directory.
    pub async fn find(&self, root: &Path, path: &Path) -> Result<ComponentFile, SourceError> {
        let whole = root.join(path);
        let (root, path) = (root.to_owned(), path.to_owned());
        let found = self.at(&whole, move || find_now(&root, &path)).await;
        found.unwrap_or_else(|hung| Err(SourceError::Hung { path: whole, hung }))
    }

    /// Waits until the component is replaced or appears, or until reads start or stop hanging: `trouble` is their state
    /// before.
    pub async fn changed(
        &self,
        root: &Path,
        path: &Path,
        before: Option<&ComponentFile>,
        trouble: Option<&ReadHung>,
    ) -> SourceChange {
        loop {
            tokio::time::sleep(LOOK_INTERVAL).await;
            let found = self.find(root, path).await;
            let hung = match &found {
                Err(SourceError::Hung { hung, .. }) => Some(hung),
                _ => None,
            };
            match &found {
                Ok(found) if Some(found) != before => return SourceChange::Component,
                _ if hung.is_some() != trouble.is_some() => return SourceChange::Trouble(hung.copied()),
                _ => {}
            }
        }
    }
}

/// Change of a component's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChange {
    /// The component is another one.
    Component,
    /// Reads hang, or no longer do.
    Trouble(Option<ReadHung>),
}

/// Finds a component; blocks.
fn find_now(root: &Path, path: &Path) -> Result<ComponentFile, SourceError> {
    let path = root.join(path);
    let read = |source| SourceError::Read {
        path: path.clone(),
        source,
    };
    let resolved = path.canonicalize().map_err(read)?;
    if !root.canonicalize().is_ok_and(|root| resolved.starts_with(root)) {
        return Err(SourceError::Outside {
            path,
            root: root.to_owned(),
        });
    }
    let file = if resolved.is_dir() {
        let mut names = components(&resolved).map_err(read)?;
        match (names.pop(), names.is_empty()) {
            (Some(name), true) => resolved.join(name),
            (last, _) => {
                names.extend(last);
                return Err(SourceError::NotOne { path, names });
            }
        }
    } else {
        resolved
    };
    let stamp = FileStamp::of(&fs::metadata(&file).map_err(read)?);
    Ok(ComponentFile { file, stamp })
}

fn components(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let path = entry.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "wasm") {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

impl FileStamp {
    fn of(metadata: &Metadata) -> Self {
        Self(
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_is_a_file_or_the_only_one_in_a_directory() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("d")).unwrap();
        fs::write(root.path().join("d/a.wasm"), "a").unwrap();
        fs::write(root.path().join("d/README.md"), "r").unwrap();
        let file = find_now(root.path(), Path::new("d/a.wasm")).unwrap();
        assert_eq!(find_now(root.path(), Path::new("d")).unwrap(), file);
        fs::write(root.path().join("d/b.wasm"), "b").unwrap();
        let error = find_now(root.path(), Path::new("d")).unwrap_err().to_string();
        assert!(error.contains("has 2 components: [a.wasm, b.wasm]"), "{error}");
        let error = find_now(root.path(), Path::new("none.wasm")).unwrap_err().to_string();
        assert!(
            error.contains("none.wasm: No such file") && error.contains("spec.source.file"),
            "{error}"
        );
    }

    #[test]
    fn a_link_out_of_the_directory_is_refused() {
        let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(other.path().join("a.wasm"), "a").unwrap();
        std::os::unix::fs::symlink(other.path().join("a.wasm"), root.path().join("a.wasm")).unwrap();
        let error = find_now(root.path(), Path::new("a.wasm")).unwrap_err().to_string();
        assert!(error.contains("leads out of the plugin directory"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_component_is_noticed() {
        let root = tempfile::tempdir().unwrap();
        let path = Path::new("a.wasm");
        fs::write(root.path().join(path), "a").unwrap();
        let before = find_now(root.path(), path).unwrap();
        let looks = DirectoryReader::new(crate::Blocking::Threads);
        let waits = looks.changed(root.path(), path, Some(&before), None);
        assert!(tokio::time::timeout(Duration::from_mins(1), waits).await.is_err());
        fs::write(root.path().join("new"), "b").unwrap();
        fs::rename(root.path().join("new"), root.path().join(path)).unwrap();
        let news = looks.changed(root.path(), path, Some(&before), None).await;
        assert_eq!(news, SourceChange::Component);
    }
}
