//! Tests of the cache. A second handle stands for a second process: locks are those of open files, which both have.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use super::*;

fn cache(limit: u64) -> (TempDir, ArtifactCache) {
    let directory = tempfile::tempdir().unwrap();
    let cache = ArtifactCache::open(&directory.path().join("cache"), limit).unwrap();
    (directory, cache)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

/// A blob of so many bytes, last used so long ago.
fn blob(cache: &ArtifactCache, name: u8, bytes: usize, age: u64) -> Digest {
    let hold = cache.put(&vec![name; bytes]).unwrap();
    set_age(hold.path(), age);
    *hold.digest()
}

fn set_age(path: &Path, age: u64) {
    let time = SystemTime::now() - Duration::from_secs(age);
    File::open(path).unwrap().set_modified(time).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let names = fs::read_dir(directory).unwrap();
    names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

fn partial(cache: &ArtifactCache) -> PathBuf {
    cache.directory().join("partial")
}

#[test]
fn what_was_put_is_found_by_another_handle_and_is_ours_alone() {
    let (_directory, cache) = cache(1 << 20);
    let digest = *cache.put(b"component").unwrap().digest();
    assert_eq!(digest, Digest::of(b"component"));
    let other = ArtifactCache::open(cache.directory(), 1 << 20).unwrap();
    assert_eq!(other.read(&digest, 9).unwrap().as_deref(), Some(&b"component"[..]));
    assert_eq!(other.read(&digest, 8).unwrap(), None);
    let path = other.component_path(&digest).unwrap().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"component");
    assert_eq!(other.hold(&Digest::of(b"other")).unwrap().map(|_| ()), None);
    assert_eq!(mode(&path), 0o600);
    for directory in ["", "blobs", "blobs/sha256", "partial", "records"] {
        assert_eq!(mode(&cache.directory().join(directory)), 0o700, "{directory}");
    }
    let usage = CacheUsage {
        bytes: 9,
        limit: 1 << 20,
        blobs: 1,
        records: 0,
    };
    assert_eq!(cache.usage(), usage);
    assert_eq!(names(&partial(&cache)), Vec::<String>::new());
}

#[test]
fn edited_or_truncated_file_is_removed_and_fetched_again() {
    let (_directory, cache) = cache(1 << 20);
    let digest = *cache.put(b"component").unwrap().digest();
    let path = cache.component_path(&digest).unwrap().unwrap();
    for content in [&b"Component"[..], b"compo", b"", b"component and more"] {
        fs::write(&path, content).unwrap();
        assert_eq!(cache.component_path(&digest).unwrap(), None);
        assert!(!path.exists(), "{content:?}");
        cache.put(b"component").unwrap();
        assert_eq!(cache.read(&digest, 100).unwrap().as_deref(), Some(&b"component"[..]));
    }
    // While it is held too: the holder sees it at its next look.
    let hold = cache.hold(&digest).unwrap().unwrap();
    fs::write(&path, b"Component").unwrap();
    assert!(matches!(hold.read(), Err(CacheError::Digest { .. })));
    assert_eq!(cache.component_path(&digest).unwrap(), None);
    cache.put(b"component").unwrap();
    assert!(cache.component_path(&digest).unwrap().is_some());
}

#[test]
fn only_our_own_plain_files_are_read() {
    let (directory, cache) = cache(1 << 20);
    let digest = *cache.put(b"component").unwrap().digest();
    let path = cache.component_path(&digest).unwrap().unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    assert_eq!(cache.component_path(&digest).unwrap(), None, "others may write to it");
    let elsewhere = directory.path().join("elsewhere");
    fs::write(&elsewhere, b"component").unwrap();
    symlink(&elsewhere, &path).unwrap();
    assert_eq!(cache.component_path(&digest).unwrap(), None, "it is a link");
    assert_eq!(fs::read(&elsewhere).unwrap(), b"component");
    let (kind, permissions) = (
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
    );
    rustix::fs::mknodat(rustix::fs::CWD, &path, kind, permissions, 0).unwrap();
    assert_eq!(cache.component_path(&digest).unwrap(), None, "it is a pipe");
    // A partial file that is a link is not written through.
    let other = Digest::of(b"other");
    symlink(&elsewhere, partial(&cache).join(other.hex())).unwrap();
    assert_eq!(*cache.put(b"other").unwrap().digest(), other);
    assert_eq!(fs::read(&elsewhere).unwrap(), b"component");
}

#[test]
fn a_directory_that_is_not_ours_alone_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let open = |name: &str| ArtifactCache::open(&directory.path().join(name), 1 << 20).map(|_| ());
    fs::write(directory.path().join("file"), "").unwrap();
    assert!(matches!(open("file"), Err(CacheError::NotADirectory { .. })));
    fs::create_dir(directory.path().join("open")).unwrap();
    fs::set_permissions(directory.path().join("open"), fs::Permissions::from_mode(0o777)).unwrap();
    let error = open("open").unwrap_err();
    assert!(matches!(error, CacheError::WritableByOthers { mode: 0o777, .. }));
    assert!(error.to_string().contains("chmod go-w"), "{error}");
    assert!(matches!(open("file/cache"), Err(CacheError::Make { .. })));
    for name in ["blobs", "partial", "records"] {
        let cache = directory.path().join(format!("cache-{name}"));
        fs::create_dir(&cache).unwrap();
        symlink(directory.path().join("open"), cache.join(name)).unwrap();
        let error = ArtifactCache::open(&cache, 1 << 20).unwrap_err();
        assert!(matches!(error, CacheError::NotADirectory { .. }), "{error}");
    }
    if rustix::process::geteuid().is_root() {
        fs::create_dir(directory.path().join("foreign")).unwrap();
        std::os::unix::fs::chown(directory.path().join("foreign"), Some(65534), None).unwrap();
        let error = open("foreign").unwrap_err();
        assert!(
            matches!(
                error,
                CacheError::ForeignOwner {
                    owner: 65534,
                    user: 0,
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn what_was_not_used_for_longest_is_removed_first() {
    let (_directory, cache) = cache(1000);
    let oldest = blob(&cache, b'a', 300, 4000);
    let old = blob(&cache, b'b', 300, 3000);
    let recent = blob(&cache, b'c', 300, 2000);
    // Reading counts as use.
    assert!(cache.component_path(&oldest).unwrap().is_some());
    let new = blob(&cache, b'd', 300, 0);
    let is_there = |digest: &Digest| cache.component_path(digest).unwrap().is_some();
    assert_eq!(
        [oldest, old, recent, new].map(|digest| is_there(&digest)),
        [true, false, true, true]
    );
    assert_eq!(cache.usage().bytes, 900);
}

#[test]
fn what_is_held_is_never_removed_to_make_room() {
    let (_directory, cache) = cache(1000);
    let held = blob(&cache, b'a', 400, 4000);
    let free = blob(&cache, b'b', 400, 2000);
    let other = ArtifactCache::open(cache.directory(), 1000).unwrap();
    let hold = other.hold(&held).unwrap().unwrap();
    set_age(hold.path(), 4000);
    let new = cache.put(&[b'c'; 400]).unwrap();
    assert!(cache.component_path(&held).unwrap().is_some());
    assert!(cache.component_path(&free).unwrap().is_none());
    let error = cache.put(&[b'd'; 400]).unwrap_err();
    assert!(
        matches!(
            error,
            CacheError::Full {
                needed: 400,
                used: 800,
                limit: 1000,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("--artifact-cache-size"), "{error}");
    drop(hold);
    cache.put(&[b'd'; 400]).unwrap();
    assert!(cache.component_path(&held).unwrap().is_none());
    assert!(new.path().exists());
    assert!(matches!(cache.put(&[b'e'; 1001]), Err(CacheError::Full { .. })));
}

#[test]
fn an_interrupted_download_is_gone_on_with() {
    let (_directory, cache) = cache(1 << 20);
    let digest = Digest::of(b"component");
    let mut writer = cache.writer(digest, 9).unwrap();
    writer.write(b"comp").unwrap();
    drop(writer);
    assert_eq!(cache.component_path(&digest).unwrap(), None);
    let mut writer = cache.writer(digest, 9).unwrap();
    assert_eq!(writer.position(), 4);
    writer.write(b"onent").unwrap();
    let hold = writer.commit().unwrap();
    assert_eq!(hold.read().unwrap(), b"component");
    assert_eq!(mode(hold.path()), 0o600);
    assert_eq!(names(&partial(&cache)), Vec::<String>::new());
    // A server that does not send a part begins again.
    let digest = Digest::of(b"another");
    cache.writer(digest, 7).unwrap().write(b"wrong").unwrap();
    let mut writer = cache.writer(digest, 7).unwrap();
    writer.restart().unwrap();
    assert_eq!(writer.position(), 0);
    writer.write(b"another").unwrap();
    writer.commit().unwrap();
    // A file that is longer than the blob is no beginning of it.
    let digest = Digest::of(b"third");
    fs::write(partial(&cache).join(digest.hex()), "much longer").unwrap();
    assert_eq!(cache.writer(digest, 5).unwrap().position(), 0);
}

#[test]
fn what_is_not_what_was_announced_is_never_put_in_place() {
    let (_directory, cache) = cache(1 << 20);
    let digest = Digest::of(b"component");
    let mut writer = cache.writer(digest, 9).unwrap();
    writer.write(b"compo").unwrap();
    assert!(matches!(
        writer.write(b"nents"),
        Err(CacheError::Size {
            size: 9,
            written: 10,
            ..
        })
    ));
    assert!(matches!(
        writer.commit(),
        Err(CacheError::Size {
            size: 9,
            written: 5,
            ..
        })
    ));
    // The beginning stays; that it was forged shows at the end, and then it goes.
    let mut writer = cache.writer(digest, 9).unwrap();
    assert_eq!(writer.position(), 5);
    writer.write(b"nenT").unwrap();
    let error = writer.commit().unwrap_err();
    assert!(
        matches!(error, CacheError::Digest { expected, .. } if expected == digest),
        "{error}"
    );
    assert_eq!(names(&partial(&cache)), Vec::<String>::new());
    assert_eq!(cache.component_path(&digest).unwrap(), None);
}

#[test]
fn two_writers_of_one_blob_do_not_wait_for_each_other() {
    let (_directory, cache) = cache(1 << 20);
    let other = ArtifactCache::open(cache.directory(), 1 << 20).unwrap();
    let digest = Digest::of(b"component");
    let mut first = cache.writer(digest, 9).unwrap();
    first.write(b"comp").unwrap();
    let mut second = other.writer(digest, 9).unwrap();
    assert_eq!(second.position(), 0, "the first one's file is not shared");
    second.write(b"component").unwrap();
    first.write(b"onent").unwrap();
    let (first, second) = (first.commit().unwrap(), second.commit().unwrap());
    assert_eq!(
        (first.read().unwrap(), second.read().unwrap()),
        (b"component".to_vec(), b"component".to_vec())
    );
    assert!(hold::is_at(&File::open(first.path()).unwrap(), second.path()));
    assert_eq!(names(&partial(&cache)), Vec::<String>::new());
    // In the other order too, where the first one's partial file becomes superfluous.
    let digest = Digest::of(b"another");
    let (mut first, mut second) = (cache.writer(digest, 7).unwrap(), other.writer(digest, 7).unwrap());
    first.write(b"another").unwrap();
    second.write(b"another").unwrap();
    let second = second.commit().unwrap();
    let first = first.commit().unwrap();
    assert_eq!(
        (first.read().unwrap(), second.read().unwrap()),
        (b"another".to_vec(), b"another".to_vec())
    );
    assert_eq!(names(&partial(&cache)), Vec::<String>::new());
}

#[test]
fn many_threads_with_handles_of_their_own_tear_nothing() {
    let (_directory, cache) = cache(4 * 5000);
    let directory = cache.directory().to_owned();
    let threads: Vec<_> = (0..8u8)
        .map(|thread| {
            let directory = directory.clone();
            std::thread::spawn(move || {
                let cache = ArtifactCache::open(&directory, 4 * 5000).unwrap();
                for round in 0..40u8 {
                    let content = vec![(thread + round) % 5; 4000];
                    // All may be in use at once, which is an error and nothing else.
                    match cache.put(&content) {
                        Ok(hold) => assert_eq!(hold.read().unwrap(), content),
                        Err(CacheError::Full { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    if let Some(read) = cache.read(&Digest::of(&content), 4000).unwrap() {
                        assert_eq!(read, content);
                    }
                    let key = format!("key-{}", round % 3);
                    match cache.put_record("test", &key, format!("{key}{thread}").as_bytes()) {
                        Ok(_) | Err(CacheError::Full { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                    let record = cache.record("test", &key).unwrap();
                    assert!(record.is_none_or(|record| record.starts_with(key.as_bytes())));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for name in names(&cache.directory().join("blobs/sha256")) {
        let digest = format!("sha256:{name}").parse().unwrap();
        assert!(cache.component_path(&digest).unwrap().is_some(), "{name} is damaged");
    }
    let left: Vec<_> = names(&partial(&cache))
        .into_iter()
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, Vec::<String>::new());
}

#[test]
fn a_full_disk_fails_the_write_and_leaves_reads() {
    let (_directory, cache) = cache(1 << 20);
    let kept = blob(&cache, b'a', 10, 0);
    let digest = Digest::of(b"component");
    let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut writer = cache.writer(digest, 9).unwrap().redirected(full);
    let text = writer.write(b"component").unwrap_err().to_string();
    assert!(
        text.contains("No space left") && text.contains(&digest.hex()) && text.contains("free space"),
        "{text}"
    );
    assert_eq!(writer.position(), 0);
    assert!(matches!(writer.commit(), Err(CacheError::Size { .. })));
    assert!(cache.component_path(&kept).unwrap().is_some());
}

#[test]
fn a_cache_that_cannot_be_written_to_answers_reads() {
    let (_directory, cache) = cache(1 << 20);
    let kept = blob(&cache, b'a', 10, 4000);
    cache.put_record("signatures", "a", b"1").unwrap();
    // Root writes to read-only directories, so files take the places of those in which something would be made.
    for name in ["partial", "records/other"] {
        let _ = fs::remove_dir(cache.directory().join(name));
        fs::write(cache.directory().join(name), "").unwrap();
    }
    let error = cache.put(b"component").unwrap_err();
    assert!(error.to_string().contains("partial"), "{error}");
    assert!(cache.put_record("other", "a", b"1").is_err());
    assert!(cache.component_path(&kept).unwrap().is_some());
    assert_eq!(cache.record("signatures", "a").unwrap().as_deref(), Some(&b"1"[..]));
    // What is there already needs no write.
    cache.put(&[b'a'; 10]).unwrap();
    cache.put_record("signatures", "a", b"1").unwrap();
}

#[test]
fn leftovers_are_swept_and_downloads_are_kept_for_a_week() {
    let (_directory, cache) = cache(1 << 20);
    let day = 24 * 3600;
    let files = [
        ("partial/.new-old", 2 * day, false),
        ("partial/.new-recent", 60, true),
        ("partial/0a", 6 * day, true),
        ("partial/0b", 8 * day, false),
        ("blobs/sha256/0c", 100 * day, true),
    ];
    for (name, age, _) in files {
        let path = cache.directory().join(name);
        fs::write(&path, "x").unwrap();
        set_age(&path, age);
    }
    // One that somebody is writing is left, however old.
    let writer = cache.writer(Digest::of(b"component"), 9).unwrap();
    set_age(&partial(&cache).join(Digest::of(b"component").hex()), 9 * day);
    ArtifactCache::open(cache.directory(), 1 << 20).unwrap();
    for (name, _, stays) in files {
        assert_eq!(cache.directory().join(name).exists(), stays, "{name}");
    }
    assert!(partial(&cache).join(Digest::of(b"component").hex()).exists());
    drop(writer);
}

#[test]
fn a_record_is_what_was_recorded_under_its_key() {
    let (_directory, cache) = cache(1 << 20);
    let key = "registry.example.com/a@sha256:00";
    assert_eq!(cache.record("signatures", key).unwrap(), None);
    cache.put_record("signatures", key, b"one\ntwo").unwrap();
    assert_eq!(
        cache.record("signatures", key).unwrap().as_deref(),
        Some(&b"one\ntwo"[..])
    );
    let hold = cache.put_record("signatures", key, b"").unwrap();
    assert_eq!((hold.size(), *hold.digest()), (0, Digest::of(b"")));
    assert_eq!(cache.record("signatures", key).unwrap().as_deref(), Some(&b""[..]));
    assert_eq!(cache.record("other", key).unwrap(), None);
    // The same content again replaces nothing, so what is held stays what is there.
    cache.put_record("signatures", key, b"").unwrap();
    let file = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = file(hold.path());
    cache.put_record("signatures", key, b"").unwrap();
    assert_eq!(file(hold.path()), before);
    let other = "registry.example.com/b@sha256:00";
    cache.put_record("signatures", other, b"other").unwrap();
    assert_eq!(cache.usage().records, 2);
    // Another key's record in its place is not taken for it.
    let path = |key: &str| {
        cache
            .directory()
            .join("records/signatures")
            .join(Digest::of(key.as_bytes()).hex())
    };
    assert_eq!(mode(&path(key)), 0o600);
    fs::copy(path(other), path(key)).unwrap();
    assert_eq!(cache.record("signatures", key).unwrap(), None);
    assert!(!path(key).exists());
    for edited in ["", "\n", "sha256:00\n", "other"] {
        let text = fs::read_to_string(path(other)).unwrap();
        let edited = if edited == "other" {
            text.replace("\nother", "\nOther")
        } else {
            edited.to_owned()
        };
        fs::write(path(other), edited).unwrap();
        assert_eq!(cache.record("signatures", other).unwrap(), None);
        assert!(!path(other).exists());
        cache.put_record("signatures", other, b"other").unwrap();
    }
    cache.remove_record("signatures", other).unwrap();
    cache.remove_record("signatures", other).unwrap();
    assert_eq!(cache.record("signatures", other).unwrap(), None);
}

#[test]
fn kinds_and_keys_never_leave_the_directory() {
    let (_directory, cache) = cache(1 << 20);
    for (kind, key) in [
        ("", "a"),
        ("..", "a"),
        ("a/b", "a"),
        ("A", "a"),
        ("a", ""),
        ("a", "b\nc"),
        ("a", &"k".repeat(1025)),
    ] {
        assert!(
            matches!(cache.put_record(kind, key, b""), Err(CacheError::Record { .. })),
            "{kind:?} {key:?}"
        );
        assert!(cache.record(kind, key).is_err());
        assert!(cache.remove_record(kind, key).is_err());
    }
    cache.put_record("a", "../../x", b"").unwrap();
    assert_eq!(
        names(&cache.directory().join("records/a")),
        [Digest::of(b"../../x").hex()]
    );
    assert!(matches!(
        cache.put_record("a", "a", &vec![0; (8 << 20) + 1]),
        Err(CacheError::Record { .. })
    ));
}

#[test]
fn records_make_room_and_are_held_like_blobs() {
    let (_directory, cache) = cache(1000);
    let old = cache.put_record("a", "old", &[b'x'; 300]).unwrap();
    set_age(old.path(), 4000);
    drop(old);
    let held = cache.put_record("a", "held", &[b'x'; 300]).unwrap();
    set_age(held.path(), 5000);
    cache.put(&[b'c'; 400]).unwrap();
    assert_eq!(cache.record("a", "old").unwrap(), None);
    assert!(cache.record("a", "held").unwrap().is_some());
    assert!(cache.hold_record("a", "held").unwrap().is_some());
    assert!(cache.hold_record("a", "old").unwrap().is_none());
}
