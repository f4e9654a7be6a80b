//! A plugin that traps again and again is slowed, stopped, and tried again; the others go on.

mod simulated {
    use std::time::Duration;

    use pilothouse_end_to_end::stage::{app_service, hostile};
    use serde_json::json;
    use tokio::time::Instant;

    use crate::fleet::{Fleet, condition};

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_traps_on_every_object_is_stopped_and_retried() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.put("app-service", "b.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.plugin("neighbour", json!({"source": {"file": "b.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.is_ready("neighbour").await;
        for index in 0..40 {
            fleet
                .stage
                .create(&hostile(&format!("o{index}"), &json!({"behaviour": "config-map"})))
                .await;
        }
        fleet
            .until("all are reconciled", |stage| stage.all("ConfigMap").len() >= 40)
            .await;
        // Behaviours come with the objects here, so that no trial keeps them away.
        for index in 0..40 {
            fleet
                .stage
                .patch_hostile(&format!("o{index}"), &json!({"spec": {"behaviour": "trap"}}))
                .await;
        }
        let said = fleet.says("it", "Ready", "False", "CrashLoop").await;
        assert!(
            said["message"].as_str().unwrap().contains("the plugin trapped"),
            "{said:#}"
        );
        assert_eq!(fleet.status("it")["lastFailure"]["blame"], "guest");
        fleet.stage.create(&app_service("web")).await;
        fleet
            .until("the neighbour goes on", |stage| {
                stage.is_reconciled("AppService", "web")
            })
            .await;

        // It is tried again, and once more in vain.
        fleet
            .until("it is tried again", |stage| {
                let status = stage.find("Plugin", "it").unwrap()["status"].take();
                let said = condition(&status, "Ready");
                said["reason"] == "CrashLoop" && said["message"].to_string().contains("again in 20 s")
            })
            .await;
        for index in 0..40 {
            fleet
                .stage
                .patch_hostile(&format!("o{index}"), &json!({"spec": {"behaviour": "config-map"}}))
                .await;
        }
        fleet.is_ready("it").await;
        fleet
            .until("all are reconciled again", |stage| {
                (0..40).all(|index| stage.is_reconciled("Hostile", &format!("o{index}")))
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_keeps_trapping_is_slowed_before_it_is_stopped() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet
            .plugin("it", json!({"source": {"file": "a.wasm"}, "concurrency": 1}))
            .await;
        fleet.is_ready("it").await;
        let begun = Instant::now();
        for index in 0..40 {
            let trap = json!({"behaviour": "trap"});
            fleet.stage.create(&hostile(&format!("o{index}"), &trap)).await;
        }
        let said = fleet.says("it", "Ready", "True", "Slowed").await;
        assert!(
            said["message"]
                .as_str()
                .unwrap()
                .contains("calls trapped or broke a limit"),
            "{said:#}"
        );
        fleet.says("it", "Ready", "False", "CrashLoop").await;
        // Five traps are free; the pauses after the next nine grow up to five seconds.
        assert!(begun.elapsed() > Duration::from_secs(20), "{:?}", begun.elapsed());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_object_that_traps_is_no_crash_of_the_plugin() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        for name in ["good", "better", "best"] {
            fleet
                .stage
                .create(&hostile(name, &json!({"behaviour": "config-map"})))
                .await;
        }
        fleet.stage.create(&hostile("bad", &json!({"behaviour": "trap"}))).await;
        for round in 0..30 {
            fleet
                .stage
                .patch_hostile("bad", &json!({"spec": {"text": format!("{round}")}}))
                .await;
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        fleet.is_ready("it").await;
        assert!(fleet.stage.lines(&["the plugin is stopped"]).is_empty());
        fleet.stage.stop().await;
    }

    /// Hostile objects of other namespaces than the default one.
    fn hostile_of(namespace: &str, name: &str, spec: &serde_json::Value) -> serde_json::Value {
        let mut object = hostile(name, spec);
        object["metadata"]["namespace"] = json!(namespace);
        object
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_whose_objects_trap_stops_the_plugin_for_nobody_else() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        for namespace in ["adversary", "victim"] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            fleet.stage.create(&namespace).await;
        }
        // At first there is nobody else: all that the plugin has to serve fails.
        for index in 0..20 {
            let trap = hostile_of("adversary", &format!("o{index}"), &json!({"behaviour": "trap"}));
            fleet.stage.create(&trap).await;
        }
        fleet.says("it", "Ready", "False", "CrashLoop").await;
        for round in 0..10 {
            for index in 0..4 {
                let patch = json!({"spec": {"text": format!("{round}")}});
                fleet
                    .stage
                    .patch_hostile_of("adversary", &format!("o{index}"), &patch)
                    .await;
            }
            let name = format!("v{round}");
            let begun = Instant::now();
            fleet
                .stage
                .create(&hostile_of("victim", &name, &json!({"behaviour": "config-map"})))
                .await;
            fleet
                .until("the victim is served", |stage| {
                    stage.all("ConfigMap").iter().any(|it| it["metadata"]["name"] == *name)
                })
                .await;
            assert!(
                begun.elapsed() < Duration::from_secs(1),
                "{round}: {:?}",
                begun.elapsed()
            );
            tokio::time::sleep(Duration::from_secs(3)).await;
        }
        fleet.stage.stop().await;
    }
}
