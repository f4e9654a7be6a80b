//! Annotations of one object: paused, it has no write but its condition until it is resumed or deleted; a request
//! reconciles it once.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::program::ended;
    use pilothouse_end_to_end::scrape::Scrape;
    use pilothouse_end_to_end::stage::{Stage, unhurried};
    use pilothouse_metrics::Metrics;
    use pilothouse_runtime::HostOptions;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::{Cluster, Mark};
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::Request;
    use serde_json::{Value, json};

    use crate::fleet::{Fleet, condition};

    const PAUSED: &str = "pilothouse.dev/paused";
    const REQUESTED: &str = "pilothouse.dev/reconcile-requested-at";

    fn config_map(name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "as it should be"}})
    }

    fn object(kind: &str, name: &str, spec: &Value) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "wishes.test.dev/v1", "kind": kind, "metadata": metadata, "spec": spec})
    }

    /// A resource of this name with ConfigMaps of these names.
    fn owning(kind: &str, name: &str, children: &[&str]) -> Value {
        let owns: Vec<Value> = children
            .iter()
            .map(|child| json!({"object": config_map(child)}))
            .collect();
        object(kind, name, &json!({"owns": owns}))
    }

    fn paused(mut object: Value) -> Value {
        object["metadata"]["annotations"] = json!({PAUSED: "true"});
        object
    }

    fn spec(configuration: &Value) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": configuration})
    }

    async fn fleet_with(options: HostOptions) -> Fleet {
        let fleet = Fleet::start_with(Cluster::simulated(), options).await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", spec(&json!({}))).await;
        fleet.is_ready("it").await;
        fleet
    }

    async fn fleet() -> Fleet {
        fleet_with(HostOptions::default()).await
    }

    async fn api(stage: &Stage, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "ConfigMap" | "Service" => ("", "v1"),
            "Share" => ("sharing.test.dev", "v1"),
            _ => ("wishes.test.dev", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(stage.cluster.client().await.unwrap(), "default", &resource)
    }

    async fn patch(stage: &Stage, kind: &str, name: &str, body: &Value) {
        let params = PatchParams::default();
        api(stage, kind)
            .await
            .patch(name, &params, &Patch::Merge(body))
            .await
            .unwrap();
    }

    async fn annotate(stage: &Stage, kind: &str, name: &str, annotation: &str, text: Option<&str>) {
        patch(
            stage,
            kind,
            name,
            &json!({"metadata": {"annotations": {annotation: text}}}),
        )
        .await;
    }

    async fn delete(stage: &Stage, kind: &str, name: &str) {
        let _ = api(stage, kind)
            .await
            .delete(name, &DeleteParams::default())
            .await
            .unwrap();
    }

    fn is_paused(stage: &Stage, kind: &str, name: &str) -> bool {
        let reconciled = stage.reconciled(kind, name).unwrap_or_default();
        reconciled["status"] == "Unknown" && reconciled["reason"] == "Paused"
    }

    async fn pause(fleet: &Fleet, kind: &str, name: &str) {
        annotate(&fleet.stage, kind, name, PAUSED, Some("true")).await;
        fleet
            .until("it says that it is paused", |stage| is_paused(stage, kind, name))
            .await;
        fleet.stage.host.settled().await.unwrap();
    }

    async fn resume(fleet: &Fleet, kind: &str, name: &str) {
        annotate(&fleet.stage, kind, name, PAUSED, None).await;
        is_well(fleet, kind, name).await;
    }

    async fn is_well(fleet: &Fleet, kind: &str, name: &str) {
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled(kind, name))
            .await;
    }

    fn text(stage: &Stage, name: &str) -> Value {
        stage
            .find("ConfigMap", name)
            .map_or(Value::Null, |found| found["data"]["text"].clone())
    }

    /// The writes of the host since then, without those of the Plugin's status, which has counts.
    fn writes(stage: &Stage, mark: Mark) -> Vec<Request> {
        let mut writes = stage.host_writes_since(mark);
        writes.retain(|write| write.resource != "plugins");
        writes
    }

    async fn writes_nothing(stage: &Stage, mark: Mark) {
        stage.minute().await;
        let writes = writes(stage, mark);
        assert!(writes.is_empty(), "{writes:#?}");
    }

    #[tokio::test(start_paused = true)]
    async fn paused_before_its_first_reconcile_has_only_the_condition() {
        let fleet = fleet().await;
        let mark = fleet.stage.mark();
        fleet.stage.create(&paused(owning("Promise", "it", &["child"]))).await;
        fleet
            .until("it is paused", |stage| is_paused(stage, "Promise", "it"))
            .await;
        fleet.stage.minute().await;
        assert_eq!(writes(&fleet.stage, mark).len(), 1, "{:#?}", writes(&fleet.stage, mark));
        let found = fleet.stage.find("Promise", "it").unwrap();
        assert!(found["metadata"]["finalizers"].is_null(), "{found}");
        assert!(
            found["status"]["observedGeneration"].is_null(),
            "nothing of it is observed: {found}"
        );
        assert!(fleet.stage.find("ConfigMap", "child").is_none());
        let message = condition(&found["status"], "Reconciled")["message"].clone();
        assert!(message.as_str().unwrap().contains(PAUSED), "{message}");
        resume(&fleet, "Promise", "it").await;
        assert_eq!(text(&fleet.stage, "child"), "as it should be");
        assert_eq!(
            fleet.stage.find("Promise", "it").unwrap()["status"]["observedGeneration"],
            1
        );
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_resync_a_restart_and_an_edit_of_a_paused_object_make_no_request() {
        let options = HostOptions {
            resync: Duration::from_mins(5),
            ..HostOptions::default()
        };
        let mut fleet = fleet_with(options).await;
        fleet.stage.create(&owning("Wish", "it", &["child"])).await;
        is_well(&fleet, "Wish", "it").await;
        pause(&fleet, "Wish", "it").await;
        let mark = fleet.stage.mark();
        for _ in 0..11 {
            fleet.stage.minute().await;
        }
        let mut requests = fleet.stage.cluster.requests_since(mark).unwrap();
        requests.retain(|request| request.resource == "wishes" && request.verb != "watch");
        assert!(requests.is_empty(), "{requests:#?}");
        let spec = json!({"spec": {"owns": [{"object": config_map("other")}]}});
        patch(&fleet.stage, "Wish", "it", &spec).await;
        writes_nothing(&fleet.stage, mark).await;
        let status = fleet.stage.find("Wish", "it").unwrap()["status"].clone();
        assert_eq!(
            status["observedGeneration"], 1,
            "the second one is in progress: {status}"
        );

        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        writes_nothing(&fleet.stage, mark).await;
        assert!(is_paused(&fleet.stage, "Wish", "it"));
        resume(&fleet, "Wish", "it").await;
        fleet
            .until("what it wants now is there", |stage| {
                text(stage, "other") == "as it should be"
            })
            .await;
        fleet
            .until("what it no longer wants goes", |stage| text(stage, "child").is_null())
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn paused_while_failing_no_longer_fails_and_is_not_called() {
        let fleet = fleet().await;
        fleet.stage.create(&object("Wish", "it", &json!({"traps": true}))).await;
        let fails = |stage: &Stage| stage.reconciled("Wish", "it").is_some_and(|it| it["status"] == "False");
        fleet.until("it fails", fails).await;
        fleet
            .until("it is counted", |_| fleet.status("it")["failing"] == 1)
            .await;
        pause(&fleet, "Wish", "it").await;
        let status = fleet.stage.find("Wish", "it").unwrap()["status"].clone();
        for gone in ["Stalled", "Reconciling"] {
            assert_eq!(condition(&status, gone), Value::Null, "{status}");
        }
        fleet
            .until("it is counted as paused", |_| {
                fleet.status("it")["failing"] == 0 && fleet.status("it")["pausedObjects"] == 1
            })
            .await;
        let log = fleet.stage.lines(&["trap"]).len();
        patch(&fleet.stage, "Wish", "it", &json!({"metadata": {"labels": {"a": "b"}}})).await;
        fleet.stage.minute().await;
        assert_eq!(fleet.stage.lines(&["trap"]).len(), log, "it was not called");
        annotate(&fleet.stage, "Wish", "it", PAUSED, Some("false")).await;
        fleet.until("it fails again", fails).await;
        fleet
            .until("it is not counted", |_| fleet.status("it")["pausedObjects"].is_null())
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_edited_child_stays_until_the_object_is_resumed() {
        let fleet = fleet().await;
        fleet.stage.create(&owning("Wish", "it", &["edited", "deleted"])).await;
        is_well(&fleet, "Wish", "it").await;
        pause(&fleet, "Wish", "it").await;
        let mark = fleet.stage.mark();
        patch(
            &fleet.stage,
            "ConfigMap",
            "edited",
            &json!({"data": {"text": "by hand"}}),
        )
        .await;
        delete(&fleet.stage, "ConfigMap", "deleted").await;
        writes_nothing(&fleet.stage, mark).await;
        assert_eq!(text(&fleet.stage, "edited"), "by hand");
        annotate(&fleet.stage, "Wish", "it", PAUSED, None).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        for child in ["edited", "deleted"] {
            assert_eq!(text(&fleet.stage, child), "as it should be", "{child}: {}", fleet.log());
        }
        assert!(fleet.stage.is_reconciled("Wish", "it"));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_paused_object_that_is_deleted_is_finalized() {
        let fleet = fleet().await;
        let mut promise = owning("Promise", "it", &["lasting", "passing"]);
        promise["spec"]["holds"] = json!(true);
        promise["spec"]["owns"][0]["lasting"] = json!(true);
        fleet.stage.create(&promise).await;
        is_well(&fleet, "Promise", "it").await;
        pause(&fleet, "Promise", "it").await;
        fleet
            .until("it is counted", |_| fleet.status("it")["pausedObjects"] == 1)
            .await;
        delete(&fleet.stage, "Promise", "it").await;
        fleet
            .until("the plugin finalizes it", |stage| text(stage, "passing").is_null())
            .await;
        assert_eq!(text(&fleet.stage, "lasting"), "as it should be");
        patch(&fleet.stage, "Promise", "it", &json!({"spec": {"holds": false}})).await;
        fleet
            .until("all is gone", |stage| {
                stage.find("Promise", "it").is_none() && text(stage, "lasting").is_null()
            })
            .await;
        fleet
            .until("it is not counted", |_| fleet.status("it")["pausedObjects"].is_null())
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_leaves_paused_objects_until_they_are_resumed() {
        let fleet = fleet().await;
        let secret =
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "former", "namespace": "default"}});
        let mut wish = owning("Wish", "it", &["child"]);
        wish["spec"]["owns"]
            .as_array_mut()
            .unwrap()
            .push(json!({"object": secret}));
        let owns = ["ConfigMap", "Secret"];
        fleet.change("it", spec(&json!({"owns": owns}))).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&wish).await;
        fleet.stage.create(&owning("Promise", "it", &["promised"])).await;
        fleet.stage.create(&owning("Wish", "other", &["others"])).await;
        for (kind, name) in [("Wish", "it"), ("Promise", "it"), ("Wish", "other")] {
            is_well(&fleet, kind, name).await;
        }
        pause(&fleet, "Wish", "it").await;
        pause(&fleet, "Promise", "it").await;
        // Would be refused if it were tried with the paused object.
        patch(&fleet.stage, "Wish", "it", &json!({"spec": {"traps": true}})).await;
        let mark = fleet.stage.mark();
        fleet.accept("it", "deletes=10").await;
        fleet
            .change(
                "it",
                spec(&json!({"owns": ["ConfigMap"], "steers": ["Wish"], "status": {"words": "new"}})),
            )
            .await;
        fleet.is_ready("it").await;
        let has_words = |stage: &Stage, name: &str| stage.find("Wish", name).unwrap()["status"]["words"] == "new";
        fleet
            .until("the other has the new version", |stage| has_words(stage, "other"))
            .await;
        fleet.stage.minute().await;
        let mut writes = writes(&fleet.stage, mark);
        writes.retain(|write| write.name != "other" && write.resource != "customresourcedefinitions");
        assert!(writes.is_empty(), "{writes:#?}");
        assert!(fleet.stage.find("Secret", "former").is_some());
        let promise = fleet.stage.find("Promise", "it").unwrap();
        assert_eq!(
            promise["metadata"]["finalizers"][0], "wishes.test.dev/promise",
            "{promise}"
        );
        assert_eq!(text(&fleet.stage, "promised"), "as it should be");

        patch(&fleet.stage, "Wish", "it", &json!({"spec": {"traps": null}})).await;
        resume(&fleet, "Wish", "it").await;
        annotate(&fleet.stage, "Promise", "it", PAUSED, None).await;
        fleet
            .until("the new version has reconciled it", |stage| has_words(stage, "it"))
            .await;
        fleet
            .until("what only the old version made goes", |stage| {
                stage.find("Secret", "former").is_none() && text(stage, "promised").is_null()
            })
            .await;
        fleet
            .until("the finalizer of the old version goes", |stage| {
                stage.find("Promise", "it").unwrap()["metadata"]["finalizers"].is_null()
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_plugin_ends_the_pause_with_either_policy() {
        for (policy, is_left) in [("Orphan", true), ("Delete", false)] {
            let fleet = fleet().await;
            fleet.change("it", json!({"deletionPolicy": policy})).await;
            fleet.stage.create(&owning("Promise", "it", &["child"])).await;
            is_well(&fleet, "Promise", "it").await;
            pause(&fleet, "Promise", "it").await;
            fleet.delete("it").await;
            fleet.is_gone("it").await;
            let promise = fleet.stage.find("Promise", "it").unwrap();
            assert!(promise["metadata"]["finalizers"].is_null(), "{policy}: {promise}");
            assert_eq!(fleet.stage.find("ConfigMap", "child").is_some(), is_left, "{policy}");
            fleet.stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_that_is_paused_during_a_reconcile_gets_no_further_write() {
        let fleet = fleet().await;
        let slow = Rule::new(Fault::Delay(Duration::from_secs(20)));
        let slow = slow.verbs(&["patch"]).resource("configmaps").times(1);
        fleet.stage.simulator().faults().add(slow);
        fleet.stage.create(&owning("Wish", "it", &["a", "b", "c"])).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        annotate(&fleet.stage, "Wish", "it", PAUSED, Some("true")).await;
        fleet
            .until("it is paused", |stage| is_paused(stage, "Wish", "it"))
            .await;
        fleet.stage.minute().await;
        let made = |stage: &Stage| {
            ["a", "b", "c"]
                .iter()
                .filter(|name| !text(stage, name).is_null())
                .count()
        };
        assert_eq!(made(&fleet.stage), 1, "what was being sent: {}", fleet.log());
        resume(&fleet, "Wish", "it").await;
        assert_eq!(made(&fleet.stage), 3);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn two_hosts_that_overlap_agree_on_paused_objects() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let mut second = RuntimeHost::new(HostOptions::default(), unhurried());
        let specs = vec![second.spec("wisher").unwrap()];
        second.start_with(&stage.cluster, specs).await.unwrap();
        for number in 0..10 {
            let name = format!("it-{number}");
            stage.create(&owning("Wish", &name, &[&format!("{name}-child")])).await;
            annotate(&stage, "Wish", &name, PAUSED, Some("true")).await;
        }
        let all_paused = |stage: &Stage| (0..10).all(|number| is_paused(stage, "Wish", &format!("it-{number}")));
        assert!(stage.until(|stage| all_paused(stage).then_some(())).await.is_some());
        second.settled().await.unwrap();
        stage.minute().await;
        let mark = stage.mark();
        for child in stage.all("ConfigMap") {
            let name = child["metadata"]["name"].as_str().unwrap();
            patch(&stage, "ConfigMap", name, &json!({"data": {"text": "by hand"}})).await;
        }
        for _ in 0..3 {
            stage.minute().await;
        }
        assert!(all_paused(&stage));
        let writes = stage.host_writes_since(mark);
        assert!(writes.is_empty(), "{writes:#?}");
        for number in 0..10 {
            annotate(&stage, "Wish", &format!("it-{number}"), PAUSED, None).await;
        }
        let well = |stage: &Stage| {
            let is_well = |number| {
                let name = format!("it-{number}");
                stage.is_reconciled("Wish", &name) && text(stage, &format!("{name}-child")) == "as it should be"
            };
            (0..10).all(is_well)
        };
        assert!(stage.until(|stage| well(stage).then_some(())).await.is_some());
        assert!(second.stop().await.unwrap().is_empty());
        stage.stop().await;
    }

    fn share(name: &str, data: &Value) -> Value {
        let target = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target"}, "data": data});
        let mut share = object("Share", name, &json!({"contributes": [target]}));
        share["apiVersion"] = json!("sharing.test.dev/v1");
        share
    }

    #[tokio::test(start_paused = true)]
    async fn contributions_of_a_paused_object_stay_held_also_after_a_restart() {
        let mut fleet = Fleet::start().await;
        fleet.put("sharer", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        let mut target = config_map("target");
        target["data"] = json!({"theirs": "1"});
        fleet.stage.create(&target).await;
        fleet.stage.create(&share("it", &json!({"a": "1"}))).await;
        fleet.stage.create(&share("other", &json!({"b": "1"}))).await;
        for name in ["it", "other"] {
            is_well(&fleet, "Share", name).await;
        }
        pause(&fleet, "Share", "it").await;
        let data = |stage: &Stage| stage.find("ConfigMap", "target").unwrap()["data"].clone();
        // It is not restored, and no other object of the plugin changes it.
        patch(&fleet.stage, "ConfigMap", "target", &json!({"data": {"a": "by hand"}})).await;
        patch(&fleet.stage, "Share", "other", &share("other", &json!({"b": "2"}))).await;
        let edited = json!({"theirs": "1", "a": "by hand", "b": "2"});
        fleet
            .until("the other contributes", |stage| data(stage) == edited)
            .await;
        patch(&fleet.stage, "ConfigMap", "target", &json!({"data": {"a": null}})).await;
        fleet.stage.minute().await;
        assert_eq!(data(&fleet.stage), json!({"theirs": "1", "b": "2"}));
        resume(&fleet, "Share", "it").await;
        fleet
            .until("it contributes again", |stage| {
                data(stage) == json!({"theirs": "1", "a": "1", "b": "2"})
            })
            .await;

        pause(&fleet, "Share", "it").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        patch(&fleet.stage, "Share", "other", &share("other", &json!({"c": "3"}))).await;
        patch(
            &fleet.stage,
            "Share",
            "other",
            &json!({"spec": {"contributes": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target"}, "data": {"c": "3"}}]}}),
        )
        .await;
        fleet
            .until("the other contributes", |stage| data(stage)["c"] == "3")
            .await;
        fleet
            .until("who has not answered is named", |_| {
                fleet.status("it")["waitedFor"] == json!([{"controller": "sharer", "object": "default/it"}])
            })
            .await;
        assert_eq!(data(&fleet.stage)["a"], "1", "the paused one holds it");
        resume(&fleet, "Share", "it").await;
        fleet
            .until("only what is claimed is left", |stage| {
                data(stage) == json!({"theirs": "1", "a": "1", "c": "3"})
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn another_text_does_not_pause_and_is_warned_of() {
        let fleet = fleet().await;
        for (number, text) in ["yes", "True", "", "no"].into_iter().enumerate() {
            let name = format!("it-{number}");
            fleet.stage.create(&owning("Wish", &name, &[])).await;
            is_well(&fleet, "Wish", &name).await;
            annotate(&fleet.stage, "Wish", &name, PAUSED, Some(text)).await;
            fleet
                .until("it is warned of", |stage| {
                    stage.events(&name, "InvalidAnnotation").iter().any(|event| {
                        let message = event["message"].as_str().unwrap();
                        message.contains(PAUSED) && message.contains(&format!("{text:?}"))
                    })
                })
                .await;
            assert!(fleet.stage.is_reconciled("Wish", &name));
        }
        assert!(fleet.status("it")["pausedObjects"].is_null());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_metric_counts_paused_objects() {
        let metrics = Metrics::default();
        let options = HostOptions {
            metrics: metrics.clone(),
            ..HostOptions::default()
        };
        let fleet = fleet_with(options).await;
        let count = || {
            let scrape = Scrape(metrics.print(&fleet.stage.host.handle().unwrap().figures()));
            scrape.count("pilothouse_paused_objects", &["plugin=\"it\"", "controller=\"wish\""])
        };
        for name in ["one", "two", "three"] {
            fleet.stage.create(&owning("Wish", name, &[])).await;
            is_well(&fleet, "Wish", name).await;
        }
        assert_eq!(count(), Some(0));
        for name in ["one", "two", "three"] {
            pause(&fleet, "Wish", name).await;
        }
        assert_eq!(count(), Some(3));
        resume(&fleet, "Wish", "one").await;
        delete(&fleet.stage, "Wish", "two").await;
        fleet
            .until("two is gone", |stage| stage.find("Wish", "two").is_none())
            .await;
        fleet.until("one is left", |_| count() == Some(1)).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn each_new_request_reconciles_a_failing_object_once() {
        let mut fleet = fleet().await;
        let denied = Fault::Denied {
            code: 403,
            retry_after: 0,
        };
        let faults = fleet.stage.simulator().faults();
        faults.add(Rule::new(denied).resource("configmaps").writes());
        fleet.stage.create(&owning("Wish", "it", &["child"])).await;
        let fails = |stage: &Stage| stage.reconciled("Wish", "it").is_some_and(|it| it["status"] == "False");
        fleet.until("it fails", fails).await;
        // The back-off is minutes by now.
        tokio::time::sleep(Duration::from_hours(1)).await;
        fleet.stage.simulator().faults().clear();
        annotate(&fleet.stage, "Wish", "it", REQUESTED, Some("one")).await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(fleet.stage.is_reconciled("Wish", "it"), "{}", fleet.log());

        // What has been requested once is not requested by a restart, and no request writes without need.
        fleet.stage.minute().await;
        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        annotate(&fleet.stage, "Wish", "it", REQUESTED, Some("two")).await;
        writes_nothing(&fleet.stage, mark).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_sends_again_what_the_server_had_refused() {
        let service = |name: &str| {
            let metadata = json!({"name": name, "namespace": "default"});
            let spec = json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": 30999}]});
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        };
        let fleet = fleet().await;
        fleet.stage.create(&service("theirs")).await;
        let spec = json!({"owns": [{"object": service("ours")}]});
        fleet.stage.create(&object("Wish", "it", &spec)).await;
        let is_refused = |stage: &Stage| {
            stage
                .reconciled("Wish", "it")
                .is_some_and(|it| it["reason"] == "Refused")
        };
        fleet.until("the port is taken", is_refused).await;
        delete(&fleet.stage, "Service", "theirs").await;
        fleet.stage.minute().await;
        assert!(is_refused(&fleet.stage), "nothing of it has changed");
        annotate(&fleet.stage, "Wish", "it", REQUESTED, Some("now")).await;
        is_well(&fleet, "Wish", "it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_commands_set_the_annotations() {
        let cluster = Cluster::simulated_over_http().await.unwrap();
        let fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", spec(&json!({}))).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&owning("Wish", "it", &["child"])).await;
        is_well(&fleet, "Wish", "it").await;
        let kubeconfig = fleet.stage.cluster.host_kubeconfig().unwrap();
        let run = async |arguments: &[&str]| {
            let mut arguments: Vec<String> = arguments.iter().map(|it| (*it).to_owned()).collect();
            arguments.extend(["--kubeconfig".to_owned(), kubeconfig.to_str().unwrap().to_owned()]);
            let run = move || ended(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            tokio::task::spawn_blocking(run).await.unwrap()
        };
        for (arguments, problem) in [
            (
                ["pause", "wish/absent"],
                "there is no Wish default/absent; `kubectl get wishes` lists them",
            ),
            (
                ["pause", "nothing/it"],
                "the cluster serves no kind that is called nothing; write KIND or KIND.GROUP",
            ),
            (
                ["reconcile", "wish.other.dev/it"],
                "the cluster serves no kind that is called wish.other.dev",
            ),
        ] {
            let (code, _, said) = run(&arguments).await;
            assert!(code == 1 && said.contains(problem), "{said}");
        }
        for arguments in [
            &["pause", "it"][..],
            &["reconcile"],
            &["reconcile", "wish/it", "--failing", "it"],
        ] {
            assert_eq!(run(arguments).await.0, 2, "{arguments:?}");
        }
        let (code, printed, said) = run(&["pause", "WISHES.wishes.test.dev/it", "-n", "default"]).await;
        assert_eq!(code, 0, "{said}");
        assert!(
            printed.contains("Wish default/it is paused; `pilothouse resume wish/it -n default` resumes it"),
            "{printed}"
        );
        fleet
            .until("it is paused", |stage| is_paused(stage, "Wish", "it"))
            .await;
        assert!(run(&["pause", "wish/it"]).await.1.contains("is paused already"));
        let (code, _, said) = run(&["reconcile", "wish/it"]).await;
        assert!(
            code == 1 && said.contains("Wish default/it is paused; `pilothouse resume"),
            "{said}"
        );
        assert!(run(&["resume", "wish/it"]).await.1.contains("is resumed"));
        is_well(&fleet, "Wish", "it").await;
        assert!(run(&["resume", "wish/it"]).await.1.contains("is not paused"));
        let annotation =
            |stage: &Stage| stage.find("Wish", "it").unwrap()["metadata"]["annotations"][REQUESTED].clone();
        let (code, printed, said) = run(&["reconcile", "wish/it"]).await;
        assert!(
            code == 0 && printed.contains("the host reconciles Wish default/it now"),
            "{said}"
        );
        let first = annotation(&fleet.stage);
        assert!(first.is_string());
        assert_eq!(run(&["reconcile", "wish/it"]).await.0, 0);
        assert_ne!(annotation(&fleet.stage), first, "each request counts");
    }
}
