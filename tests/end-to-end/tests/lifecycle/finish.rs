//! What a plugin leaves behind is what its resource says; and a plugin in preview has left nothing.

mod simulated {
    use pilothouse_end_to_end::stage::hostile;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::json;

    use crate::fleet::Fleet;

    async fn two_are_reconciled(policy: &str) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "deletionPolicy": policy});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        for name in ["one", "two"] {
            let object = hostile(name, &json!({"behaviour": "config-map"}));
            fleet.stage.create(&object).await;
        }
        fleet
            .until("both are reconciled", |stage| {
                stage.is_reconciled("Hostile", "one") && stage.is_reconciled("Hostile", "two")
            })
            .await;
        fleet
    }

    #[tokio::test(start_paused = true)]
    async fn with_the_policy_delete_its_objects_go_before_the_plugin_does_and_primaries_stay() {
        let fleet = two_are_reconciled("Delete").await;
        let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "foreign", "namespace": "default"}});
        fleet.stage.create(&foreign).await;
        fleet.delete("it").await;
        fleet
            .until("the Plugin goes", |stage| stage.find("Plugin", "it").is_none())
            .await;
        assert!(fleet.stage.find("ConfigMap", "one").is_none() && fleet.stage.find("ConfigMap", "two").is_none());
        assert!(fleet.stage.find("Hostile", "one").is_some() && fleet.stage.find("ConfigMap", "foreign").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_is_deleted_while_the_host_is_down_is_ended_at_the_next_start() {
        let mut fleet = two_are_reconciled("Delete").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.delete("it").await;
        assert!(fleet.stage.find("Plugin", "it").is_some(), "it waits for the host");
        fleet.start_host().await;
        fleet
            .until("the Plugin goes", |stage| stage.find("Plugin", "it").is_none())
            .await;
        assert!(fleet.stage.find("ConfigMap", "one").is_none() && fleet.stage.find("Hostile", "one").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_leaves_nothing_to_do_has_no_finalizer() {
        let fleet = two_are_reconciled("Orphan").await;
        let finalizers = |fleet: &Fleet| fleet.stage.find("Plugin", "it").unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers(&fleet), json!(null));
        fleet.change("it", json!({"deletionPolicy": "Delete"})).await;
        fleet.is_ready("it").await;
        assert_eq!(finalizers(&fleet), json!(["pilothouse.dev/plugin"]));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_in_preview_says_what_it_would_write_and_writes_it_when_it_is_let() {
        let fleet = Fleet::start().await;
        fleet.put("hostile", "a.wasm", 0);
        fleet
            .plugin("it", json!({"source": {"file": "a.wasm"}, "mode": "Preview"}))
            .await;
        fleet.says("it", "Ready", "True", "Preview").await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet
            .until("what would be written is told", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap();
                let preview = &plugin["status"]["previews"][0];
                preview["object"] == "default/web" && preview["changes"] == json!(["Create ConfigMap default/web"])
            })
            .await;
        assert!(fleet.stage.find("ConfigMap", "web").is_none());
        fleet.change("it", json!({"mode": "Active"})).await;
        fleet
            .until("it is written", |stage| stage.is_reconciled("Hostile", "web"))
            .await;
        fleet
            .until("nothing is previewed any more", |stage| {
                stage.find("Plugin", "it").unwrap()["status"]["previews"].is_null()
            })
            .await;
        fleet.stage.stop().await;
    }
}
