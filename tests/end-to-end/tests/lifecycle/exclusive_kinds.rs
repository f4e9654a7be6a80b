//! Plugins that bring the CRD of the same kind: where their namespaces overlap, the one that runs keeps it, and the oldest
//! gets it where none runs.

mod simulated {
    use pilothouse_end_to_end::stage::hostile;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::json;

    use crate::fleet::Fleet;

    #[tokio::test(start_paused = true)]
    async fn of_two_plugins_with_one_kind_the_older_runs() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        let spec = |text: &str| json!({"source": {"file": "a.wasm"}, "configuration": {"text": text}});
        fleet.plugin("old", spec("old")).await;
        fleet.is_ready("old").await;
        fleet.a_second().await;
        fleet.plugin("new", spec("new")).await;
        let said = fleet.says("new", "Ready", "False", "KindTaken").await;
        let message = said["message"].as_str().unwrap();
        assert!(
            message.contains("it brings the CRD of Hostile, which plugin old brings already"),
            "{message}"
        );
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        let text = |wanted: &'static str| {
            move |stage: &pilothouse_end_to_end::stage::Stage| {
                stage
                    .find("ConfigMap", "web")
                    .is_some_and(|it| it["data"]["text"] == wanted)
            }
        };
        fleet.until("the older reconciles it", text("old")).await;
        fleet.delete("old").await;
        fleet.is_ready("new").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_runs_keeps_a_kind_against_an_older_plugin_that_wakes_up() {
        let mut fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        let spec = |text: &str, mode: &str| json!({"source": {"file": "a.wasm"}, "configuration": {"text": text}, "mode": mode});
        fleet.plugin("old", spec("old", "Suspended")).await;
        fleet.says("old", "Ready", "False", "Suspended").await;
        fleet.a_second().await;
        fleet.plugin("young", spec("young", "Active")).await;
        fleet.is_ready("young").await;
        fleet.change("old", json!({"mode": "Active"})).await;
        let said = fleet.says("old", "Ready", "False", "KindTaken").await;
        let message = said["message"].as_str().unwrap();
        assert!(message.contains("which plugin young brings already"), "{message}");
        fleet.is_ready("young").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet
            .until("the one that runs reconciles it", |stage| {
                let found = stage.find("ConfigMap", "web");
                found.is_some_and(|it| it["data"]["text"] == "young")
            })
            .await;
        // Another process of the host gives it to the same, and so does one after that.
        for _ in 0..2 {
            fleet.stage.host.stop().await.unwrap();
            let begun = fleet.stage.mark();
            fleet.start_host().await;
            fleet.stage.minute().await;
            fleet.is_ready("young").await;
            let said = fleet.says("old", "Ready", "False", "KindTaken").await;
            assert!(said["message"].as_str().unwrap().contains("plugin young"), "{said}");
            let writes = fleet.stage.host_writes_since(begun);
            assert!(
                writes
                    .iter()
                    .all(|it| it.resource != "configmaps" && it.resource != "hostiles"),
                "{writes:?}"
            );
        }
        // Where nobody runs, the next one gets it, and then keeps it.
        fleet.change("young", json!({"mode": "Suspended"})).await;
        fleet.is_ready("old").await;
        fleet.change("young", json!({"mode": "Active"})).await;
        fleet.says("young", "Ready", "False", "KindTaken").await;
        fleet.is_ready("old").await;
        // Of one that is gone when the host starts, nothing is waited for.
        fleet.stage.host.stop().await.unwrap();
        fleet.delete("old").await;
        fleet.start_host().await;
        fleet.is_ready("young").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_older_plugin_takes_no_kind_after_a_restart() {
        let mut fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        let spec = |file: &str| json!({"source": {"file": file}});
        fleet.plugin("old", spec("none.wasm")).await;
        fleet.says("old", "Ready", "False", "FetchFailed").await;
        fleet.a_second().await;
        fleet.plugin("young", spec("a.wasm")).await;
        fleet.is_ready("young").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        // Its status still says what it said before the restart.
        fleet.stage.minute().await;
        fleet.is_ready("young").await;
        fleet.put("hostile", "none.wasm", 1);
        fleet.says("old", "Ready", "False", "KindTaken").await;
        fleet.is_ready("young").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn in_different_namespaces_both_run() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        let spec = |text: &str, namespace: &str| json!({"source": {"file": "a.wasm"}, "configuration": {"text": text}, "namespaces": [namespace]});
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        fleet.stage.create(&namespace).await;
        fleet.plugin("here", spec("here", "default")).await;
        fleet.a_second().await;
        fleet.plugin("there", spec("there", "other")).await;
        fleet.is_ready("here").await;
        fleet.is_ready("there").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        let mut elsewhere = hostile("far", &json!({"behaviour": "config-map"}));
        elsewhere["metadata"]["namespace"] = json!("other");
        fleet.stage.create(&elsewhere).await;
        fleet
            .until("each has its own", |stage| {
                let text = |name: &str| stage.find("ConfigMap", name).map(|it| it["data"]["text"].clone());
                text("web") == Some(json!("here")) && text("far") == Some(json!("there"))
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_component_that_brings_no_kind_is_installed_twice() {
        let fleet = Fleet::start().await;
        fleet.put("service-ingress", "a.wasm", 0);
        for name in ["one", "two"] {
            fleet.plugin(name, json!({"source": {"file": "a.wasm"}})).await;
        }
        fleet.is_ready("one").await;
        fleet.is_ready("two").await;
        fleet.stage.stop().await;
    }
}
