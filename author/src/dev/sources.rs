//! Owns noticing that a project's sources, or a component's file, have changed. Files are looked at rather than watched: this
//! works on every file system, also on those of containers and networks, and takes no library.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, SystemTime};

use tokio::sync::mpsc;

/// How often files are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(300);

/// How often they are looked at while somebody writes them.
const SETTLE_INTERVAL: Duration = Duration::from_millis(40);

/// Folders that hold what is made from the sources, or what others keep there.
const IGNORED: [&str; 5] = ["target", "node_modules", "__pycache__", "dist", "build"];

/// What the names of files end in that programs write while they run, such as this one's output.
const IGNORED_ENDINGS: [&str; 3] = [".log", ".tmp", "~"];

/// The most files of a project that are looked at.
const MAX_FILES: usize = 20_000;

/// The state of files: which there are, and when each was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    fingerprint: u64,
    latest: Option<SystemTime>,
}

/// Looks at files on a thread of its own, and says each time when they have changed and nobody writes them any more: when
/// the latest was written. Ends with the receiver.
pub(super) fn follow(paths: Vec<PathBuf>) -> mpsc::UnboundedReceiver<SystemTime> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut known = look(&paths);
    thread::spawn(move || {
        while !sender.is_closed() {
            thread::sleep(LOOK_INTERVAL);
            let mut now = look(&paths);
            if now == known {
                continue;
            }
            loop {
                thread::sleep(SETTLE_INTERVAL);
                let next = look(&paths);
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

fn look(paths: &[PathBuf]) -> Look {
    let (mut hasher, mut latest, mut left) = (DefaultHasher::new(), None, MAX_FILES);
    for path in paths {
        add(path, &mut hasher, &mut latest, &mut left);
    }
    Look {
        fingerprint: hasher.finish(),
        latest,
    }
}

/// Adds a file, or the files of a folder in the order of their names. What cannot be read is as good as absent.
fn add(path: &Path, hasher: &mut DefaultHasher, latest: &mut Option<SystemTime>, left: &mut usize) {
    let Ok(metadata) = fs::metadata(path) else { return };
    if !metadata.is_dir() {
        if *left == 0 {
            return;
        }
        *left -= 1;
        let written = metadata.modified().ok();
        (path, metadata.len(), written).hash(hasher);
        *latest = (*latest).max(written);
        return;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut inside: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    inside.sort();
    for path in inside {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        // A link to a folder above would lead round in a circle.
        let is_link = path.is_symlink() && path.is_dir();
        let is_output = IGNORED_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if !name.starts_with('.') && !IGNORED.contains(&&*name) && !is_output && !is_link {
            add(&path, hasher, latest, left);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_count_and_what_is_made_of_them_does_not() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        for path in ["src/lib.rs", "target/debug/x", ".git/HEAD", "Cargo.toml"] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "1").unwrap();
        }
        let paths = [folder.path().to_owned()];
        let before = look(&paths);
        for path in ["target/debug/x", ".git/HEAD", "target/new", "dev.log"] {
            fs::write(at(path), "22").unwrap();
            assert_eq!(look(&paths), before, "{path}");
        }
        fs::write(at("src/lib.rs"), "22").unwrap();
        let after = look(&paths);
        assert_ne!(after, before);
        fs::write(at("src/new.rs"), "").unwrap();
        assert_ne!(look(&paths), after);
    }

    #[tokio::test]
    async fn a_file_that_is_replaced_is_noticed_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.wasm");
        fs::write(&file, "1").unwrap();
        let mut changes = follow(vec![file.clone()]);
        fs::write(&file, "22").unwrap();
        let noticed = tokio::time::timeout(Duration::from_secs(10), changes.recv()).await;
        assert!(noticed.unwrap().is_some());
        let again = tokio::time::timeout(3 * LOOK_INTERVAL, changes.recv()).await;
        assert!(again.is_err(), "it has not changed since then");
    }
}
