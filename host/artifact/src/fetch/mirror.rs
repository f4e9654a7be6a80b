//! A mirror as a source of an [`crate::ArtifactStore`]: whether it is still used, and the path of the layout in a
//! mirror's directory. The directory may be on a mount that hangs, so it is read only at its first use.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::OnceCell;

use crate::layout::reads::DirectoryReads;
use crate::layout::{Layout, MARK};
use crate::registry::Registry;
use crate::store::Place;
use crate::{ArtifactError, ErrorKind, LayoutLocation, Limits, Reference};

/// A place that is tried before the original one.
pub(crate) struct MirrorSource {
    place: OnceCell<Place>,
    /// The directory of the layout, unless the mirror is a registry.
    directory: Option<MirrorDirectory>,
    left_out: AtomicBool,
}

/// A directory with a layout for each repository, at the repository's path, or with one layout for all.
pub(crate) struct MirrorDirectory {
    pub(crate) location: LayoutLocation,
    /// The mirrored artifact.
    pub(crate) reference: Reference,
    pub(crate) limits: Limits,
    pub(crate) reads: DirectoryReads,
}

impl MirrorSource {
    pub(crate) fn registry(registry: Registry) -> Self {
        Self {
            place: OnceCell::new_with(Some(Place::Registry(registry))),
            directory: None,
            left_out: AtomicBool::new(false),
        }
    }

    pub(crate) fn directory(directory: MirrorDirectory) -> Self {
        Self {
            place: OnceCell::new(),
            directory: Some(directory),
            left_out: AtomicBool::new(false),
        }
    }

    pub(crate) async fn place(&self) -> Result<&Place, ArtifactError> {
        let look = async || {
            let directory = self.directory.as_ref().expect("a registry is a place from the start");
            directory.find().await
        };
        self.place.get_or_try_init(look).await
    }

    pub(crate) fn is_asked(&self) -> bool {
        !self.left_out.load(Ordering::Relaxed)
    }

    /// Records a failure. If it is not one of this artifact alone, the mirror is no longer used.
    pub(crate) fn record_failure(&self, error: &ArtifactError) {
        tracing::debug!(%error, "a mirror does not help");
        let absent = matches!(
            error.kind(),
            ErrorKind::NotFound | ErrorKind::Unauthorized | ErrorKind::Forbidden
        );
        if !absent {
            tracing::warn!(%error, "a mirror is left out from now on");
            self.left_out.store(true, Ordering::Relaxed);
        }
    }
}

impl MirrorDirectory {
    async fn find(&self) -> Result<Place, ArtifactError> {
        let mut location = self.location.clone();
        let own = location.path.join(self.reference.repository());
        let mark = own.join(MARK);
        let has_own = self.reads.run(&location.path, move || mark.exists()).await?;
        let mirrors = if has_own {
            location.path = own;
            None
        } else {
            Some(self.reference.name())
        };
        Ok(Place::Layout {
            layout: Layout::new(location, &self.limits, &self.reads),
            mirrors,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::layout::reads::tests::{hang, while_time_passes};
    use crate::{ArtifactBuilder, ArtifactStore, ComponentInfo, Location, Silent, Target};

    fn layout(path: &Path, reads: &DirectoryReads) -> Place {
        let Location::Layout(location) = Location::directory(path) else {
            unreachable!("a directory is a layout")
        };
        Place::Layout {
            layout: Layout::new(location, &Limits::default(), reads),
            mirrors: None,
        }
    }

    fn store(path: &Path, reads: &DirectoryReads, mirrors: Vec<MirrorSource>) -> ArtifactStore {
        ArtifactStore {
            location: Location::directory(path),
            limits: Limits::default(),
            mirrors,
            place: layout(path, reads),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_mirror_is_skipped_and_the_place_itself_answers() {
        let (reads, folder) = (DirectoryReads::default(), tempfile::tempdir().unwrap());
        let artifact = ArtifactBuilder::new(b"component".to_vec(), ComponentInfo::default()).build();
        let place = store(folder.path(), &reads, Vec::new());
        artifact.push(&place, Some("1"), &Silent).await.unwrap();

        let hung = Path::new("/hung");
        let Location::Layout(location) = Location::directory(hung) else {
            unreachable!("a directory is a layout")
        };
        let mirror = || {
            MirrorSource::directory(MirrorDirectory {
                location: location.clone(),
                reference: "ghcr.io/acme/plugin".parse().unwrap(),
                limits: Limits::default(),
                reads: reads.clone(),
            })
        };
        let _held = hang(&reads, hung).await;
        let error = while_time_passes(mirror().place()).await.err();
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Timeout));
        let store = store(folder.path(), &reads, vec![mirror()]);
        let resolved = while_time_passes(store.resolve(&Target::Tag("1".into())))
            .await
            .unwrap();
        assert_eq!(resolved.digest, artifact.descriptor.digest);
        assert!(!store.mirrors[0].is_asked());
        let before = tokio::time::Instant::now();
        store.manifest(resolved.digest).await.unwrap();
        assert_eq!(before.elapsed(), std::time::Duration::ZERO, "nobody waits for it again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_layout_on_a_mount_that_hangs_is_a_timeout() {
        let reads = DirectoryReads::default();
        let hung = Path::new("/hung");
        let _held = hang(&reads, hung).await;
        let store = store(hung, &reads, Vec::new());
        let error = while_time_passes(store.resolve(&Target::Tag("1".into())))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.is_transient());
    }
}
