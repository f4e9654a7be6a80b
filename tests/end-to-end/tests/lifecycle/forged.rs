//! A Plugin's status that somebody has forged makes the host change nothing of others, and a component that is not what ran
//! before deletes nothing without consent.

mod simulated {
    use std::time::Duration;

    use kube::api::{Patch, PatchParams};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const FINALIZER: &str = "others.test.dev/hold";

    async fn is_warned(fleet: &Fleet) {
        fleet
            .until("the Plugin says what stays", |stage| {
                let warnings = stage.find("Plugin", "it").unwrap()["status"]["warnings"].to_string();
                warnings.contains(FINALIZER) && warnings.contains("pilothouse release")
            })
            .await;
    }

    fn finalizers(stage: &Stage) -> Value {
        stage.find("ConfigMap", "theirs").unwrap()["metadata"]["finalizers"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_finalizer_only_in_the_status_is_removed_from_no_object() {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let theirs = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "theirs", "namespace": "default", "finalizers": [FINALIZER]},
        });
        fleet.stage.create(&theirs).await;
        let config_map = json!({"group": "", "version": "v1", "kind": "ConfigMap"});
        let forged = json!({"status": {"finalizers": [{"primary": config_map, "finalizer": FINALIZER}]}});
        let plugins = fleet.plugins().await;
        let params = PatchParams::apply("forger");
        plugins
            .patch_status("it", &params, &Patch::Merge(&forged))
            .await
            .unwrap();
        is_warned(&fleet).await;
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert_eq!(finalizers(&fleet.stage), json!([FINALIZER]));
        fleet.stage.stop().await;
    }

    /// A Plugin whose wishes have three objects.
    async fn with_children() -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.put("sharer", "b.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let owned =
            |name: &str| json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}});
        let wish = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": [owned("a"), owned("b"), owned("c")]},
        });
        fleet.stage.create(&wish).await;
        fleet
            .until("all is made", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        fleet
    }

    fn children(stage: &Stage) -> usize {
        ["a", "b", "c"]
            .iter()
            .filter(|name| stage.find("ConfigMap", name).is_some())
            .count()
    }

    async fn until_deleted(fleet: &Fleet) {
        fleet.until("the children go", |stage| children(stage) == 0).await;
    }

    #[tokio::test(start_paused = true)]
    async fn another_plugins_component_deletes_nothing_without_consent() {
        let fleet = with_children().await;
        fleet.change("it", json!({"source": {"file": "b.wasm"}})).await;
        let said = fleet.says("it", "Ready", "True", "PreviousVersion").await;
        let message = said["message"].as_str().unwrap();
        for part in [
            "sharer",
            "wisher",
            "3 objects of Wish",
            "pilothouse.dev/accept: deletes=3",
        ] {
            assert!(message.contains(part), "{part}: {message}");
        }
        fleet.accept("it", "deletes=2").await;
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(children(&fleet.stage), 3);
        fleet.accept("it", "deletes=3").await;
        until_deleted(&fleet).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_component_replaced_during_downtime_needs_delete_consent() {
        let mut fleet = with_children().await;
        fleet.stage.host.stop().await.unwrap();
        fleet.put("sharer", "a.wasm", 1);
        fleet.start_host().await;
        let said = fleet.says("it", "Ready", "False", "NotAccepted").await;
        assert!(said["message"].as_str().unwrap().contains("deletes=3"), "{said}");
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(children(&fleet.stage), 3);
        fleet.accept("it", "deletes=300").await;
        until_deleted(&fleet).await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }
}
