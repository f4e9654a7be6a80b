//! Whose an object is, where somebody else writes at the same time: a second host, a user who forges labels, a backup that
//! brings owners back, somebody who makes an object anew.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, unhurried};
    use pilothouse_runtime::HostOptions;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    fn config_map(namespace: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "as it should be"}})
    }

    fn namespace(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    }

    fn wish(name: &str, owns: &[Value]) -> Value {
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
            "spec": {"owns": owns},
        })
    }

    fn owned(object: &Value) -> Value {
        json!({"object": object})
    }

    async fn api(stage: &Stage, group: &str, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::namespaced_with(stage.cluster.client().await.unwrap(), namespace, &resource)
    }

    async fn wishes(stage: &Stage) -> Api<DynamicObject> {
        api(stage, "wishes.test.dev", "Wish", "default").await
    }

    async fn change_wish(stage: &Stage, name: &str, owns: &[Value]) {
        let patch = Patch::Merge(json!({"spec": {"owns": owns}}));
        let wishes = wishes(stage).await;
        wishes.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }

    async fn delete(api: Api<DynamicObject>, name: &str) {
        let _ = api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Deletes a ConfigMap as another user and creates another one of its name. Returns that one, and its API.
    async fn replace(stage: &Stage, name: &str) -> (Api<DynamicObject>, Value) {
        let config_maps = api(stage, "", "ConfigMap", "default").await;
        delete(config_maps.clone(), name).await;
        let mut theirs = config_map("default", name);
        theirs["data"] = json!({"theirs": "1"});
        stage.create(&theirs).await;
        (config_maps, theirs)
    }

    async fn until_foreign(stage: &Stage, name: &str) {
        let told = |stage: &Stage| {
            let condition = stage.reconciled("Wish", name)?;
            (condition["reason"] == "ForeignObject").then_some(())
        };
        let told = stage.until(told).await;
        assert!(told.is_some(), "{:?}", stage.reconciled("Wish", name));
    }

    async fn until_reconciled(stage: &Stage, name: &str) {
        let well = stage.until(|stage| stage.is_reconciled("Wish", name).then_some(()));
        assert!(
            well.await.is_some(),
            "{:?}\n{}",
            stage.reconciled("Wish", name),
            stage.lines(&[]).join("\n")
        );
    }

    fn uid(object: &Value) -> String {
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    fn uid_of(stage: &Stage, kind: &str, name: &str) -> String {
        uid(&stage.find(kind, name).unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn two_hosts_that_overlap_lose_no_field_and_fall_silent() {
        const WISHES: usize = 60;
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let mut second = RuntimeHost::new(HostOptions::default(), unhurried());
        let specs = vec![second.spec("wisher").unwrap()];
        second.start_with(&stage.cluster, specs).await.unwrap();
        second.settled().await.unwrap();
        stage.create(&namespace("elsewhere")).await;
        let slow = Rule::new(Fault::Delay(std::time::Duration::from_millis(700)));
        let lost = Rule::new(Fault::LoseResponse);
        for (fault, one_in) in [(slow, 0.3), (lost, 0.1)] {
            let fault = fault.verbs(&["patch"]).resource("configmaps").probability(one_in);
            stage.simulator().faults().add(fault);
        }
        for number in 0..WISHES {
            let name = format!("it-{number}");
            let owns = [
                owned(&config_map("default", &format!("{name}-near"))),
                owned(&config_map("elsewhere", &format!("{name}-far"))),
            ];
            stage.create(&wish(&name, &owns)).await;
        }
        for number in 0..WISHES {
            until_reconciled(&stage, &format!("it-{number}")).await;
        }
        stage.simulator().faults().clear();
        for _ in 0..12 {
            stage.minute().await;
        }
        let mark = stage.mark();
        stage.minute().await;
        assert!(
            stage.host_writes_since(mark).is_empty(),
            "{:?}",
            stage.host_writes_since(mark)
        );
        for number in 0..WISHES {
            let name = format!("it-{number}");
            let owner = uid_of(&stage, "Wish", &name);
            let near = stage.find("ConfigMap", &format!("{name}-near")).unwrap();
            assert_eq!(near["data"]["text"], "as it should be", "{near}");
            assert_eq!(near["metadata"]["ownerReferences"][0]["uid"], owner.as_str(), "{near}");
            let far = stage.find("ConfigMap", &format!("{name}-far")).unwrap();
            assert_eq!(far["data"]["text"], "as it should be", "{far}");
            assert_eq!(
                far["metadata"]["labels"]["pilothouse.dev/owner"],
                owner.as_str(),
                "{far}"
            );
            assert!(
                stage.is_reconciled("Wish", &name),
                "{:?}",
                stage.reconciled("Wish", &name)
            );
        }
        assert!(second.stop().await.unwrap().is_empty());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_forged_owner_label_deletes_nobody_elses_children() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        for name in ["elsewhere", "tenant"] {
            stage.create(&namespace(name)).await;
        }
        let owns = [
            owned(&config_map("default", "near")),
            owned(&config_map("elsewhere", "far")),
            json!({"object": config_map("elsewhere", "kept"), "keep": true}),
        ];
        stage.create(&wish("victim", &owns)).await;
        until_reconciled(&stage, "victim").await;
        let children = ["near", "far", "kept"].map(|name| uid_of(&stage, "ConfigMap", name));
        let victim = uid_of(&stage, "Wish", "victim");
        let tenant = api(&stage, "", "ConfigMap", "tenant").await;
        for (name, owner) in [
            ("nobody", "wishes.test.dev/Wish/default/nobody"),
            ("elsewhere", "wishes.test.dev/Wish/elsewhere/victim"),
            ("itself", "wishes.test.dev/Wish/default/victim"),
        ] {
            let mut forged = config_map("tenant", name);
            forged["metadata"]["labels"] = json!({"pilothouse.dev/owner": victim});
            forged["metadata"]["annotations"] = json!({"pilothouse.dev/owner-name": owner});
            let by = PatchParams::apply("pilothouse/wisher");
            tenant.patch(name, &by, &Patch::Apply(&forged)).await.unwrap();
            stage.minute().await;
        }
        stage.host.resync().await.unwrap();
        stage.minute().await;
        let now = ["near", "far", "kept"].map(|name| uid_of(&stage, "ConfigMap", name));
        assert_eq!(now, children, "{}", stage.lines(&[]).join("\n"));
        assert!(stage.is_reconciled("Wish", "victim"));
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_restored_owner_adopts_what_it_desires_and_the_rest_stays() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        stage.create(&namespace("elsewhere")).await;
        let both = ["wanted", "unwanted"].map(|name| owned(&config_map("elsewhere", name)));
        stage.create(&wish("it", &both)).await;
        until_reconciled(&stage, "it").await;
        let before = ["wanted", "unwanted"].map(|name| uid_of(&stage, "ConfigMap", name));
        stage.host.stop().await.unwrap();
        delete(wishes(&stage).await, "it").await;
        stage.create(&wish("it", &both[..1])).await;
        let specs = vec![stage.host.spec("wisher").unwrap()];
        stage.start(specs).await;
        until_reconciled(&stage, "it").await;
        stage.minute().await;
        let mark = stage.mark();
        stage.host.resync().await.unwrap();
        stage.minute().await;
        assert!(
            stage
                .cluster
                .requests_since(mark)
                .unwrap()
                .iter()
                .all(|it| it.verb == "watch")
        );
        let now = ["wanted", "unwanted"].map(|name| uid_of(&stage, "ConfigMap", name));
        assert_eq!(now, before, "{}", stage.lines(&[]).join("\n"));
        let owner = stage.find("ConfigMap", "wanted").unwrap()["metadata"]["labels"]["pilothouse.dev/owner"].clone();
        assert_eq!(owner, uid_of(&stage, "Wish", "it").as_str());
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_recreated_by_others_during_silence_is_not_taken() {
        let mut stage = Stage::empty(unhurried());
        let silent = Rule::new(Fault::SilentWatch).verbs(&["watch"]).resource("configmaps");
        let specs = vec![stage.host.spec("wisher").unwrap()];
        stage.start(specs).await;
        stage.host.settled().await.unwrap();
        stage
            .create(&wish("it", &[owned(&config_map("default", "child"))]))
            .await;
        until_reconciled(&stage, "it").await;
        stage.host.settled().await.unwrap();
        // The next watch is silent; let the one that runs end.
        stage.simulator().faults().add(silent);
        for _ in 0..6 {
            stage.minute().await;
        }
        assert!(stage.simulator().faults().injected() > 0);
        let (_, theirs) = replace(&stage, "child").await;
        let mut other = config_map("default", "child");
        other["data"] = json!({"text": "something else"});
        change_wish(&stage, "it", &[owned(&other)]).await;
        until_foreign(&stage, "it").await;
        change_wish(&stage, "it", &[]).await;
        stage.minute().await;
        let live = stage.find("ConfigMap", "child").unwrap();
        assert_eq!(live["data"], theirs["data"]);
        assert_eq!(live["metadata"]["ownerReferences"], Value::Null);
        stage.simulator().faults().clear();
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_replaced_before_any_watch_event_is_recreated() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let silent = Rule::new(Fault::SilentWatch).verbs(&["watch"]).resource("configmaps");
        stage.simulator().faults().add(silent.times(1));
        stage.simulator().cut_watches("", "configmaps");
        stage.minute().await;
        stage
            .create(&wish("it", &[owned(&config_map("default", "child"))]))
            .await;
        assert!(stage.until(|stage| stage.find("ConfigMap", "child")).await.is_some());
        let (config_maps, _) = replace(&stage, "child").await;
        // What the watch begins with shows nothing but what is there now.
        stage.simulator().compact();
        for _ in 0..3 {
            stage.minute().await;
        }
        until_foreign(&stage, "it").await;
        delete(config_maps, "child").await;
        until_reconciled(&stage, "it").await;
        let live = stage.find("ConfigMap", "child").unwrap();
        assert_eq!(live["data"]["text"], "as it should be");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_gone_with_its_primary_is_not_recreated() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        stage
            .create(&wish("it", &[owned(&config_map("default", "child"))]))
            .await;
        until_reconciled(&stage, "it").await;
        stage.host.settled().await.unwrap();
        let silent = Rule::new(Fault::SilentWatch).verbs(&["watch"]).resource("wishes");
        stage.simulator().faults().add(silent);
        stage.simulator().cut_watches("wishes.test.dev", "wishes");
        stage.minute().await;
        assert!(stage.simulator().faults().injected() > 0);
        let mark = stage.mark();
        delete(api(&stage, "wishes.test.dev", "Wish", "default").await, "it").await;
        stage.minute().await;
        assert!(stage.find("ConfigMap", "child").is_none());
        let writes = stage.host_writes_since(mark);
        assert!(writes.is_empty(), "{writes:?}");
        stage.simulator().faults().clear();
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn keep_takes_effect_on_a_create_only_child_that_is_there() {
        let mut stage = Stage::with(&["wisher"], unhurried()).await;
        let child = |keep: bool| json!({"object": config_map("default", "child"), "createOnly": true, "keep": keep});
        stage.create(&wish("it", &[child(false)])).await;
        until_reconciled(&stage, "it").await;
        let config_maps = api(&stage, "", "ConfigMap", "default").await;
        let theirs = json!({"data": {"text": "theirs"}, "metadata": {"labels": {"their": "label"}}});
        let by = PatchParams::default();
        config_maps.patch("child", &by, &Patch::Merge(&theirs)).await.unwrap();
        let bound = |stage: &Stage| {
            let metadata = stage.find("ConfigMap", "child").unwrap()["metadata"].clone();
            (
                metadata["ownerReferences"][0]["uid"].clone(),
                metadata["labels"]["pilothouse.dev/owner"].clone(),
                metadata["annotations"]["pilothouse.dev/keep"].clone(),
            )
        };
        let owner = json!(uid_of(&stage, "Wish", "it"));
        assert_eq!(bound(&stage), (owner.clone(), Value::Null, Value::Null));
        for keep in [true, false, true] {
            change_wish(&stage, "it", &[child(keep)]).await;
            let expected = if keep {
                (Value::Null, owner.clone(), json!("true"))
            } else {
                (owner.clone(), Value::Null, Value::Null)
            };
            let is_bound = |stage: &Stage| (bound(stage) == expected).then_some(());
            assert!(stage.until(is_bound).await.is_some(), "{keep}: {:?}", bound(&stage));
        }
        stage.minute().await;
        let mark = stage.mark();
        stage.host.resync().await.unwrap();
        stage.minute().await;
        assert!(stage.host_writes_since(mark).is_empty());
        delete(wishes(&stage).await, "it").await;
        stage.minute().await;
        let live = stage.find("ConfigMap", "child").expect("it is kept");
        assert_eq!(live["data"]["text"], "theirs");
        assert_eq!(live["metadata"]["labels"]["their"], "label");
        stage.stop().await;
    }
}
