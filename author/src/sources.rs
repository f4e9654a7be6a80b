//! Finds the source files of a component by their names, and notices changes. Files are polled rather than watched:
//! this works on every file system, even on those of containers and networks, and needs no library.

use std::collections::hash_map::DefaultHasher;
use std::fs::{self, Metadata};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

/// Interval at which files are polled.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// Interval at which they are polled while they are being written.
const SETTLE_INTERVAL: Duration = Duration::from_millis(40);

/// Folders of dependencies and caches, at any depth.
const IGNORED: [&str; 2] = ["node_modules", "__pycache__"];

/// Folders of build results in the folder of a project. Further down, a module may have such a name.
const MADE: [&str; 3] = ["target", "dist", "build"];

/// Files and folders in the folder of a project that are about the component, but not part of it.
const BESIDE: [&str; 8] = [
    "deploy",
    "docs",
    "examples",
    "sample.yaml",
    "scenarios",
    "test",
    "tests",
    "LICENSE",
];

/// Endings of files that are not part of a component: programs write some while they run, such as this one's output,
/// and people read or test with the others.
const IGNORED_ENDINGS: [&str; 5] = [".log", ".tmp", "~", ".md", "_test.go"];

/// The file that a folder with an OCI layout has.
const OCI_LAYOUT: &str = "oci-layout";

/// Most files of a project that are polled.
const MAX_FILES: usize = 20_000;

/// Polled paths: files as they are, and the sources in folders of projects.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// Files and folders.
    pub paths: Vec<PathBuf>,
    /// Files in these folders that are ignored.
    pub except: Vec<PathBuf>,
}

/// State of files: their paths and modification times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Snapshot {
    fingerprint: u64,
    latest: Option<SystemTime>,
}

impl Sources {
    /// Returns the source that was written last, with its time.
    pub fn newest(&self) -> Option<(PathBuf, SystemTime)> {
        let mut newest: Option<(PathBuf, SystemTime)> = None;
        self.visit(|path, metadata| {
            if let Ok(written) = metadata.modified()
                && newest.as_ref().is_none_or(|(_, latest)| written > *latest)
            {
                newest = Some((path.to_owned(), written));
            }
        });
        newest
    }

    /// Polls the files on a thread of its own. Sends the time of the latest write each time when they have changed and
    /// are no longer being written. Ends with the receiver.
    pub(crate) fn follow(self) -> mpsc::UnboundedReceiver<SystemTime> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let mut known = self.scan();
        thread::spawn(move || {
            while !sender.is_closed() {
                thread::sleep(LOOK_INTERVAL);
                let mut now = self.scan();
                if now == known {
                    continue;
                }
                loop {
                    thread::sleep(SETTLE_INTERVAL);
                    let next = self.scan();
                    if next == now {
                        break;
                    }
                    now = next;
                }
                known = now;
                if sender.send(now.latest.unwrap_or_else(SystemTime::now)).is_err() {
                    return;
                }
            }
        });
        receiver
    }

    fn scan(&self) -> Snapshot {
        let (mut hasher, mut latest) = (DefaultHasher::new(), None);
        self.visit(|path, metadata| {
            let written = metadata.modified().ok();
            (path, metadata.len(), written).hash(&mut hasher);
            latest = latest.max(written);
        });
        Snapshot {
            fingerprint: hasher.finish(),
            latest,
        }
    }

    /// Passes each file to `visit`, those of a folder in the order of their names. Unreadable files are skipped.
    fn visit(&self, mut visit: impl FnMut(&Path, &Metadata)) {
        let mut left = MAX_FILES;
        for path in &self.paths {
            self.visit_below(path, Place::Given, &mut left, &mut visit);
        }
    }

    fn visit_below(&self, path: &Path, place: Place, left: &mut usize, visit: &mut impl FnMut(&Path, &Metadata)) {
        let Ok(metadata) = fs::metadata(path) else { return };
        if !metadata.is_dir() {
            if *left > 0 {
                *left -= 1;
                visit(path, &metadata);
            }
            return;
        }
        // Artifacts that `pilothouse push` has published are made from the sources.
        if path.join(OCI_LAYOUT).is_file() {
            return;
        }
        let entries = fs::read_dir(path).into_iter().flatten().flatten();
        let mut inside: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        inside.sort();
        for path in inside {
            if !self.except.contains(&path) && is_source(&path, place) {
                self.visit_below(&path, Place::Inside, left, visit);
            }
        }
    }
}

/// Place of a folder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// A folder that was given: a project's root.
    Given,
    /// A folder inside one that was given.
    Inside,
}

/// Reports whether a file or folder may be a part of the component, by its name and its folder's.
fn is_source(path: &Path, folder: Place) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_beside = folder == Place::Given && (BESIDE.contains(&&*name) || MADE.contains(&&*name));
    let is_ignored = IGNORED.contains(&&*name) || IGNORED_ENDINGS.iter().any(|ending| name.ends_with(ending));
    // A link to a folder above would lead round in a circle.
    let is_link = || path.is_symlink() && path.is_dir();
    !name.starts_with('.') && !is_beside && !is_ignored && !is_link()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn sources_count_and_what_is_made_of_them_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["src/lib.rs", "target/debug/x", ".git/HEAD", "Cargo.toml"] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "1").unwrap();
        }
        let sources = Sources {
            paths: vec![folder.path().to_owned()],
            except: vec![at("web.yaml")],
        };
        let before = sources.scan();
        for path in [
            "target/debug/x",
            ".git/HEAD",
            "target/new",
            "build/index.js",
            "src/node_modules/x.js",
            "dev.log",
            "README.md",
            "sample.yaml",
            "web.yaml",
            "scenarios/web.yaml",
            "tests/test_web.py",
            "web/web_test.go",
            "artifacts/oci-layout",
            "artifacts/index.json",
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "22").unwrap();
            assert_eq!(sources.scan(), before, "{path}");
        }
        let mut known = before;
        for path in [
            "src/lib.rs",
            "src/new.rs",
            "crd.yaml",
            "src/tests/mod.rs",
            "src/build/mod.rs",
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "22").unwrap();
            let now = sources.scan();
            assert_ne!(now, known, "{path}");
            known = now;
        }
        let late = SystemTime::now() + Duration::from_hours(1);
        File::open(at("crd.yaml")).unwrap().set_modified(late).unwrap();
        assert_eq!(sources.newest(), Some((at("crd.yaml"), late)));
    }

    #[tokio::test]
    async fn a_file_that_is_replaced_is_noticed_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.wasm");
        fs::write(&file, "1").unwrap();
        let file_alone = Sources {
            paths: vec![file.clone()],
            ..Sources::default()
        };
        let mut changes = file_alone.follow();
        fs::write(&file, "22").unwrap();
        let noticed = tokio::time::timeout(Duration::from_secs(10), changes.recv()).await;
        assert!(noticed.unwrap().is_some());
        let again = tokio::time::timeout(3 * LOOK_INTERVAL, changes.recv()).await;
        assert!(again.is_err(), "it has not changed since then");
    }
}
