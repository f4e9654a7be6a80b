//! Caches that are full, damaged, shared, or cannot be written to.

mod simulated {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::time::Duration;

    use pilothouse_artifact::{Descriptor, TrustSource};
    use pilothouse_end_to_end::fleet::Fleet;
    use pilothouse_test_registry::Registry;
    use pilothouse_test_registry::exchange::{Manner, reply};
    use pilothouse_testkit::host::SteeredHost as _;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use serde_json::Value;

    use super::super::{component, fetcher, host_with, plain, reference, registry_of, runs, tagged};

    /// Set for the child of the test of a full disk.
    const CHILD: &str = "PILOTHOUSE_TEST_FULL_DISK";

    async fn host_of(registries: &[&Registry], cache: &Path, cache_bytes: u64) -> Fleet {
        let trust = TrustSource::accept_unsigned();
        host_with(fetcher(plain(registries.iter().copied()), trust, cache, cache_bytes)).await
    }

    fn blob(cache: &Path, component: &[u8]) -> PathBuf {
        cache
            .join("blobs/sha256")
            .join(pilothouse_artifact::Digest::of(component).hex())
    }

    /// Waits until the Plugin has a condition about the cache that names the reference, the file and the next step.
    async fn fails_by_cache(fleet: &Fleet, reference: &str, words: &[&str]) -> Value {
        let told = fleet.says("it", "Fetched", "False", "CacheFailed").await;
        let message = told["message"].as_str().unwrap();
        for words in words.iter().copied().chain([reference]) {
            assert!(message.contains(words), "{words:?} is not in: {message}");
        }
        told
    }

    #[tokio::test]
    async fn an_edited_component_in_the_cache_is_fetched_again() {
        let bytes = component("hostile", 2, 1);
        let (registry, manifest) = registry_of(&bytes).await;
        let folder = tempfile::tempdir().unwrap();
        let mut fleet = host_of(&[&registry], folder.path(), 1 << 30).await;
        fleet.plugin("it", tagged(&reference(&registry))).await;
        runs(&fleet, "it", &manifest).await;
        fleet.stage.host.stop().await.unwrap();

        // The edit is a component that would run if it were loaded.
        fs::write(blob(folder.path(), &bytes), component("hostile", 3, 1)).unwrap();
        registry.hook(|_, _| Some(reply(503, &[], "")));
        fleet.start_host().await;
        fleet.says("it", "Fetched", "False", "RegistryFailed").await;
        fleet.says("it", "Ready", "False", "RegistryFailed").await;
        assert!(!blob(folder.path(), &bytes).exists(), "what was edited is removed");
        registry.change(|state| state.hook = None);
        runs(&fleet, "it", &manifest).await;
        assert_eq!(fs::read(blob(folder.path(), &bytes)).unwrap(), bytes);
        fleet.stage.stop().await;
    }

    #[tokio::test]
    async fn a_read_only_cache_is_reported_and_still_used() {
        let (registry, first) = registry_of(&component("hostile", 2, 1)).await;
        let (next, second) = registry_of(&component("hostile", 3, 1)).await;
        let folder = tempfile::tempdir().unwrap();
        let mut fleet = host_of(&[&registry, &next], folder.path(), 1 << 30).await;
        fleet.plugin("it", tagged(&reference(&registry))).await;
        runs(&fleet, "it", &first).await;

        // Root writes to directories that are read-only, so a file takes the place of the one for downloads.
        let partial = folder.path().join("partial");
        fs::remove_dir(&partial).unwrap();
        fs::write(&partial, "").unwrap();
        // The cached component is enough for a start.
        fleet.stage.host.stop().await.unwrap();
        let starts = fleet.stage.lines(&["plugin ready"]).len();
        fleet.start_host().await;
        fleet
            .until("it runs again", |stage| stage.lines(&["plugin ready"]).len() > starts)
            .await;
        runs(&fleet, "it", &first).await;
        fleet.change("it", tagged(&reference(&next))).await;
        let words = ["partial", "check the disk's free space and permissions"];
        fails_by_cache(&fleet, &reference(&next), &words).await;
        fleet.says("it", "Ready", "True", "PreviousVersion").await;

        fs::remove_file(&partial).unwrap();
        fs::create_dir(&partial).unwrap();
        runs(&fleet, "it", &second).await;
        fleet.stage.stop().await;
    }

    #[tokio::test]
    async fn hosts_that_share_a_cache_keep_each_others_components() {
        let bytes = component("hostile", 2, 1);
        let (registry, first) = registry_of(&bytes).await;
        let (next, second) = registry_of(&component("hostile", 3, 1)).await;
        // Slowly enough that both download at the same time.
        let (slow, pause) = (bytes.len() / 8, Duration::from_millis(50));
        registry.hook(move |request, _| {
            let is_blob = request.path.contains("/blobs/");
            is_blob.then(|| reply(200, &[], bytes.clone()).manner(Manner::Bursts(slow, pause)))
        });
        let folder = tempfile::tempdir().unwrap();
        // One of the two components fits.
        let limit = component("hostile", 2, 1).len() as u64 * 3 / 2;
        let registries = [&registry, &next];
        let one = host_of(&registries, folder.path(), limit).await;
        let other = host_of(&registries, folder.path(), limit).await;
        let (one_spec, other_spec) = (tagged(&reference(&registry)), tagged(&reference(&registry)));
        tokio::join!(one.plugin("it", one_spec), other.plugin("it", other_spec));
        tokio::join!(runs(&one, "it", &first), runs(&other, "it", &first));
        assert_eq!(registry.count("GET /v2/acme/plugin/blobs/"), 2, "both downloaded it");

        one.delete("it").await;
        one.is_gone("it").await;
        one.plugin("it", tagged(&reference(&next))).await;
        let words = ["are taken by what is in use", "--artifact-cache-size"];
        fails_by_cache(&one, &reference(&next), &words).await;
        assert!(blob(folder.path(), &component("hostile", 2, 1)).exists());
        assert_eq!(other.condition("it", "Ready")["reason"], "Running");
        other.delete("it").await;
        runs(&one, "it", &second).await;
        other.stage.stop().await;
        one.stage.stop().await;
    }

    /// No file system of the test's own is full: in a process of its own no file may grow beyond 256 KiB, so a write
    /// fails in the middle of a component, as on a full disk. `ENOSPC` itself is tested in the cache, with `/dev/full`.
    #[tokio::test]
    async fn a_full_disk_is_reported_and_running_plugins_go_on() {
        if std::env::var_os(CHILD).is_some() {
            return limited().await;
        }
        let child = || {
            // A shell, because a process that ignores the signal about files that are too large hands that on.
            let mut shell = Command::new("sh");
            shell.args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""]);
            shell.arg(std::env::current_exe().unwrap());
            let name = concat!(
                "artifact::bad_input::caches::simulated::",
                "a_full_disk_is_reported_and_running_plugins_go_on"
            );
            shell.args(["--exact", name, "--nocapture"]).env(CHILD, "1");
            shell.output().unwrap()
        };
        let ended = tokio::task::spawn_blocking(child).await.unwrap();
        let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8_lossy(&said).into_owned());
        assert!(
            ended.status.success() && said[0].contains("1 passed"),
            "{}",
            said.join("\n")
        );
    }

    /// Body of the child process.
    async fn limited() {
        let (registry, first) = registry_of(&component("hostile", 2, 1)).await;
        let large = component("hostile", 4, 2 << 20);
        let (next, second): (Registry, Descriptor) = registry_of(&large).await;
        let folder = tempfile::tempdir().unwrap();
        let fleet = host_of(&[&registry, &next], folder.path(), 1 << 30).await;
        fleet.plugin("it", tagged(&reference(&registry))).await;
        runs(&fleet, "it", &first).await;

        let before = getrlimit(Resource::Fsize);
        let limited = Rlimit {
            current: Some(256 << 10),
            maximum: before.maximum,
        };
        setrlimit(Resource::Fsize, limited).unwrap();
        fleet.change("it", tagged(&reference(&next))).await;
        let words = [
            "cannot write",
            "File too large",
            "check the disk's free space and permissions",
        ];
        fails_by_cache(&fleet, &reference(&next), &words).await;
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        assert!(!blob(folder.path(), &large).exists());

        setrlimit(Resource::Fsize, before).unwrap();
        runs(&fleet, "it", &second).await;
        fleet.stage.stop().await;
    }
}
