//! Tests of endless work: an answer that differs each time, a child that another client sets or deletes again and
//! again, and a plugin that floods. It is slowed and reported, and its neighbours do not notice.

mod simulated {
    use std::time::Duration;

    use kube::api::{DeleteParams, Patch, PatchParams};
    use kube::{Api, Client};
    use pilothouse_core::Limits;
    use pilothouse_core::status::failure::{LONGEST_EDIT_WAIT, LONGEST_REQUESTED_WAIT};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::log::{Guests, Lines};
    use pilothouse_runtime::clock::WallClock;
    use pilothouse_runtime::{HostOptions, StaticPlugin};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::Cluster;
    use serde_json::{Value, json};
    use tokio::task::JoinHandle;
    use tokio::time::{Instant, sleep};

    use crate::stage::{Stage, app_service, hostile, unhurried};

    type ConfigMap = k8s_openapi::api::core::v1::ConfigMap;
    type Deployment = k8s_openapi::api::apps::v1::Deployment;

    /// The message of a Hostile's condition while that says `Contested`.
    fn contested(stage: &Stage, name: &str) -> Option<String> {
        let condition = stage.reconciled("Hostile", name)?;
        let message = condition["message"].as_str()?.to_owned();
        (condition["status"] == "False" && condition["reason"] == "Contested").then_some(message)
    }

    fn well_behaved(name: &str) -> Value {
        hostile(name, &json!({"behaviour": "config-map", "text": "as it should be"}))
    }

    async fn config_maps(stage: &Stage) -> Api<ConfigMap> {
        let client: Client = stage.cluster.client().await.unwrap();
        Api::namespaced(client, "default")
    }

    /// Does something whenever the child `victim` is as the plugin wants it, a quarter of a second later.
    async fn rival(children: Api<ConfigMap>, act: impl AsyncFn(&Api<ConfigMap>)) {
        loop {
            let text = |child: ConfigMap| child.data.and_then(|mut data| data.remove("text"));
            let child = children.get_opt("victim").await.unwrap();
            if child.and_then(text).as_deref() == Some("as it should be") {
                act(&children).await;
            }
            sleep(Duration::from_millis(250)).await;
        }
    }

    /// Checks ten minutes of a conflict: it is reported in these words, with few writes, and over soon after the rival
    /// is gone.
    async fn fight_is_told_and_ends(stage: Stage, rival: impl Future<Output = ()> + 'static, words: &str) {
        stage.create(&well_behaved("victim")).await;
        let local = tokio::task::LocalSet::new();
        local
            .run_until(async {
                let rival: JoinHandle<()> = tokio::task::spawn_local(rival);
                let told = stage.until(|stage| contested(stage, "victim")).await;
                let told = told.unwrap_or_else(|| panic!("{:?}", stage.reconciled("Hostile", "victim")));
                assert!(told.contains(words), "{told}");
                let events = stage.events("victim", "ReconcileFailed");
                assert_eq!(events.len(), 1, "{events:?}");

                let mark = stage.mark();
                for _ in 0..10 {
                    stage.minute().await;
                    assert_eq!(
                        contested(&stage, "victim").as_ref(),
                        Some(&told),
                        "it is told as long as it lasts"
                    );
                }
                let writes = stage.host_writes_since(mark).len();
                assert!((10..60).contains(&writes), "{writes} writes in ten minutes");

                rival.abort();
                // What the rival did last is undone once the brake lets it, and then it has to be calm for a while.
                stage.minute().await;
                let over = stage
                    .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
                    .await;
                assert!(over.is_some(), "{:?}", stage.reconciled("Hostile", "victim"));
                stage.stop().await;
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_sets_a_childs_fields_again_and_again_is_told_by_name() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let rival = rival(config_maps(&stage).await, async |children| {
            let as_rival = PatchParams {
                field_manager: Some("rival".to_owned()),
                ..PatchParams::default()
            };
            let theirs = Patch::Merge(json!({"data": {"text": "as the rival likes it"}}));
            children.patch("victim", &as_rival, &theirs).await.unwrap();
        });
        let words = "ConfigMap default/victim is fought over: rival sets .data each time";
        Box::pin(fight_is_told_and_ends(stage, rival, words)).await;
    }

    /// A Deployment of a Wish, whose fields others hold in the way of the host's.
    async fn wish_for_deployment(stage: &Stage) -> Api<Deployment> {
        let requests = json!({"requests": {"cpu": "100m"}});
        let probe = json!({"httpGet": {"port": 80}});
        let container = json!({"name": "web", "image": "web:1", "resources": requests, "livenessProbe": probe,
            "env": [{"name": "LEVEL", "value": "info"}]});
        let template = json!({"metadata": {"labels": {"run": "web"}}, "spec": {"containers": [container]}});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"run": "web"}}, "template": template}});
        let wish = json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish",
            "metadata": {"name": "it", "namespace": "default"}, "spec": {"owns": [{"object": deployment}]}});
        stage.create(&wish).await;
        let made = stage
            .until(|stage| stage.is_reconciled("Wish", "it").then_some(()))
            .await;
        assert!(made.is_some(), "{:?}", stage.reconciled("Wish", "it"));
        Api::namespaced(stage.cluster.client().await.unwrap(), "default")
    }

    #[tokio::test(start_paused = true)]
    async fn who_puts_fields_in_the_way_again_and_again_is_told_by_name() {
        let json_patch =
            |operations: Value| -> Patch<Value> { Patch::Json(serde_json::from_value(operations).unwrap()) };
        let container = "/spec/template/spec/containers/0";
        let autoscaler = Patch::Merge(json!({"spec": {"replicas": 5}}));
        let recommender = Patch::Strategic(json!({"spec": {"template": {"spec": {"containers": [
            {"name": "web", "resources": {"limits": {"cpu": "50m"}, "requests": {"cpu": "50m"}}}]}}}}));
        let mesh = json_patch(json!([{"op": "replace", "path": format!("{container}/livenessProbe"),
            "value": {"tcpSocket": {"port": 15020}}}]));
        let source = json!({"fieldRef": {"fieldPath": "metadata.name"}});
        let injector = json_patch(json!([{"op": "replace", "path": format!("{container}/env/0"),
            "value": {"name": "LEVEL", "valueFrom": source}}]));
        let rivals = [
            ("autoscaler", autoscaler, "/spec/replicas"),
            (
                "recommender",
                recommender,
                "/spec/template/spec/containers/0/resources/requests/cpu",
            ),
            (
                "mesh",
                mesh,
                "/spec/template/spec/containers/0/livenessProbe/httpGet/port",
            ),
            ("injector", injector, "/spec/template/spec/containers/0/env/0/value"),
        ];
        for (name, patch, ours) in rivals {
            let stage = Stage::with(&["wisher"], unhurried()).await;
            let deployments = wish_for_deployment(&stage).await;
            let as_rival = PatchParams {
                field_manager: Some(name.to_owned()),
                ..PatchParams::default()
            };
            let value = |stage: &Stage| stage.find("Deployment", "web").unwrap().pointer(ours).cloned();
            let wanted = value(&stage);
            assert!(wanted.is_some(), "{ours}");
            let mut told = None;
            for _ in 0..200 {
                if value(&stage) == wanted {
                    deployments.patch("web", &as_rival, &patch).await.unwrap();
                }
                sleep(Duration::from_millis(250)).await;
                let condition = stage.reconciled("Wish", "it").unwrap();
                if condition["reason"] == "Contested" {
                    told = condition["message"].as_str().map(str::to_owned);
                    break;
                }
            }
            let told = told.unwrap_or_else(|| panic!("{name}: {:?}", stage.reconciled("Wish", "it")));
            let words = format!("Deployment default/web is fought over: {name} sets");
            assert!(told.contains(&words), "{told}");
            let mark = stage.mark();
            for _ in 0..10 {
                stage.minute().await;
                if value(&stage) == wanted {
                    deployments.patch("web", &as_rival, &patch).await.unwrap();
                }
            }
            let writes = stage.host_writes_since(mark).len();
            assert!(writes < 60, "{name}: {writes} writes in ten minutes");
            stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_is_deleted_again_and_again_is_told() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let rival = rival(config_maps(&stage).await, async |children| {
            children.delete("victim", &DeleteParams::default()).await.unwrap();
        });
        let words = "ConfigMap default/victim is deleted by somebody each time";
        Box::pin(fight_is_told_and_ends(stage, rival, words)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_another_each_time_is_slowed_and_told() {
        for behaviour in ["differs-by-read", "differs-by-clock"] {
            let mut stage = Stage::empty(unhurried());
            let options = HostOptions {
                clock: WallClock::starting_at(1_800_000_000_000),
                ..HostOptions::default()
            };
            stage.host = RuntimeHost::new(options, unhurried());
            let specs = ["hostile", "app-service"].map(|name| stage.host.spec(name).unwrap());
            stage.start(specs.into()).await;
            stage.host.settled().await.unwrap();
            let mark = stage.mark();
            stage.create(&hostile("victim", &json!({"behaviour": behaviour}))).await;
            let told = stage.until(|stage| contested(stage, "victim")).await;
            let told = told.unwrap_or_else(|| panic!("{behaviour}: {:?}", stage.reconciled("Hostile", "victim")));
            assert!(
                told.contains(
                    "the plugin asks for another ConfigMap default/victim in each run (.data.text), so it is slowed"
                ),
                "{behaviour}: {told}"
            );
            for _ in 0..10 {
                stage.minute().await;
                assert!(
                    contested(&stage, "victim").is_some(),
                    "{behaviour} is told as long as it lasts"
                );
            }
            let writes = stage.host_writes_since(mark);
            let writes = writes.iter().filter(|write| write.resource == "configmaps").count();
            assert!(
                (20..80).contains(&writes),
                "{behaviour}: {writes} writes in ten minutes"
            );
            stage.create(&app_service("web")).await;
            let well = stage
                .until(|stage| stage.is_reconciled("AppService", "web").then_some(()))
                .await;
            assert!(well.is_some(), "{behaviour}");
            stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_floods_does_not_keep_another_waiting() {
        const FLOOD: usize = 400;
        let stage = Stage::with(&["hostile", "app-service"], unhurried()).await;
        let Cluster::Simulated(simulated) = &stage.cluster else {
            unreachable!("a stage is simulated")
        };
        // Writes take their time, so that what is fast is not over before the neighbour comes.
        let slow = Rule::new(Fault::Delay(Duration::from_millis(100))).verbs(&["patch"]);
        simulated.simulator().faults().add(slow);
        for number in 0..FLOOD {
            stage.create(&well_behaved(&format!("flood-{number}"))).await;
        }
        let begun = Instant::now();
        stage.create(&app_service("web")).await;
        let well = stage
            .until(|stage| stage.is_reconciled("AppService", "web").then_some(()))
            .await;
        assert!(well.is_some());
        let took = begun.elapsed();
        let depths = stage.host.handle().unwrap().depths();
        let (_, flood) = depths.iter().find(|(lane, _)| lane.starts_with("hostile/")).unwrap();
        assert!(flood.ready > FLOOD / 2, "it waited for the flood: {flood:?}");
        assert!(!flood.oldest.is_zero(), "the age of the oldest is known");
        // A Deployment, a Service and two statuses, each a tenth of a second, and its own echoes.
        assert!(took < Duration::from_millis(1500), "{took:?}");
        stage.host.settled().await.unwrap();
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_servers_retry_after_is_honoured_shorter_after_edits() {
        const RETRY_AFTER: u32 = 90;
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let Cluster::Simulated(simulated) = &stage.cluster else {
            unreachable!("a stage is simulated")
        };
        let busy = Fault::Status {
            code: 429,
            retry_after: Some(RETRY_AFTER),
        };
        let rule = Rule::new(busy).verbs(&["patch"]).resource("configmaps").times(1);
        simulated.simulator().faults().add(rule);
        let (mark, begun) = (stage.mark(), Instant::now());
        let tries = |stage: &Stage| {
            let writes = stage.host_writes_since(mark);
            writes.iter().filter(|write| write.resource == "configmaps").count()
        };
        stage.create(&well_behaved("victim")).await;
        let told = stage
            .until(|stage| {
                stage
                    .reconciled("Hostile", "victim")
                    .filter(|it| it["status"] == "False")
            })
            .await;
        assert!(told.is_some_and(|it| it["message"].as_str().unwrap().contains("retrying")));
        stage
            .patch_hostile("victim", &json!({"spec": {"text": "another"}}))
            .await;
        sleep(LONGEST_EDIT_WAIT.saturating_sub(Duration::from_millis(500))).await;
        assert_eq!(tries(&stage), 1, "an edit does not make it run at once");
        let well = stage
            .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
            .await;
        assert!(well.is_some(), "{:?}", stage.reconciled("Hostile", "victim"));
        assert!(begun.elapsed() < LONGEST_EDIT_WAIT * 2, "{:?}", begun.elapsed());
        assert_eq!(stage.find("ConfigMap", "victim").unwrap()["data"]["text"], "another");
        assert_eq!(tries(&stage), 2);
        stage.stop().await;
    }

    /// A rule that has requests for ConfigMaps answered like this.
    fn answered(stage: &Stage, fault: Fault, times: u32) {
        let Cluster::Simulated(simulated) = &stage.cluster else {
            unreachable!("a stage is simulated")
        };
        let rule = Rule::new(fault).verbs(&["patch"]).resource("configmaps").times(times);
        simulated.simulator().faults().add(rule);
    }

    #[tokio::test(start_paused = true)]
    async fn a_denial_with_a_long_retry_after_does_not_delay_edits() {
        for code in [403, 429, 503] {
            let stage = Stage::with(&["hostile"], unhurried()).await;
            let retry_after = 1 << 31;
            answered(&stage, Fault::Denied { code, retry_after }, 1);
            stage.create(&well_behaved("victim")).await;
            let told = stage
                .until(|stage| {
                    stage
                        .reconciled("Hostile", "victim")
                        .filter(|it| it["status"] == "False")
                })
                .await;
            let told = told.expect("the denial is told");
            assert!(told["message"].to_string().contains("not today"), "{told}");
            stage.minute().await;
            assert!(
                !stage.is_reconciled("Hostile", "victim"),
                "{code}: the webhook asked for time"
            );
            let edited = Instant::now();
            stage
                .patch_hostile("victim", &json!({"spec": {"text": "another"}}))
                .await;
            let well = stage
                .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
                .await;
            assert!(well.is_some(), "{code}: {:?}", stage.reconciled("Hostile", "victim"));
            assert!(
                edited.elapsed() < Duration::from_secs(1),
                "{code}: {:?}",
                edited.elapsed()
            );
            stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn guest_log_lines_are_limited_and_dropped_ones_reported() {
        const FLOODS: usize = 60;
        // Each call may log 64 KiB, which are some sixty lines.
        const LINES: usize = 60;
        // What a line counts, how much a plugin may log at once, and in a millisecond after that, in bytes.
        const LINE: u128 = 500 + 5 + 500 + 128;
        const BURST: u128 = 1024 * 1024;
        const PER_MILLISECOND: u128 = 32 * 1024 / 1000;
        let guests = Guests::listen();
        let mut stage = Stage::empty(unhurried());
        let chatter = StaticPlugin {
            name: Some("chatter".to_owned()),
            ..stage.host.spec("hostile").unwrap()
        };
        stage.start(vec![chatter]).await;
        stage.host.settled().await.unwrap();
        let begun = Instant::now();
        for number in 0..FLOODS {
            let flood = json!({"behaviour": "log-flood", "count": LINES});
            stage.create(&hostile(&format!("flood-{number}"), &flood)).await;
        }
        let all = |stage: &Stage| {
            let well = (0..FLOODS).all(|number| stage.is_reconciled("Hostile", &format!("flood-{number}")));
            well.then_some(())
        };
        assert!(stage.until(all).await.is_some());
        let took = begun.elapsed().as_millis() + 1;
        // What was dropped last is told half a minute later at the latest.
        stage.minute().await;
        stage.minute().await;
        let Lines { logged, mut dropped } = guests.lines_of("chatter");
        for line in stage.lines(&["plugin=\"chatter\"", "lines of it are dropped"]) {
            dropped += Guests::dropped_in(&line).unwrap_or_default();
        }
        assert_eq!(
            logged + dropped,
            (FLOODS * LINES) as u64,
            "each line is logged or told of"
        );
        let (at_least, at_most) = (BURST / LINE, (BURST + took * (PER_MILLISECOND + 1)) / LINE);
        assert!(
            (at_least..=at_most).contains(&u128::from(logged)),
            "{logged} lines in {took} ms, not {at_least} to {at_most}"
        );
        stage.stop().await;
    }

    /// Checks ten minutes of statuses that change with each run: they are reported, and few are written.
    async fn statuses_that_count_are_slowed(behaviours: &[(&str, Value)]) {
        let mut stage = Stage::empty(unhurried());
        let specs = vec![stage.configured("hostile", json!({"describe": "sees-status"}))];
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        for (name, spec) in behaviours {
            stage.create(&hostile(name, spec)).await;
        }
        for (name, _) in behaviours {
            let told = stage.until(|stage| contested(stage, name)).await;
            let told = told.unwrap_or_else(|| panic!("{name}: {:?}", stage.find("Hostile", name)));
            let words = format!("reports another status of Hostile default/{name} in each run");
            assert!(told.contains(&words), "{told}");
        }
        let mark = stage.mark();
        for _ in 0..10 {
            stage.minute().await;
        }
        let writes = stage.host_writes_since(mark);
        let writes = writes.iter().filter(|write| write.resource == "hostiles").count();
        let range = 10 * behaviours.len()..60 * behaviours.len();
        assert!(range.contains(&writes), "{writes} writes in ten minutes");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_counts_in_its_status_is_slowed_and_told() {
        statuses_that_count_are_slowed(&[("victim", json!({"behaviour": "count-in-status"}))]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn primaries_that_read_each_others_status_are_slowed() {
        let count_on = |another: &str| json!({"behaviour": "count-on-another", "text": another});
        statuses_that_count_are_slowed(&[("one", count_on("other")), ("other", count_on("one"))]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_differs_on_each_call_is_slowed_and_reported() {
        let mut stage = Stage::empty(unhurried());
        let options = HostOptions {
            clock: WallClock::starting_at(1_800_000_000_000),
            ..HostOptions::default()
        };
        stage.host = RuntimeHost::new(options, unhurried());
        let specs = vec![stage.host.spec("hostile").unwrap()];
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        let mark = stage.mark();
        stage
            .create(&hostile("victim", &json!({"behaviour": "clock-in-status"})))
            .await;
        let told = stage.until(|stage| contested(stage, "victim")).await;
        let told = told.unwrap_or_else(|| panic!("{:?}", stage.reconciled("Hostile", "victim")));
        assert!(
            told.contains("reports another status of Hostile default/victim in each run"),
            "{told}"
        );
        for _ in 0..10 {
            stage.minute().await;
            assert!(contested(&stage, "victim").is_some(), "it is told as long as it lasts");
        }
        let writes = stage.host_writes_since(mark);
        let writes = writes.iter().filter(|write| write.resource == "hostiles").count();
        assert!((15..60).contains(&writes), "{writes} writes in ten minutes");
        stage
            .patch_hostile("victim", &json!({"spec": {"behaviour": "config-map"}}))
            .await;
        stage.minute().await;
        let over = stage
            .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
            .await;
        assert!(over.is_some(), "{:?}", stage.reconciled("Hostile", "victim"));
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_years_gets_minutes() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let years = Fault::Status {
            code: 429,
            retry_after: Some(1 << 31),
        };
        answered(&stage, years, 1);
        let begun = Instant::now();
        stage.create(&well_behaved("victim")).await;
        sleep(LONGEST_REQUESTED_WAIT.saturating_sub(Duration::from_secs(1))).await;
        assert!(!stage.is_reconciled("Hostile", "victim"));
        let well = stage
            .until(|stage| stage.is_reconciled("Hostile", "victim").then_some(()))
            .await;
        assert!(well.is_some(), "{:?}", stage.reconciled("Hostile", "victim"));
        assert!(
            begun.elapsed() < LONGEST_REQUESTED_WAIT + Duration::from_secs(10),
            "{:?}",
            begun.elapsed()
        );
        stage.stop().await;
    }

    /// The calls take real time, whatever the test's clock says; a machine under load only makes them take more.
    #[tokio::test(start_paused = true)]
    async fn a_plugin_with_endless_calls_gets_at_most_half_of_the_cores() {
        const LOOPS: usize = 8;
        const CALL: Duration = Duration::from_millis(300);
        let limits = Limits {
            call_milliseconds: 300,
            ..Limits::default()
        };
        let stage = Stage::with(&["hostile"], limits).await;
        let begun = std::time::Instant::now();
        for number in 0..LOOPS {
            let name = format!("loop-{number}");
            stage.create(&hostile(&name, &json!({"behaviour": "loop"}))).await;
        }
        let told = |stage: &Stage| {
            let failed = (0..LOOPS).all(|number| stage.reconciled("Hostile", &format!("loop-{number}")).is_some());
            failed.then_some(())
        };
        assert!(stage.until(told).await.is_some());
        let half = std::thread::available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        let rounds = u32::try_from(LOOPS.div_ceil(half)).unwrap();
        assert!(begun.elapsed() >= CALL * rounds, "{:?}", begun.elapsed());
        stage.stop().await;
    }
}
