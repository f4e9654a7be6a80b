//! The status of a Plugin whose wanted version does not run: the conditions about it, the generations, and what kstatus makes
//! of them. And which host runs a Plugin.

mod simulated {
    use std::time::Duration;

    use kube::api::{Patch, PatchParams};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{hostile, unhurried};
    use pilothouse_runtime::{HostOptions, Identity};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::kstatus::{self, Status};
    use pilothouse_testkit::requests::HOST_ACCOUNT;
    use serde_json::{Value, json};

    use crate::artifacts::MemoryStore;
    use crate::fleet::Fleet;

    const REFERENCE: &str = "registry.example.com/plugins/hostile";

    fn tagged(tag: &str) -> Value {
        json!({"source": {"oci": {"reference": format!("{REFERENCE}:{tag}"), "updatePolicy": "Tag", "interval": "10s"}}})
    }

    async fn fleet_of(store: &std::sync::Arc<MemoryStore>) -> Fleet {
        let mut host = RuntimeHost::new(HostOptions::default(), unhurried());
        host.fetch_from(store.clone());
        Fleet::start_host_with(Cluster::simulated(), host).await
    }

    fn health(fleet: &Fleet) -> Status {
        let plugin = fleet.stage.find("Plugin", "it").unwrap();
        kstatus::compute(&plugin).unwrap().status
    }

    /// The generations: of the spec, decided on, running, and of the condition Ready.
    fn generations(fleet: &Fleet) -> [Option<i64>; 4] {
        let plugin = fleet.stage.find("Plugin", "it").unwrap();
        let status = &plugin["status"];
        let ready = fleet.condition("it", "Ready");
        [
            &plugin["metadata"]["generation"],
            &status["observedGeneration"],
            &status["runningGeneration"],
            &ready["observedGeneration"],
        ]
        .map(Value::as_i64)
    }

    fn generations_are(all: [i64; 4]) -> [Option<i64>; 4] {
        all.map(Some)
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_spec_is_stalled_and_decided_while_ready_stays_behind() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        assert_eq!(generations(&fleet), generations_are([1; 4]));
        assert_eq!(health(&fleet), Status::Current);
        let refusals = [
            (json!({"configuration": {"describe": "trap"}}), "DescribeFailed"),
            (
                json!({"configuration": null, "source": {"file": "b.wasm"}}),
                "FetchFailed",
            ),
            (
                json!({"source": {"file": "a.wasm", "digest": format!("sha256:{}", "0".repeat(64))}}),
                "DigestMismatch",
            ),
            (
                json!({"source": {"file": null, "digest": null, "oci": {
                    "reference": "example.com/a:1", "updatePolicy": "Tag", "interval": "1s",
                }}}),
                "InvalidSpec",
            ),
        ];
        for ((spec, reason), generation) in refusals.into_iter().zip(2..) {
            fleet.change("it", spec).await;
            let stalled = fleet.says("it", "Stalled", "True", reason).await;
            assert!(stalled["message"].as_str().is_some_and(|message| !message.is_empty()));
            assert_eq!(
                generations(&fleet),
                generations_are([generation, generation, 1, 1]),
                "{reason}"
            );
            assert_eq!(health(&fleet), Status::Failed, "{reason}");
            assert_eq!(fleet.condition("it", "Ready")["status"], "True");
            assert_eq!(fleet.condition("it", "UpToDate"), Value::Null, "a file is not followed");
        }
        fleet
            .change("it", json!({"source": {"file": "a.wasm", "oci": null}}))
            .await;
        fleet.is_ready("it").await;
        assert_eq!(generations(&fleet), generations_are([6; 4]));
        assert_eq!(fleet.condition("it", "Stalled"), Value::Null);
        assert_eq!(health(&fleet), Status::Current);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_version_that_is_refused_is_stalled() {
        let fleet = Fleet::start().await;
        fleet.plugin("it", json!({"source": {"file": "none.wasm"}})).await;
        fleet.says("it", "Stalled", "True", "FetchFailed").await;
        fleet.says("it", "Ready", "False", "FetchFailed").await;
        assert_eq!(health(&fleet), Status::Failed);
        fleet.put("hostile", "none.wasm", 0);
        fleet.is_ready("it").await;
        assert_eq!(fleet.condition("it", "Stalled"), Value::Null);
        assert_eq!(health(&fleet), Status::Current);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_moved_tag_that_is_refused_is_stalled_and_not_up_to_date() {
        let store = MemoryStore::new();
        store.push("hostile", "1", 1);
        let mut fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        fleet.says("it", "UpToDate", "True", "UpToDate").await;
        let forged = store.push("hostile", "1", 2);
        store.trust(&forged, false);
        fleet.says("it", "Stalled", "True", "UnknownSigner").await;
        fleet.says("it", "UpToDate", "False", "UnknownSigner").await;
        assert_eq!(generations(&fleet), generations_are([1; 4]));
        assert_eq!(health(&fleet), Status::Failed);

        // A restart does not hide it before the registry was asked, and writes nothing.
        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        for _ in 0..60 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            assert_eq!(health(&fleet), Status::Failed);
            assert_eq!(fleet.condition("it", "UpToDate")["status"], "False");
        }
        let writes = fleet.stage.host_writes_since(mark);
        assert!(writes.is_empty(), "{writes:?}");

        store.trust(&forged, true);
        fleet.says("it", "UpToDate", "True", "UpToDate").await;
        fleet.is_ready("it").await;
        assert_eq!(fleet.condition("it", "Stalled"), Value::Null);
        assert_eq!(health(&fleet), Status::Current);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_that_is_down_leaves_a_new_spec_undecided_and_an_old_one_in_doubt() {
        let store = MemoryStore::new();
        store.push("hostile", "1", 1);
        let fleet = fleet_of(&store).await;
        fleet.plugin("it", tagged("1")).await;
        fleet.is_ready("it").await;
        fleet.says("it", "UpToDate", "True", "UpToDate").await;
        store.is_down(true);
        let doubt = fleet.says("it", "UpToDate", "Unknown", "Unreachable").await;
        assert_eq!(doubt["reason"], fleet.condition("it", "Fetched")["reason"]);
        assert_eq!(health(&fleet), Status::Current);
        fleet.change("it", tagged("2")).await;
        fleet.says("it", "Reconciling", "True", "Unreachable").await;
        assert_eq!(generations(&fleet), generations_are([2, 1, 1, 1]));
        assert_eq!(health(&fleet), Status::InProgress);
        store.is_down(false);
        fleet.says("it", "Stalled", "True", "NotFound").await;
        assert_eq!(generations(&fleet), generations_are([2, 2, 1, 1]));
        store.push("hostile", "2", 2);
        fleet.says("it", "UpToDate", "True", "UpToDate").await;
        assert_eq!(generations(&fleet), generations_are([2; 4]));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_loses_the_right_to_act_says_so_within_five_minutes() {
        let options = HostOptions {
            identity: Identity::ServiceAccounts {
                namespace: "pilothouse-system".to_owned(),
                tokens: None,
            },
            ..HostOptions::default()
        };
        let fleet = Fleet::start_with(Cluster::simulated(), options).await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.says("it", "Granted", "True", "Granted").await;
        fleet
            .stage
            .simulator()
            .rights()
            .deny(|asked| asked.user_agent == HOST_ACCOUNT && asked.verb == "impersonate");
        tokio::time::sleep(Duration::from_mins(5)).await;
        for kind in ["Granted", "Ready"] {
            let said = fleet.says("it", kind, "False", "NotGranted").await;
            let message = said["message"].as_str().unwrap();
            assert!(
                message.contains(
                    "may not impersonate serviceaccounts named pilothouse-plugin-it in namespace pilothouse-system"
                ),
                "{message}"
            );
        }
        fleet.stage.simulator().rights().grant_all();
        fleet.stage.minute().await;
        fleet.is_ready("it").await;
        fleet.says("it", "Granted", "True", "Granted").await;
        fleet.stage.stop().await;
    }

    async fn install_for(fleet: &Fleet, host: Option<&Value>) {
        let record = host.map(Value::to_string);
        let annotations = json!({"metadata": {"annotations": {"pilothouse.dev/installed-for": record}}});
        let plugins = fleet.plugins().await;
        plugins
            .patch("it", &PatchParams::default(), &Patch::Merge(annotations))
            .await
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_of_another_host_is_left_alone_and_taken_over_when_it_is_handed_over() {
        let options = HostOptions {
            namespace: Some("team-a".to_owned()),
            ..HostOptions::default()
        };
        let fleet = Fleet::start_with(Cluster::simulated(), options).await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let host =
            |namespace: &str| json!({"namespace": namespace, "account": "pilothouse", "identity": "impersonate"});
        install_for(&fleet, Some(&host("team-b"))).await;
        let said = [
            "INFO",
            "another host runs this Plugin",
            "ServiceAccount team-b/pilothouse",
        ];
        fleet
            .until("it is left to the other host", |stage| stage.lines(&said).len() == 1)
            .await;
        fleet
            .until("it is unloaded", |stage| {
                !stage.lines(&["the plugin is unloaded"]).is_empty()
            })
            .await;
        let mark = fleet.stage.mark();
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet.change("it", json!({"concurrency": 3})).await;
        fleet.stage.minute().await;
        assert_eq!(fleet.stage.host_writes_since(mark), []);
        assert_eq!(fleet.stage.lines(&said).len(), 1, "{}", fleet.log());

        install_for(&fleet, Some(&host("team-a"))).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "web"))
            .await;
        install_for(&fleet, Some(&host("team-b"))).await;
        fleet
            .until("it is left again", |stage| stage.lines(&said).len() == 2)
            .await;
        install_for(&fleet, None).await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }
}
