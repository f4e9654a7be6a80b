//! The course of a plugin's life: it comes, is changed, suspended and goes, and its status costs few writes.

mod simulated {
    use std::time::Duration;

    use pilothouse_end_to_end::stage::hostile;
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::json;

    use crate::fleet::Fleet;

    #[tokio::test(start_paused = true)]
    async fn a_plugin_comes_and_says_how_it_fares() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("first", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("first").await;
        for kind in ["Fetched", "Compiled", "Established"] {
            fleet.says("first", kind, "True", kind).await;
        }
        let status = fleet.status("first");
        assert!(status["digest"].as_str().unwrap().starts_with("sha256:"), "{status:#}");
        assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(
            (&status["observedGeneration"], &status["runningGeneration"]),
            (&json!(1), &json!(1))
        );

        let good = json!({"behaviour": "config-map"});
        fleet.stage.create(&hostile("web", &good)).await;
        fleet
            .stage
            .create(&hostile(
                "bad",
                &json!({"behaviour": "permanent-failure", "text": "no such port"}),
            ))
            .await;
        fleet
            .until("the counts are told", |stage| {
                let status = stage.find("Plugin", "first").unwrap()["status"].take();
                status["objects"] == 2 && status["failing"] == 1 && status["controllers"][0]["name"] == "hostile"
            })
            .await;
        let failure = fleet.status("first")["lastFailure"].clone();
        assert_eq!(
            (&failure["blame"], &failure["object"]),
            (&json!("user"), &json!("default/bad"))
        );
        assert!(
            failure["message"].as_str().unwrap().contains("no such port"),
            "{failure}"
        );
        assert!(fleet.stage.is_reconciled("Hostile", "web"));

        fleet.stage.delete_hostile("web").await;
        fleet
            .until("what goes is not counted any more", |stage| {
                stage.find("Plugin", "first").unwrap()["status"]["objects"] == 1
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_suspended_plugin_does_nothing_and_goes_on_where_it_was() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map", "text": "one"})))
            .await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "web"))
            .await;

        fleet.change("it", json!({"mode": "Suspended"})).await;
        fleet.says("it", "Ready", "False", "Suspended").await;
        fleet
            .stage
            .patch_hostile("web", &json!({"spec": {"text": "two"}}))
            .await;
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        let writes = fleet.stage.host_writes_since(mark);
        assert!(writes.is_empty(), "{writes:?}");
        assert_eq!(fleet.stage.find("ConfigMap", "web").unwrap()["data"]["text"], "one");

        fleet.change("it", json!({"mode": "Active"})).await;
        fleet
            .until("what was missed is made good", |stage| {
                stage.find("ConfigMap", "web").unwrap()["data"]["text"] == "two"
            })
            .await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_deleted_plugin_leaves_its_objects_and_its_watches_end() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Hostile", "web"))
            .await;
        fleet.delete("it").await;
        fleet
            .until("it is unloaded", |stage| {
                !stage.lines(&["the plugin is unloaded", "it"]).is_empty()
            })
            .await;
        fleet
            .stage
            .create(&hostile("late", &json!({"behaviour": "config-map"})))
            .await;
        let mark = fleet.stage.mark();
        // Watches are renewed within five minutes, those that are left.
        tokio::time::sleep(Duration::from_mins(11)).await;
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let asked: Vec<_> = requests
            .iter()
            .filter(|it| it.is_by_host() && !["plugins", "customresourcedefinitions"].contains(&it.resource.as_str()))
            .collect();
        assert!(asked.is_empty(), "{asked:?}");
        assert!(fleet.stage.find("ConfigMap", "web").is_some() && fleet.stage.find("ConfigMap", "late").is_none());

        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet
            .until("it is there again", |stage| stage.is_reconciled("Hostile", "late"))
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_writes_nothing_and_counts_are_written_seldom() {
        let mut fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let mark = fleet.stage.mark();
        for index in 0..300 {
            fleet
                .stage
                .create(&hostile(&format!("o{index}"), &json!({"behaviour": "nothing"})))
                .await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        // Its failure is an event, which the next process tells as little again.
        let fails = json!({"behaviour": "permanent-failure"});
        fleet.stage.create(&hostile("bad", &fails)).await;
        fleet
            .until("all are counted", |stage| {
                let status = stage.find("Plugin", "it").unwrap()["status"].take();
                status["objects"] == 301 && status["controllers"][0]["queued"] == 0
            })
            .await;
        let writes = fleet.stage.host_writes_since(mark);
        let told = writes.iter().filter(|write| write.resource == "plugins").count();
        assert!((1..=6).contains(&told), "{told} writes in half a minute");

        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.stage.host.settled().await.unwrap();
        fleet.stage.minute().await;
        let writes = fleet.stage.host_writes_since(mark);
        assert!(writes.is_empty(), "{writes:?}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_described_plugin_sleeps_until_there_is_work() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let looks = fleet.stage.host.handle().unwrap().plugins();
        assert!(looks.iter().all(|look| !look.is_awake), "{looks:?}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_plugin_sleeps_and_wakes_for_a_change() {
        let options = HostOptions {
            sleep_after: Duration::from_millis(1),
            ..HostOptions::default()
        };
        let fleet = Fleet::start_with(Cluster::simulated(), options).await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let awake = |stage: &pilothouse_end_to_end::stage::Stage| {
            let looks = stage.host.handle().unwrap().plugins();
            looks.iter().any(|look| &*look.name == "it" && look.is_awake)
        };
        fleet.until("it sleeps", |stage| !awake(stage)).await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet
            .until("it wakes", |stage| stage.is_reconciled("Hostile", "web"))
            .await;
        fleet.until("it sleeps again", |stage| !awake(stage)).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn objects_created_while_down_do_not_wait_behind_older_ones() {
        let mut fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet
            .plugin("it", json!({"source": {"file": "a.wasm"}, "concurrency": 1}))
            .await;
        fleet.is_ready("it").await;
        let behaviour = json!({"behaviour": "config-map", "text": "one"});
        let old = ["a", "b", "c"];
        for name in old {
            fleet.stage.create(&hostile(name, &behaviour)).await;
        }
        fleet
            .until("they are reconciled", |stage| {
                old.iter().all(|name| stage.is_reconciled("Hostile", name))
            })
            .await;
        fleet.stage.host.stop().await.unwrap();
        fleet.stage.create(&hostile("new", &behaviour)).await;
        let before = fleet.stage.lines(&["reconciled "]).len();
        fleet.start_host().await;
        fleet
            .until("all are looked at", |stage| {
                stage.lines(&["reconciled "]).len() == before + 4
            })
            .await;
        let lines = fleet.stage.lines(&["reconciled "]).split_off(before);
        let order = ["new", "a", "b", "c"].map(|name| format!("default/{name} "));
        let is_ordered = lines.iter().zip(&order).all(|(line, name)| line.contains(name));
        assert!(is_ordered, "{lines:#?}");
        fleet.stage.stop().await;
    }
}
