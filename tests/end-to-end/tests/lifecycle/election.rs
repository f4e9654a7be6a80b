//! Several replicas of a host: one writes, the others are warm, and one of them takes over when the leader stops, dies or
//! loses its Lease.

mod simulated {
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

    fn replica(identity: &str) -> RuntimeHost {
        let election = ElectionOptions {
            namespace: "default".to_owned(),
            name: "pilothouse".to_owned(),
            identity: identity.to_owned(),
            times: LeaseTimes::default(),
            fence: WriteFence::closed(),
        };
        let options = HostOptions {
            election: Some(election),
            instance: identity.to_owned(),
            ..HostOptions::default()
        };
        RuntimeHost::new(options, unhurried())
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
