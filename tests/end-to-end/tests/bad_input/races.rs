//! Tests of changes between a read and a write, and of changes that no watch reported: nothing is deleted or
//! overwritten that is no longer ours, dependent writes come later, and nothing waits for ever.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_runtime::{RunMode, StaticPlugin};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::Mark;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::stage::{Stage, hostile, unhurried};

    fn config_map(namespace: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "as it should be"}})
    }

    fn namespace(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    }

    fn wish(name: &str, owns: &[Value]) -> Value {
        let owns: Vec<_> = owns.iter().map(|object| json!({"object": object})).collect();
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
            "spec": {"owns": owns},
        })
    }

    async fn api(stage: &Stage, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &resource)
    }

    async fn merge(api: Api<DynamicObject>, name: &str, patch: &Value) {
        let by = PatchParams::default();
        api.patch(name, &by, &Patch::Merge(patch)).await.unwrap();
    }

    async fn wishes(stage: &Stage) -> Api<DynamicObject> {
        api(stage, "wishes.test.dev", "Wish").await
    }

    async fn config_maps(stage: &Stage) -> Api<DynamicObject> {
        api(stage, "", "ConfigMap").await
    }

    /// The next request of this verb for a ConfigMap is on its way for five seconds.
    async fn until_on_its_way(stage: &Stage, verb: &str, act: impl Future<Output = ()>) {
        let before = stage.simulator().faults().injected();
        let slow = Rule::new(Fault::Delay(Duration::from_secs(5)));
        let slow = slow.verbs(&[verb]).resource("configmaps").times(1);
        stage.simulator().faults().add(slow);
        act.await;
        let begun = |stage: &Stage| (stage.simulator().faults().injected() > before).then_some(());
        assert!(stage.until(begun).await.is_some(), "{}", stage.lines(&[]).join("\n"));
    }

    async fn until_reconciled(stage: &Stage, kind: &str, name: &str) {
        let well = stage.until(|stage| stage.is_reconciled(kind, name).then_some(()));
        assert!(well.await.is_some(), "{:?}", stage.reconciled(kind, name));
    }

    async fn until_foreign(stage: &Stage, kind: &str, name: &str) {
        let told = |stage: &Stage| {
            let condition = stage.reconciled(kind, name)?;
            (condition["reason"] == "ForeignObject").then_some(())
        };
        assert!(stage.until(told).await.is_some(), "{:?}", stage.reconciled(kind, name));
    }

    /// Returns the host's writes, statuses and events apart, as `VERB RESOURCE CODE`.
    fn written(stage: &Stage, mark: Mark) -> Vec<String> {
        let writes = stage.host_writes_since(mark).into_iter();
        writes
            .filter(|write| write.subresource.is_empty() && write.resource != "events")
            .map(|write| format!("{} {} {}", write.verb, write.resource, write.code))
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_taken_over_before_it_is_pruned_stays() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        stage.create(&wish("it", &[config_map("default", "child")])).await;
        until_reconciled(&stage, "Wish", "it").await;
        let mark = stage.mark();
        let wants_nothing = async { merge(wishes(&stage).await, "it", &json!({"spec": {"owns": []}})).await };
        until_on_its_way(&stage, "delete", wants_nothing).await;
        let theirs = json!({"metadata": {"ownerReferences": null}});
        merge(config_maps(&stage).await, "child", &theirs).await;
        stage.minute().await;
        assert!(stage.find("ConfigMap", "child").is_some());
        assert_eq!(written(&stage, mark), ["delete configmaps 409"]);
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_are_created_first_and_deleted_last() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let owns = [config_map("room", "chair"), namespace("room")];
        let (made, gone) = (
            ["patch namespaces 201", "patch configmaps 201"],
            ["delete configmaps 200", "delete namespaces 200"],
        );
        let mark = stage.mark();
        stage.create(&wish("it", &owns)).await;
        until_reconciled(&stage, "Wish", "it").await;
        assert_eq!(written(&stage, mark), made);

        let mark = stage.mark();
        merge(wishes(&stage).await, "it", &json!({"spec": {"owns": []}})).await;
        stage.minute().await;
        assert_eq!(written(&stage, mark), gone, "pruned");

        let mark = stage.mark();
        merge(wishes(&stage).await, "it", &wish("it", &owns)).await;
        stage.minute().await;
        assert_eq!(written(&stage, mark), made);
        let mark = stage.mark();
        let _ = wishes(&stage)
            .await
            .delete("it", &DeleteParams::default())
            .await
            .unwrap();
        stage.minute().await;
        assert_eq!(written(&stage, mark), gone, "collected");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_foreign_object_created_before_our_create_is_untouched() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let mut theirs = config_map("default", "child");
        theirs["data"] = json!({"text": "theirs"});
        let wish = wish("it", &[config_map("default", "child")]);
        until_on_its_way(&stage, "patch", stage.create(&wish)).await;
        stage.create(&theirs).await;
        until_foreign(&stage, "Wish", "it").await;
        assert_eq!(stage.find("ConfigMap", "child").unwrap()["data"], theirs["data"]);
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_obstacle_gone_during_another_write_is_not_waited_for() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        stage.create(&config_map("default", "second")).await;
        let owns = ["first", "second"].map(|name| config_map("default", name));
        until_on_its_way(&stage, "patch", stage.create(&wish("it", &owns))).await;
        let _ = config_maps(&stage)
            .await
            .delete("second", &DeleteParams::default())
            .await
            .unwrap();
        until_reconciled(&stage, "Wish", "it").await;
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_went_before_the_cache_had_seen_it_is_made_again() {
        let mut stage = Stage::empty(unhurried());
        let befalls = |fault| Rule::new(fault).verbs(&["watch"]).resource("configmaps").times(1);
        stage.simulator().faults().add(befalls(Fault::SilentWatch));
        stage.simulator().faults().add(befalls(Fault::GoneOnWatch));
        let specs = vec![stage.host.spec("wisher").unwrap()];
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        stage.create(&wish("it", &[config_map("default", "child")])).await;
        until_reconciled(&stage, "Wish", "it").await;
        let _ = config_maps(&stage)
            .await
            .delete("child", &DeleteParams::default())
            .await
            .unwrap();
        // The silence is noticed, the next watch has nothing to go on from, and the list after it shows neither the child
        // nor its end.
        for _ in 0..4 {
            stage.minute().await;
        }
        assert_eq!(stage.simulator().faults().injected(), 2);
        assert!(
            stage.find("ConfigMap", "child").is_some(),
            "{}",
            stage.lines(&[]).join("\n")
        );
        stage.stop().await;
    }

    /// Starts the host in a mode, and gives it time.
    async fn comes_back(stage: &mut Stage, mode: RunMode) -> Mark {
        let mark = stage.mark();
        let spec = StaticPlugin {
            mode,
            ..stage.host.spec("wisher").unwrap()
        };
        stage.start(vec![spec]).await;
        stage.minute().await;
        mark
    }

    #[tokio::test(start_paused = true)]
    async fn remote_children_stay_while_the_owner_lives_or_in_preview() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        stage.create(&namespace("elsewhere")).await;
        stage.create(&wish("it", &[config_map("elsewhere", "far")])).await;
        until_reconciled(&stage, "Wish", "it").await;
        // The Wish, its child, and its status: a server that lags behind so far knows nothing of it.
        for (verb, fault) in [("list", Fault::Stale { changes: 3 }), ("watch", Fault::SilentWatch)] {
            let lags = Rule::new(fault).verbs(&[verb]).resource("wishes").times(1);
            stage.simulator().faults().add(lags);
        }
        stage.host.stop().await.unwrap();
        let mark = comes_back(&mut stage, RunMode::Active).await;
        assert_eq!(stage.simulator().faults().injected(), 2);
        assert_eq!(written(&stage, mark), Vec::<String>::new());

        stage.host.stop().await.unwrap();
        let _ = wishes(&stage)
            .await
            .delete("it", &DeleteParams::default())
            .await
            .unwrap();
        let mark = comes_back(&mut stage, RunMode::Preview).await;
        assert_eq!(written(&stage, mark), Vec::<String>::new());
        stage.host.stop().await.unwrap();
        let mark = comes_back(&mut stage, RunMode::Active).await;
        assert_eq!(written(&stage, mark), ["delete configmaps 200"]);
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_resync_repeats_no_refused_body_and_no_preview() {
        let mut stage = Stage::with(&["hostile"], unhurried()).await;
        stage
            .create(&hostile("bad", &json!({"behaviour": "invalid-value"})))
            .await;
        let told = |stage: &Stage| stage.reconciled("Hostile", "bad").filter(|it| it["status"] == "False");
        assert!(stage.until(told).await.is_some());
        stage.host.settled().await.unwrap();
        let mark = stage.mark();
        stage.host.resync().await.unwrap();
        stage.host.settled().await.unwrap();
        assert!(
            stage.host_writes_since(mark).is_empty(),
            "{:?}",
            stage.host_writes_since(mark)
        );

        stage.host.stop().await.unwrap();
        let spec = StaticPlugin {
            mode: RunMode::Preview,
            ..stage.host.spec("hostile").unwrap()
        };
        stage.start(vec![spec]).await;
        stage.host.settled().await.unwrap();
        let previewed = stage.lines(&[" previewed"]).len();
        stage.host.resync().await.unwrap();
        stage.host.settled().await.unwrap();
        assert_eq!((previewed, stage.lines(&[" previewed"]).len()), (1, 1));
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_call_keeps_the_plugins_status_and_conditions() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let behaves = json!({"behaviour": "config-map", "text": "as it should be"});
        stage.create(&hostile("it", &behaves)).await;
        until_reconciled(&stage, "Hostile", "it").await;
        let theirs = json!({"apiVersion": "hostile.test.dev/v1", "kind": "Hostile", "metadata": {"name": "it"},
                            "status": {"conditions": [{"type": "Theirs", "status": "True"}]}});
        let hostiles = api(&stage, "hostile.test.dev", "Hostile").await;
        let by = PatchParams::apply("somebody");
        hostiles.patch_status("it", &by, &Patch::Apply(&theirs)).await.unwrap();
        stage.patch_hostile("it", &json!({"spec": {"behaviour": "trap"}})).await;
        let told = |stage: &Stage| stage.reconciled("Hostile", "it").filter(|it| it["status"] == "False");
        assert!(stage.until(told).await.is_some());
        let live = stage.find("Hostile", "it").unwrap();
        assert_eq!(live["status"]["text"], "as it should be");
        let conditions = live["status"]["conditions"].as_array().unwrap();
        let kinds: Vec<_> = conditions.iter().map(|condition| &condition["type"]).collect();
        assert!(
            kinds.contains(&&json!("Behaved")) && kinds.contains(&&json!("Theirs")),
            "{kinds:?}"
        );
        let entries = live["metadata"]["managedFields"].as_array().unwrap();
        let ours = entries.iter().filter(|entry| entry["manager"] == "pilothouse/hostile");
        for entry in ours {
            let held = entry["fieldsV1"]["f:status"]["f:conditions"].to_string();
            assert!(!held.contains("Theirs"), "{held}");
        }
        stage.stop().await;
    }
}
