//! Several replicas of a host: one writes, the others are warm, and one of them takes over when the leader stops, dies or
//! loses its Lease.

pub mod simulated {
    use std::time::Duration;

    use k8s_openapi::api::coordination::v1::Lease;
    use kube::Api;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use pilothouse_cluster::fence::WriteFence;
    use pilothouse_core::lease::LeaseTimes;
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{app_service, unhurried};
    use pilothouse_runtime::{ElectionOptions, HostOptions};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};
    use tokio::time::Instant;

    use crate::fleet::Fleet;

    /// After so long another replica leads when nobody renews the Lease: its duration, and a pause with jitter.
    const TAKEN_WITHIN: Duration = Duration::from_millis(17_500);

    /// After so long another replica leads when the leader has given the Lease back.
    const HANDED_OVER_WITHIN: Duration = Duration::from_millis(3_500);

    /// What a replica is told that takes part in the election.
    pub fn options(identity: &str) -> HostOptions {
        let election = ElectionOptions {
            namespace: "default".to_owned(),
            name: "pilothouse".to_owned(),
            identity: identity.to_owned(),
            times: LeaseTimes::default(),
            fence: WriteFence::closed(),
            shards: None,
        };
        HostOptions {
            election: Some(election),
            instance: identity.to_owned(),
            ..HostOptions::default()
        }
    }

    fn replica(identity: &str) -> RuntimeHost {
        RuntimeHost::new(options(identity), unhurried())
    }

    /// Two replicas, of which the first leads, with a plugin and an object that has converged.
    async fn two_replicas() -> (Fleet, RuntimeHost) {
        let fleet = Fleet::start_host_with(Cluster::simulated(), replica("one")).await;
        fleet.put("app-service", "it.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "it.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&app_service("web")).await;
        converges(&fleet, "web").await;
        fleet.stage.host.settled().await.unwrap();
        let mut second = replica("two");
        second
            .start_by_resources(&fleet.stage.cluster, fleet.path(""))
            .await
            .unwrap();
        // Its cache has the object, which is queued.
        let is_warm = || {
            second
                .handle()
                .unwrap()
                .depths()
                .iter()
                .any(|(_, depth)| depth.ready == 1)
        };
        fleet.until("the second replica is warm", |_| is_warm()).await;
        (fleet, second)
    }

    /// An AppService without a Service, whose node port would be taken.
    fn another(name: &str) -> Value {
        let mut object = app_service(name);
        object["spec"]["ports"] = json!([]);
        object
    }

    async fn converges(fleet: &Fleet, name: &str) {
        fleet
            .until("the AppService converges", |stage| {
                stage.is_reconciled("AppService", name)
            })
            .await;
    }

    /// What was written since then, but for the Lease and the status of the Plugin, which counts objects.
    fn writes(fleet: &Fleet, mark: Mark) -> Vec<String> {
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let writes = requests
            .iter()
            .filter(|request| request.is_by_host() && request.is_write() && !request.is_lease())
            .filter(|request| request.resource != "plugins");
        writes.map(ToString::to_string).collect()
    }

    fn holder(fleet: &Fleet) -> Value {
        fleet
            .stage
            .find("Lease", "pilothouse")
            .map(|mut lease| lease["spec"]["holderIdentity"].take())
            .unwrap_or_default()
    }

    async fn leases(fleet: &Fleet) -> Api<Lease> {
        Api::namespaced(fleet.client().await, "default")
    }

    /// Waits until a replica holds the Lease: how long that took.
    async fn leads(fleet: &Fleet, identity: &str) -> Duration {
        let begun = Instant::now();
        fleet
            .until(&format!("{identity} leads"), |_| holder(fleet) == identity)
            .await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn one_replica_writes_and_the_other_follows() {
        let (fleet, second) = two_replicas().await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.create(&another("more")).await;
        converges(&fleet, "more").await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        let written = writes(&fleet, mark);
        // The Deployment, the status, and the status with the Deployment's.
        assert!((2..=3).contains(&written.len()), "{written:#?}");
        assert_eq!(holder(&fleet), "one");
        assert_eq!(second.handle().unwrap().stuck(), 0);
        // Both write their log here, and neither tries what it may not do.
        let log = second.log_tail();
        assert!(!log.contains(" WARN "), "{log}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_stops_hands_over_at_once() {
        let (mut fleet, second) = two_replicas().await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.host.stop().await.unwrap();
        let took = leads(&fleet, "two").await;
        assert!(took <= HANDED_OVER_WITHIN, "{took:?}");
        second.settled().await.unwrap();
        assert_eq!(writes(&fleet, mark), Vec::<String>::new(), "all had been written");
        fleet.stage.create(&another("more")).await;
        converges(&fleet, "more").await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_dies_is_replaced_when_its_lease_ends() {
        let (mut fleet, second) = two_replicas().await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.host.kill().await;
        // What comes while nobody leads is not lost.
        fleet.stage.create(&another("more")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(holder(&fleet), "one");
        let took = leads(&fleet, "two").await + Duration::from_secs(5);
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        converges(&fleet, "more").await;
        second.settled().await.unwrap();
        let written = writes(&fleet, mark);
        assert!((2..=3).contains(&written.len()), "nothing is repeated: {written:#?}");
        assert!(written.iter().all(|write| write.contains("more")), "{written:#?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_is_cut_off_stops_before_another_one_leads() {
        let (fleet, second) = two_replicas().await;
        fleet.stage.host.cut_off(true);
        let mark = fleet.stage.cluster.mark().unwrap();
        // The first replica still gets the watch events, and tries to write.
        fleet.stage.create(&another("more")).await;
        let took = leads(&fleet, "two").await;
        assert!(took <= TAKEN_WITHIN, "{took:?}");
        converges(&fleet, "more").await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        fleet.stage.host.cut_off(false);
        tokio::time::sleep(Duration::from_mins(1)).await;
        assert_eq!(holder(&fleet), "two");
        fleet.stage.create(&another("and-more")).await;
        converges(&fleet, "and-more").await;
        second.settled().await.unwrap();
        let written = writes(&fleet, mark);
        assert!((4..=6).contains(&written.len()), "{written:#?}");
        assert_eq!(fleet.stage.host.handle().unwrap().stuck(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_deleted_by_hand_stays_with_its_holder() {
        let (fleet, _second) = two_replicas().await;
        for _ in 0..3 {
            leases(&fleet)
                .await
                .delete("pilothouse", &DeleteParams::default())
                .await
                .unwrap();
            assert!(leads(&fleet, "one").await <= HANDED_OVER_WITHIN);
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(holder(&fleet), "one");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_writes_for_as_long_as_somebody_edited_the_lease() {
        let (fleet, _second) = two_replicas().await;
        let lease = leases(&fleet).await;
        let patch = Patch::Merge(json!({"spec": {"holderIdentity": "an administrator"}}));
        lease
            .patch("pilothouse", &PatchParams::default(), &patch)
            .await
            .unwrap();
        // The leader sees it at its next renewal.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let mark = fleet.stage.cluster.mark().unwrap();
        fleet.stage.create(&another("more")).await;
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(writes(&fleet, mark), Vec::<String>::new());
        assert_eq!(holder(&fleet), "an administrator");
        converges(&fleet, "more").await;
        assert_ne!(holder(&fleet), "an administrator");
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_other_software_is_left_alone() {
        let cluster = Cluster::simulated();
        let client = cluster.client().await.unwrap();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"namespace": "default", "name": "pilothouse"},
            "spec": {"holderIdentity": "theirs", "leaseDurationSeconds": 1},
        });
        pilothouse_end_to_end::stage::create(client, &lease).await;
        let mut host = replica("one");
        let folder = tempfile::tempdir().unwrap();
        host.start_by_resources(&cluster, folder.path().to_owned())
            .await
            .unwrap();
        let mark = cluster.mark().unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        let requests = cluster.requests_since(mark).unwrap();
        let writes: Vec<_> = requests
            .iter()
            .filter(|request| request.is_by_host() && request.is_write())
            .collect();
        assert!(writes.is_empty(), "{writes:?}");
        let log = host.log_tail();
        let is_about_it = |line: &&str| {
            ["cannot take or renew the Lease", "other software", "--lease"]
                .iter()
                .all(|words| line.contains(words))
        };
        // One line a minute.
        let said = log.lines().filter(is_about_it).count();
        assert!((1..=6).contains(&said), "{said}: {log}");
    }
}

mod real {
    use std::collections::BTreeMap;
    use std::time::{Duration, Instant};

    use k8s_openapi::api::coordination::v1::Lease;
    use kube::api::{DynamicObject, ListParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use kube::{Api, Client};
    use pilothouse_end_to_end::program::{Folder, Process, component};
    use pilothouse_end_to_end::stage::{app_service, create};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::controlplane::Options;
    use rustix::process::Signal;
    use serde_json::json;

    use crate::fleet::plugin;

    const WITHIN: Duration = Duration::from_mins(2);

    /// How many objects there are after each step.
    const STEP: usize = 60;

    /// Reconciles at once, each of which may have one write in flight.
    const WORKERS: usize = 8;

    struct Replicas {
        cluster: Cluster,
        client: Client,
        folder: Folder,
        objects: usize,
    }

    impl Replicas {
        fn start(&self) -> Process {
            let kubeconfig = self.cluster.host_kubeconfig().unwrap().display().to_string();
            let (directory, workers) = (self.folder.path(""), WORKERS.to_string());
            let arguments = [
                ["run", "--install-crds"].as_slice(),
                &["--kubeconfig", &kubeconfig],
                &["--plugin-dir", &directory],
                &["--namespace", "default"],
                &["--workers", &workers],
                &["--leader-election", "--lease-duration", "4"],
                &["--lease-renew-deadline", "3", "--lease-retry-period", "1"],
            ];
            Process::start(&arguments.concat())
        }

        async fn holder(&self) -> String {
            let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
            let lease = leases.get_opt("pilothouse").await.unwrap();
            let spec = lease.and_then(|lease| lease.spec);
            spec.and_then(|spec| spec.holder_identity).unwrap_or_default()
        }

        async fn until(&self, processes: &[&Process], what: &str, mut holds: impl AsyncFnMut() -> bool) {
            let begun = Instant::now();
            while !holds().await {
                let logs: Vec<_> = processes.iter().map(|process| process.log()).collect();
                assert!(begun.elapsed() < WITHIN, "in vain: {what}\n{}", logs.join("\n---\n"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }

        /// Makes more objects.
        async fn create_more(&mut self) {
            for number in self.objects..self.objects + STEP {
                let mut object = app_service(&format!("app-{number}"));
                object["spec"]["ports"] = json!([]);
                create(self.client.clone(), &object).await;
            }
            self.objects += STEP;
        }

        /// Waits until every object says that it is reconciled.
        async fn converge(&self, processes: &[&Process]) {
            let kind = GroupVersionKind::gvk("kosmos.io", "v1", "AppService");
            let all: Api<DynamicObject> =
                Api::namespaced_with(self.client.clone(), "default", &ApiResource::from_gvk(&kind));
            self.until(processes, "all objects converge", async || {
                let objects = all.list(&ListParams::default()).await.unwrap().items;
                let is_reconciled = |object: &&DynamicObject| {
                    let conditions = object.data["status"]["conditions"].as_array();
                    conditions
                        .into_iter()
                        .flatten()
                        .any(|condition| condition["type"] == "Reconciled" && condition["status"] == "True")
                };
                objects.iter().filter(is_reconciled).count() == self.objects
            })
            .await;
        }

        /// How often each Deployment was created, and how many other writes they got, by hosts.
        fn deployments(&self, mark: Mark) -> (BTreeMap<String, usize>, usize) {
            let (mut created, mut others) = (BTreeMap::new(), 0);
            for request in self.cluster.requests_since(mark).unwrap() {
                if !request.is_by_host() || !request.is_write() || request.resource != "deployments" {
                    continue;
                }
                if request.code == 201 {
                    *created.entry(request.name).or_default() += 1;
                } else {
                    others += 1;
                }
            }
            (created, others)
        }
    }

    /// The leader is stopped in the middle of its work and goes on later; the next one is killed; the last one ends in order.
    #[tokio::test(flavor = "multi_thread")]
    async fn replicas_take_over_from_a_leader_that_is_stopped_killed_or_ends() {
        let cluster = Cluster::real_with(Options::default()).await.unwrap();
        let mut replicas = Replicas {
            client: cluster.client().await.unwrap(),
            cluster,
            folder: Folder::new(),
            objects: 0,
        };
        std::fs::copy(component("app-service"), replicas.folder.path("it.wasm")).unwrap();
        let mut one = replicas.start();
        one.says(&["this replica leads"]).await;
        one.says(&["installed the CRD", "plugins.pilothouse.dev"]).await;
        create(
            replicas.client.clone(),
            &plugin("it", json!({"source": {"file": "it.wasm"}})),
        )
        .await;
        one.says(&["plugin ready", "it/app-service"]).await;
        let mut two = replicas.start();
        two.says(&["another replica leads"]).await;
        two.says(&["plugin ready", "it/app-service"]).await;
        let first = replicas.holder().await;

        let mark = replicas.cluster.mark().unwrap();
        replicas.create_more().await;
        one.signal(Signal::STOP);
        replicas.create_more().await;
        let begun = Instant::now();
        two.says(&["this replica leads"]).await;
        println!("another replica led {:?} after the leader was stopped", begun.elapsed());
        replicas.converge(&[&one, &two]).await;
        let second = replicas.holder().await;
        assert_ne!(first, second);

        // What the first replica still believes does no harm.
        one.signal(Signal::CONT);
        one.says(&["leads no longer"]).await;
        one.says(&["another replica leads", &second]).await;
        replicas.create_more().await;
        replicas.converge(&[&one, &two]).await;
        assert_eq!(replicas.holder().await, second);
        let (created, others) = replicas.deployments(mark);
        assert_eq!(created.len(), replicas.objects, "none is lost");
        assert!(
            created.values().all(|times| *times == 1),
            "none is made twice: {created:?}"
        );
        assert!(
            others <= WORKERS,
            "only what was in flight is repeated: {others} writes"
        );

        let mark = replicas.cluster.mark().unwrap();
        two.signal(Signal::KILL);
        replicas.create_more().await;
        let begun = Instant::now();
        replicas
            .until(&[&one], "the first replica leads again", async || {
                replicas.holder().await == first
            })
            .await;
        println!("another replica led {:?} after the leader was killed", begun.elapsed());
        replicas.converge(&[&one]).await;
        let (created, others) = replicas.deployments(mark);
        assert_eq!((created.len(), others), (STEP, 0));

        let mut three = replicas.start();
        three.says(&["another replica leads"]).await;
        three.says(&["plugin ready", "it/app-service"]).await;
        let mark = replicas.cluster.mark().unwrap();
        one.signal(Signal::TERM);
        let begun = Instant::now();
        assert!(one.ended().await.success());
        three.says(&["this replica leads"]).await;
        println!(
            "another replica led {:?} after the leader was told to end",
            begun.elapsed()
        );
        let mut more = app_service("last");
        more["spec"]["ports"] = json!([]);
        create(replicas.client.clone(), &more).await;
        replicas.objects += 1;
        replicas.converge(&[&three]).await;
        let (created, others) = replicas.deployments(mark);
        assert_eq!((created.len(), others), (1, 0), "{created:?}");
        three.signal(Signal::TERM);
        assert!(three.ended().await.success());
        assert_eq!(replicas.holder().await, "", "the Lease is given back");
    }

    #[test]
    fn options_with_which_two_replicas_could_write_are_refused() {
        let refused = |arguments: &[&str]| {
            let all = [["run", "--kubeconfig", "/nonexistent"].as_slice(), arguments].concat();
            pilothouse_end_to_end::program::refused(&all).1
        };
        let said = refused(&["--leader-election"]);
        assert!(said.contains("give it with --namespace"), "{said}");
        let election = ["--leader-election", "--namespace", "a"];
        let with = |more: &[&str]| refused(&[&election, more].concat());
        let said = with(&["--lease-duration", "10"]);
        assert!(
            said.contains("--lease-duration must be longer than --lease-renew-deadline"),
            "{said}"
        );
        let said = with(&["--lease-renew-deadline", "3"]);
        assert!(said.contains("at least twice --lease-retry-period"), "{said}");
        let said = with(&["--lease", "A_b"]);
        assert!(said.contains("a-z, 0-9"), "{said}");
        let said = refused(&["--lease", "a"]);
        assert!(said.contains("--leader-election"), "{said}");
    }
}
