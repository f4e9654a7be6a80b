//! Work that looks like a hot loop and is none: what follows changes of others is neither slowed nor blamed.

mod simulated {
    use std::time::Duration;

    use kube::api::{DeleteParams, Patch, PatchParams};
    use kube::{Api, Client};
    use pilothouse_end_to_end::stage::{Stage, hostile, unhurried};
    use serde_json::{Value, json};
    use tokio::time::{Instant, sleep};

    type ConfigMap = k8s_openapi::api::core::v1::ConfigMap;

    const PODS: usize = 14;

    async fn config_maps(stage: &Stage) -> Api<ConfigMap> {
        let client: Client = stage.cluster.client().await.unwrap();
        Api::namespaced(client, "default")
    }

    fn others() -> PatchParams {
        PatchParams {
            field_manager: Some("others".to_owned()),
            ..PatchParams::default()
        }
    }

    fn pods(stage: &Stage) -> Vec<Value> {
        let mut pods = stage.all("ConfigMap");
        pods.retain(|pod| pod["metadata"]["name"].as_str().unwrap().starts_with("rollout-"));
        pods
    }

    fn assert_never_blamed(stage: &Stage, name: &str) {
        let events = stage.events(name, "ReconcileFailed");
        assert!(events.is_empty(), "{events:?}");
        let condition = stage.reconciled("Hostile", name);
        assert!(
            condition.as_ref().is_none_or(|it| it["status"] == "True"),
            "{condition:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn an_ordered_rollout_and_teardown_are_not_slowed() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let children = config_maps(&stage).await;
        let begun = Instant::now();
        stage
            .create(&hostile("rollout", &json!({"behaviour": "in-order", "count": PODS})))
            .await;
        let mut made = 0;
        while made < PODS {
            let name = format!("rollout-{made}");
            let is_there = stage.until(|stage| stage.find("ConfigMap", &name)).await;
            assert!(
                is_there.is_some(),
                "{name}: {:?}",
                stage.reconciled("Hostile", "rollout")
            );
            assert_never_blamed(&stage, "rollout");
            sleep(Duration::from_secs(1)).await;
            let ready = Patch::Merge(json!({"data": {"ready": "yes"}}));
            children.patch(&name, &others(), &ready).await.unwrap();
            made += 1;
        }
        let floor = Duration::from_secs(u64::try_from(PODS).unwrap());
        assert!(begun.elapsed() < 2 * floor, "{:?}", begun.elapsed());
        let told = |stage: &Stage| {
            let status = stage.find("Hostile", "rollout")?["status"]["text"].as_str()?.to_owned();
            (status == format!("{PODS} of {PODS} are ready")).then_some(())
        };
        assert!(
            stage.until(told).await.is_some(),
            "{:?}",
            stage.find("Hostile", "rollout")
        );
        let begun = Instant::now();
        stage.patch_hostile("rollout", &json!({"spec": {"count": 0}})).await;
        assert!(
            stage
                .until(|stage| pods(stage).is_empty().then_some(()))
                .await
                .is_some()
        );
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_never_blamed(&stage, "rollout");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn who_applies_a_collected_object_for_minutes_slows_nobody() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let children = config_maps(&stage).await;
        stage
            .create(&hostile("collector", &json!({"behaviour": "copy", "text": "source"})))
            .await;
        let metadata = json!({"name": "source", "namespace": "default"});
        stage
            .create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}))
            .await;
        for number in 0..90 {
            let text = number.to_string();
            let applied = Patch::Merge(json!({"data": {"text": text}}));
            children.patch("source", &others(), &applied).await.unwrap();
            sleep(Duration::from_secs(2)).await;
            let copy = stage.find("ConfigMap", "collector").unwrap();
            assert_eq!(copy["data"]["text"], text, "it follows at once");
            assert_never_blamed(&stage, "collector");
        }
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_conflict_a_later_edit_is_not_blamed_on_the_plugin() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let children = config_maps(&stage).await;
        stage
            .create(&hostile("victim", &json!({"behaviour": "config-map", "text": "ours"})))
            .await;
        let contested = |stage: &Stage| {
            let condition = stage.reconciled("Hostile", "victim")?;
            (condition["reason"] == "Contested").then(|| condition["message"].as_str().unwrap().to_owned())
        };
        let mut told = None;
        for _ in 0..200 {
            sleep(Duration::from_millis(250)).await;
            if stage
                .find("ConfigMap", "victim")
                .is_some_and(|it| it["data"]["text"] == "ours")
            {
                let theirs = Patch::Merge(json!({"data": {"text": "theirs"}}));
                children.patch("victim", &others(), &theirs).await.unwrap();
            }
            told = contested(&stage);
            if told.is_some() {
                break;
            }
        }
        let told = told.expect("the fight is told");
        assert!(told.contains("is fought over: others sets"), "{told}");
        for number in 0..12 {
            let text = format!("ours-{number}");
            stage.patch_hostile("victim", &json!({"spec": {"text": text}})).await;
            sleep(Duration::from_secs(5)).await;
            let told = contested(&stage);
            assert!(told.as_ref().is_none_or(|told| !told.contains("plugin")), "{told:?}");
        }
        stage.minute().await;
        assert!(
            stage.is_reconciled("Hostile", "victim"),
            "{:?}",
            stage.reconciled("Hostile", "victim")
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_missing_namespace_is_reported_and_requeues_on_creation() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "far", "namespace": "later"}});
        let metadata = json!({"name": "it", "namespace": "default"});
        let spec = json!({"owns": [{"object": child}]});
        let wish = json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": metadata, "spec": spec});
        stage.create(&wish).await;
        let failed = stage.until(|stage| stage.reconciled("Wish", "it")).await.unwrap();
        assert_eq!(failed["reason"], "NamespaceNotFound", "{failed}");
        assert!(
            failed["message"]
                .as_str()
                .unwrap()
                .contains("there is no namespace later; create it"),
            "{failed}"
        );
        // Back-off alone would take minutes by now.
        for _ in 0..10 {
            stage.minute().await;
        }
        stage
            .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}))
            .await;
        let begun = Instant::now();
        let well = stage
            .until(|stage| stage.is_reconciled("Wish", "it").then_some(()))
            .await;
        assert!(well.is_some(), "{:?}", stage.reconciled("Wish", "it"));
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_single_delete_during_another_hot_loop_is_not_blamed() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let children = config_maps(&stage).await;
        stage
            .create(&hostile("victim", &json!({"behaviour": "differs-by-read"})))
            .await;
        let message = |stage: &Stage| {
            let condition = stage.reconciled("Hostile", "victim")?;
            (condition["reason"] == "Contested").then(|| condition["message"].as_str().unwrap().to_owned())
        };
        let told = stage.until(message).await.expect("the hot loop is told");
        assert!(
            told.contains("the plugin asks for another ConfigMap default/victim in each run"),
            "{told}"
        );
        let _ = children.delete("victim", &DeleteParams::default()).await.unwrap();
        stage.minute().await;
        stage.stop().await;
    }
}
