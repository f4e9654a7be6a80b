//! Replicas as processes whose clocks are wrong, and are set while they run: the time of day decides nothing about Leases.

use std::env;
use std::fs;
use std::path::PathBuf;

use pilothouse_end_to_end::program::Folder;

/// The time of day that one process sees, by Debian's libfaketime. The clock that nobody sets stays as it is.
pub struct MovedClock {
    library: PathBuf,
    folder: Folder,
}

impl MovedClock {
    /// The file that says by how much the clock is moved.
    const FILE: &str = "clock";

    /// A clock that is so many seconds ahead, or behind.
    pub fn new(seconds: i64) -> Self {
        let library = library().unwrap_or_else(|| {
            panic!("libfaketime is missing: `cargo xtask test --only real` fetches it where apt-get can");
        });
        let clock = Self {
            library,
            folder: Folder::new(),
        };
        clock.set(seconds);
        clock
    }

    /// Sets the clock.
    pub fn set(&self, seconds: i64) {
        // Whoever reads it sees all of it.
        let written = self.folder.file("next", format!("{seconds:+}\n"));
        fs::rename(written, self.folder.path(Self::FILE)).unwrap();
    }

    /// Environment of the process.
    pub fn environment(&self) -> [(&'static str, String); 6] {
        let yes = || "1".to_owned();
        [
            ("LD_PRELOAD", self.library.display().to_string()),
            ("FAKETIME_TIMESTAMP_FILE", self.folder.path(Self::FILE)),
            ("FAKETIME_NO_CACHE", yes()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", yes()),
            // The name of the same before version 0.9.8.
            ("DONT_FAKE_MONOTONIC", yes()),
            ("NO_FAKE_STAT", yes()),
        ]
    }
}

/// The library that `cargo xtask test --only real` has found or fetched, else that of the machine.
fn library() -> Option<PathBuf> {
    if let Some(given) = env::var_os("PILOTHOUSE_FAKETIME") {
        return Some(given.into());
    }
    let folders = fs::read_dir("/usr/lib").ok()?.flatten();
    let mut libraries = folders.map(|folder| folder.path().join("faketime/libfaketimeMT.so.1"));
    libraries.find(|library| library.exists())
}

mod real {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use kube::api::ListParams;
    use pilothouse_end_to_end::stage::create;
    use pilothouse_testkit::controlplane::Options;
    use rustix::process::Signal;
    use serde_json::json;

    use super::MovedClock;
    use crate::replicas::{OwnerWatch, Replicas, WORKERS, holder_of, host_name};

    /// Count of objects that are created in each step.
    const STEP: usize = 30;

    const HOUR: i64 = 3600;

    /// Tolerance in seconds: a longer step of a test would be taken for a moved clock.
    const TOLERANCE: f64 = 600.0;

    struct Story {
        /// Dropped before the control plane that it looks at.
        owners: OwnerWatch,
        leases: usize,
        replicas: Replicas,
        namespaces: Vec<String>,
    }

    impl Story {
        async fn new(shards: Option<usize>) -> Self {
            let mut replicas = Replicas::new(Options::default(), shards).await;
            replicas.lengthen_leases(2);
            let prefix = if shards.is_some() {
                "pilothouse-shard-"
            } else {
                "pilothouse"
            };
            let owners = replicas.watch_owners(prefix);
            let namespaces: Vec<String> = (0..12).map(|number| format!("tenant-{number}")).collect();
            for name in &namespaces {
                let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
                create(replicas.client.clone(), &namespace).await;
            }
            Self {
                owners,
                leases: shards.unwrap_or(1),
                replicas,
                namespaces,
            }
        }

        async fn create_more(&mut self) {
            let namespaces = self.namespaces.clone();
            self.replicas.create_in(&namespaces, STEP).await;
        }

        /// Waits until the replicas that run hold all shards, each of them some.
        async fn share(&self) {
            let shards = self.leases;
            let is_divided = shards > 1;
            self.replicas
                .until("all replicas share all shards", async || {
                    let shares = self.replicas.shares().await;
                    let held: usize = shares.values().map(std::collections::BTreeSet::len).sum();
                    !is_divided || (held, shares.len()) == (shards, self.replicas.processes.len())
                })
                .await;
        }

        /// Returns the seconds by which a replica's times in each of its Leases are ahead.
        async fn ahead(&self, name: &str) -> Vec<f64> {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64();
            let leases = self.replicas.leases().list(&ListParams::default()).await.unwrap();
            let held = leases.into_iter().filter(|lease| host_name(&holder_of(lease)) == name);
            let renewed = held.map(|lease| lease.spec.unwrap().renew_time.unwrap().0);
            renewed.map(|time| time.as_duration().as_secs_f64() - now).collect()
        }

        /// Waits until all that a replica writes into its Leases is by a clock that is so far ahead.
        async fn is_ahead(&self, name: &str, seconds: i64) {
            let what = format!("the clock of {name} is {seconds} s ahead");
            let seconds = f64::from(i32::try_from(seconds).unwrap());
            self.replicas
                .until(&what, async || {
                    let ahead = self.ahead(name).await;
                    !ahead.is_empty() && ahead.iter().all(|ahead| (ahead - seconds).abs() < TOLERANCE)
                })
                .await;
        }

        /// Kills a replica and has another one do its work.
        async fn is_killed(&mut self, name: &str) {
            let mark = self.replicas.mark();
            self.create_more().await;
            let mut killed = self.replicas.processes.remove(name).unwrap();
            killed.signal(Signal::KILL);
            assert!(!killed.ended().await.success());
            self.owners.is_out(name);
            self.create_more().await;
            self.replicas.converge().await;
            self.share().await;
            self.replicas.wrote_once(mark, 2 * STEP, WORKERS).await;
            println!(
                "without an owner for {:?} after {name} was killed",
                self.owners.check(self.leases)
            );
        }

        /// Checks that one replica has led all the time, and that no Lease was lost: shards may move in order.
        fn is_steady(&self) {
            let of_all = self.replicas.processes.values();
            let said =
                |words: &str| -> Vec<String> { of_all.clone().flat_map(|process| process.lines(&[words])).collect() };
            assert_eq!(said("this replica leads").len(), 1);
            assert_eq!(said("leads no longer"), Vec::<String>::new());
            assert_eq!(said("lost "), Vec::<String>::new());
        }
    }

    /// The clock of the first is set while it works; that of the second, which takes over, is an hour ahead all the time; the
    /// third has the right time.
    async fn story(shards: Option<usize>) {
        let mut it = Story::new(shards).await;
        let (moved, ahead) = (MovedClock::new(0), MovedClock::new(HOUR));
        it.replicas.start_with_clock("moved", &moved);
        it.owners.works("moved");
        it.replicas.make_plugin("moved").await;
        it.replicas.process("moved").says(&["this replica leads"]).await;
        it.replicas.start_with_clock("ahead", &ahead);
        it.owners.works("ahead");
        it.replicas
            .process("ahead")
            .says(&["plugin ready", "it/app-service"])
            .await;
        it.share().await;

        let mark = it.replicas.mark();
        for seconds in [0, HOUR, -HOUR, 0] {
            moved.set(seconds);
            it.is_ahead("moved", seconds).await;
            it.create_more().await;
            tokio::time::sleep(it.replicas.lease_duration() + Duration::from_secs(2)).await;
            it.replicas.converge().await;
        }
        assert_eq!(it.replicas.leader().await, "moved");
        it.is_steady();
        it.replicas.wrote_once(mark, 4 * STEP, 0).await;
        println!(
            "without an owner for {:?} while a clock was moved",
            it.owners.check(it.leases)
        );

        // Nobody waits longer for a Lease that was renewed in the future, or takes it before its time.
        moved.set(-HOUR);
        it.is_ahead("moved", -HOUR).await;
        it.is_killed("moved").await;
        it.is_ahead("ahead", HOUR).await;
        it.replicas.start("right");
        it.owners.works("right");
        it.replicas
            .process("right")
            .says(&["plugin ready", "it/app-service"])
            .await;
        it.share().await;
        it.is_killed("ahead").await;
        it.is_ahead("right", 0).await;
        assert_eq!(it.replicas.leader().await, "right");
        it.replicas.end().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_leader_whose_clock_is_set_leads_on_until_replaced_in_time() {
        story(None).await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn replicas_with_moved_clocks_keep_their_shards_and_write_once() {
        story(Some(6)).await;
    }
}
