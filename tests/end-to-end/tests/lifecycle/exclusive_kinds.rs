//! Plugins that bring the CRD of the same kind: the oldest has it, where their namespaces overlap.

mod simulated {
    use pilothouse_end_to_end::stage::hostile;
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
