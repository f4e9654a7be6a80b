//! The metrics of a host after a known story, and whether it says that it is ready.

mod simulated {
    use std::net::{Ipv4Addr, TcpListener};
    use std::time::Duration;

    use pilothouse_end_to_end::host::{RuntimeHost, webhooks};
    use pilothouse_end_to_end::scrape::Scrape;
    use pilothouse_end_to_end::stage::{Stage, hostile, unhurried};
    use pilothouse_metrics::Metrics;
    use pilothouse_runtime::{HostOptions, WebhookOptions};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::json;

    use crate::fleet::Fleet;

    /// A fleet whose metrics can be seen.
    async fn measured() -> (Fleet, Metrics) {
        let metrics = Metrics::default();
        let options = HostOptions {
            metrics: metrics.clone(),
            ..HostOptions::default()
        };
        (Fleet::start_with(Cluster::simulated(), options).await, metrics)
    }

    fn scrape(fleet: &Fleet, metrics: &Metrics) -> Scrape {
        Scrape(metrics.print(&fleet.stage.host.handle().unwrap().figures()))
    }

    const OF_IT: &[&str] = &["plugin=\"it\"", "controller=\"hostile\""];

    fn of_it<'a>(more: &'a [&'a str]) -> Vec<&'a str> {
        [OF_IT, more].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn reconciles_traps_and_cached_objects_are_those_of_the_story() {
        let (fleet, metrics) = measured().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let begun = scrape(&fleet, &metrics);
        assert_eq!(
            begun.count("pilothouse_reconciles_total", OF_IT),
            Some(0),
            "{}",
            begun.0
        );
        assert_eq!(begun.count("pilothouse_guest_traps_total", &["plugin=\"it\""]), Some(0));
        for index in 0..5 {
            let object = hostile(&format!("o{index}"), &json!({"behaviour": "config-map"}));
            fleet.stage.create(&object).await;
        }
        // The kind of a broken call, and what breaks it.
        let broken = [
            ("trap", "trap"),
            ("memoryBytes", "memory-bomb"),
            ("output", "many-objects"),
            ("contract", "undeclared-read"),
        ];
        for (_, behaviour) in broken {
            let object = hostile(behaviour, &json!({"behaviour": behaviour}));
            fleet.stage.create(&object).await;
        }
        fleet
            .until("all are reconciled", |stage| {
                let fails = |name: &str| {
                    stage
                        .reconciled("Hostile", name)
                        .is_some_and(|it| it["status"] == "False")
                };
                broken.iter().all(|(_, behaviour)| fails(behaviour))
                    && (0..5).all(|index| stage.is_reconciled("Hostile", &format!("o{index}")))
            })
            .await;
        fleet.stage.host.settled().await.unwrap();
        let scrape = scrape(&fleet, &metrics);
        let count = |name: &str, labels: &[&str]| scrape.count(name, labels).unwrap_or(u64::MAX);
        let failed = count("pilothouse_reconciles_total", &of_it(&["result=\"guest_failure\""]));
        let succeeded = count("pilothouse_reconciles_total", &of_it(&["result=\"success\""]));
        assert!(failed >= broken.len() as u64 && succeeded >= 5, "{}", scrape.0);
        let traps = |kind: &str| {
            let kind = format!("kind=\"{kind}\"");
            count("pilothouse_guest_traps_total", &["plugin=\"it\"", &kind])
        };
        let traps: Vec<u64> = broken.iter().map(|(kind, _)| traps(kind)).collect();
        assert!(traps.iter().all(|traps| *traps >= 1), "{}", scrape.0);
        assert_eq!(traps.iter().sum::<u64>(), failed, "{}", scrape.0);
        assert_eq!(
            count("pilothouse_guest_traps_total", &["plugin=\"it\""]),
            failed,
            "nothing else was broken: {}",
            scrape.0
        );
        assert_eq!(
            count("pilothouse_reconcile_duration_seconds_count", OF_IT),
            failed + succeeded
        );
        let calls = count(
            "pilothouse_guest_call_duration_seconds_count",
            &["function=\"reconcile\""],
        );
        assert_eq!(calls, failed + succeeded, "{}", scrape.0);
        assert!(
            count(
                "pilothouse_guest_call_duration_seconds_count",
                &["function=\"describe\""]
            ) >= 1
        );
        assert_eq!(
            count("pilothouse_cached_objects", &["kind=\"Hostile.v1.hostile.test.dev\""]),
            5 + broken.len() as u64
        );
        let config_maps = fleet.stage.all("ConfigMap").len() as u64;
        assert_eq!(
            count("pilothouse_cached_objects", &["kind=\"ConfigMap.v1\""]),
            config_maps
        );
        assert!(count("pilothouse_cached_bytes", &["kind=\"ConfigMap.v1\""]) > config_maps * 100);
        assert_eq!(count("pilothouse_failing_objects", OF_IT), broken.len() as u64);
        for idle in ["queue_depth", "reconciles_running", "queue_held_objects"] {
            assert_eq!(count(&format!("pilothouse_{idle}"), OF_IT), 0, "{idle}");
        }
        let oldest = scrape.seconds("pilothouse_queue_oldest_age_seconds", OF_IT);
        assert_eq!(oldest, Some(Duration::ZERO));
        assert_eq!(count("pilothouse_controller_synced", OF_IT), 1);
        assert_eq!(count("pilothouse_plugin_ready", &["plugin=\"it\""]), 1);
        let digest = format!("digest=\"{}\"", fleet.status("it")["digest"].as_str().unwrap());
        assert_eq!(count("pilothouse_plugin_info", &["plugin=\"it\"", &digest]), 1);
        assert!(
            !scrape.has_label("o1") && !scrape.has_label("default"),
            "no object and no namespace is named"
        );
        fleet.stage.stop().await;
    }

    /// Blocks the only worker by an object whose write takes the API server long, so that all others are queued.
    #[tokio::test(start_paused = true)]
    async fn metrics_count_waiting_objects_and_their_age() {
        let metrics = Metrics::default();
        let options = HostOptions {
            metrics: metrics.clone(),
            workers: 1,
            plugin_workers: 1,
            ..HostOptions::default()
        };
        let fleet = Fleet::start_with(Cluster::simulated(), options).await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let slow = Rule::new(Fault::Delay(Duration::from_secs(20)))
            .verbs(&["patch"])
            .resource("configmaps")
            .times(1);
        fleet.stage.simulator().faults().add(slow);
        for index in 0..4 {
            let object = hostile(&format!("o{index}"), &json!({"behaviour": "config-map"}));
            fleet.stage.create(&object).await;
        }
        let depth = |_: &Stage| scrape(&fleet, &metrics).count("pilothouse_queue_depth", OF_IT) == Some(3);
        fleet.until("three are queued", depth).await;
        let oldest = || {
            scrape(&fleet, &metrics)
                .seconds("pilothouse_queue_oldest_age_seconds", OF_IT)
                .unwrap()
        };
        let before = oldest();
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(oldest(), before + Duration::from_secs(7));
        assert!(depth(&fleet.stage));
        let running = scrape(&fleet, &metrics).count("pilothouse_reconciles_running", OF_IT);
        assert_eq!(running, Some(1));
        let empty = |_: &Stage| scrape(&fleet, &metrics).count("pilothouse_queue_depth", OF_IT) == Some(0);
        fleet.until("the queue is empty", empty).await;
        assert_eq!(oldest(), Duration::ZERO);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_plugin_has_read_is_counted_until_its_object_goes() {
        let (fleet, metrics) = measured().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let reads = || {
            let scrape = scrape(&fleet, &metrics);
            ["", "_bytes"].map(|unit| scrape.count(&format!("pilothouse_dependencies{unit}"), OF_IT).unwrap())
        };
        assert_eq!(reads(), [0, 0]);
        for (name, expected) in [("a", 1), ("b", 2)] {
            fleet
                .stage
                .create(&hostile(name, &json!({"behaviour": "many-finds", "count": 1})))
                .await;
            fleet.until("it is read", |_| reads()[0] == expected).await;
        }
        let [_, bytes] = reads();
        assert!((1..10_000).contains(&bytes), "{bytes}");
        fleet.stage.delete_hostile("a").await;
        fleet.until("one is left", |_| reads()[0] == 1).await;
        assert!(reads()[1] < bytes, "{:?}", reads());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn metric_series_of_a_plugin_and_its_kinds_end_on_deletion() {
        let (fleet, metrics) = measured().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.put("app-service", "b.wasm", 0);
        for (name, file) in [("it", "a.wasm"), ("other", "b.wasm")] {
            fleet.plugin(name, json!({"source": {"file": file}})).await;
            fleet.is_ready(name).await;
        }
        fleet.stage.create(&hostile("o", &json!({"behaviour": "trap"}))).await;
        let trapped = |_: &Stage| {
            let traps = scrape(&fleet, &metrics).count("pilothouse_guest_traps_total", &["plugin=\"it\""]);
            traps.is_some_and(|traps| traps >= 1)
        };
        fleet.until("it traps", trapped).await;
        // A new version of a plugin counts on.
        fleet.put("hostile", "c.wasm", 1);
        fleet.change("it", json!({"source": {"file": "c.wasm"}})).await;
        let other = |_: &Stage| {
            let digest = fleet.status("it")["digest"].as_str().unwrap_or_default().to_owned();
            let info = format!("digest=\"{digest}\"");
            let infos = scrape(&fleet, &metrics).count("pilothouse_plugin_info", &["plugin=\"it\""]);
            infos == Some(1) && scrape(&fleet, &metrics).has_label(&info)
        };
        fleet.until("the info is of the version that runs", other).await;
        assert!(trapped(&fleet.stage), "counters survive a new version");
        fleet.delete("it").await;
        let gone = |_: &Stage| {
            let scrape = scrape(&fleet, &metrics);
            !scrape.has_label("plugin=\"it\"") && !scrape.has_label("hostile.test.dev")
        };
        fleet.until("nothing is left of it", gone).await;
        assert!(scrape(&fleet, &metrics).has_label("plugin=\"other\""));
        assert!(scrape(&fleet, &metrics).has_label("kind=\"AppService.v1.kosmos.io\""));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_series_of_a_controller_go_with_the_version_that_had_it() {
        let (fleet, metrics) = measured().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.put("app-service", "b.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.accept("it", "deletes=0").await;
        fleet.change("it", json!({"source": {"file": "b.wasm"}})).await;
        let exchanged = |_: &Stage| {
            let scrape = scrape(&fleet, &metrics);
            scrape.has_label("controller=\"app-service\"") && !scrape.has_label("controller=\"hostile\"")
        };
        fleet
            .until("the controllers are those of the new version", exchanged)
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn watches_that_are_opened_again_are_counted_by_their_reason() {
        let (fleet, metrics) = measured().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let restarts = |reason: &str| {
            let labels = ["kind=\"Hostile.v1.hostile.test.dev\"", &format!("reason=\"{reason}\"")];
            scrape(&fleet, &metrics).count("pilothouse_watch_restarts_total", &labels)
        };
        assert_eq!((restarts("closed"), restarts("expired")), (Some(0), Some(0)));
        fleet.stage.simulator().cut_watches("hostile.test.dev", "hostiles");
        fleet
            .until("its end is counted", |_| restarts("closed") == Some(1))
            .await;
        let gone = Rule::new(Fault::GoneOnWatch)
            .verbs(&["watch"])
            .resource("hostiles")
            .times(1);
        fleet.stage.simulator().faults().add(gone);
        fleet.stage.simulator().cut_watches("hostile.test.dev", "hostiles");
        fleet
            .until("the relist is counted", |_| restarts("expired") == Some(1))
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn events_that_are_too_many_for_one_object_are_counted() {
        let (fleet, metrics) = measured().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let dropped = || scrape(&fleet, &metrics).count("pilothouse_events_dropped_total", &["plugin=\"it\""]);
        assert_eq!(dropped(), Some(0));
        let loud = json!({"behaviour": "many-events", "count": 25});
        fleet.stage.create(&hostile("loud", &loud)).await;
        let all_but_twenty = |_: &Stage| dropped().is_some_and(|dropped| dropped >= 5);
        fleet.until("five of 25 events are dropped", all_but_twenty).await;
        fleet.stage.stop().await;
    }

    fn missing(stage: &Stage) -> Vec<String> {
        stage.host.handle().unwrap().missing_for_readiness()
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_ready_when_its_plugins_run_or_have_said_why_not() {
        let mut stage = Stage {
            cluster: Cluster::simulated(),
            host: RuntimeHost::new(HostOptions::default(), unhurried()),
        };
        // The lists of one kind do not end before the test says so.
        let lists = Rule::new(Fault::Status {
            code: 503,
            retry_after: None,
        })
        .verbs(&["list"])
        .resource("hostiles");
        let lists = stage.simulator().faults().add(lists);
        let spec = stage.host.spec("hostile").unwrap();
        stage.start(vec![spec]).await;
        stage
            .until(|stage| stage.host.handle().unwrap().plugins().first().map(|_| ()))
            .await
            .unwrap();
        let waits =
            |stage: &Stage| missing(stage) == ["plugin hostile waits for the list of hostile.test.dev/v1 Hostile"];
        let waits = stage.until(|stage| waits(stage).then_some(())).await;
        assert!(waits.is_some(), "{:?}", missing(&stage));
        stage.simulator().faults().remove(lists);
        let ready = stage.until(|stage| missing(stage).is_empty().then_some(())).await;
        assert!(ready.is_some(), "{:?}", missing(&stage));
        stage.host.settled().await.unwrap();
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_with_an_unserved_kind_keeps_the_host_ready() {
        let mut host = RuntimeHost::new(HostOptions::default(), unhurried());
        host.install_no_crds();
        let cluster = Cluster::simulated();
        let mut stage = Stage { cluster, host };
        let spec = stage.host.spec("hostile").unwrap();
        stage.start(vec![spec]).await;
        let ready = stage.until(|stage| {
            missing(stage)
                .is_empty()
                .then(|| stage.host.handle().unwrap().plugins())
        });
        let plugins = ready.await.unwrap_or_else(|| panic!("{:?}", missing(&stage)));
        assert_eq!(plugins.iter().map(|plugin| plugin.ready).collect::<Vec<_>>(), [None]);
        assert_eq!(
            stage
                .lines(&["the cluster does not serve hostile.test.dev/Hostile"])
                .len(),
            1
        );
        stage.host.stop().await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_cannot_serve_its_webhooks_is_not_ready() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let mut host = RuntimeHost::new(HostOptions::default(), unhurried());
        host.serve(WebhookOptions {
            listen: taken.local_addr().unwrap(),
            ..webhooks("default", "webhooks").unwrap()
        });
        let cluster = Cluster::simulated();
        let mut stage = Stage { cluster, host };
        let spec = stage.host.spec("hostile").unwrap();
        stage.start(vec![spec]).await;
        stage.host.settled().await.unwrap();
        assert_eq!(missing(&stage), ["the webhooks are not served yet; the log says why"]);
        drop(taken);
        let ready = stage.until(|stage| missing(stage).is_empty().then_some(())).await;
        assert!(
            ready.is_some(),
            "{:?}\n{:?}",
            missing(&stage),
            stage.lines(&["webhooks"])
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_has_not_seen_the_plugin_resources_is_not_ready() {
        let (fleet, _) = measured().await;
        fleet
            .until("an empty fleet is ready", |stage| missing(stage).is_empty())
            .await;
        fleet.stage.stop().await;
    }
}
