//! Writes that meet trouble: a response that is lost, somebody who is faster, a primary that goes meanwhile; and plugins
//! that take over from an earlier operator, or only say what they would do.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, PostParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_runtime::{RunMode, StaticPlugin};
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::Mark;
    use serde_json::{Value, json};

    use crate::stage::{Stage, hostile, unhurried};

    fn behaving(name: &str) -> Value {
        hostile(name, &json!({"behaviour": "config-map", "text": "as it should be"}))
    }

    fn config_map(name: &str, data: &Value) -> Value {
        let metadata = json!({"name": name, "namespace": "default"});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
    }

    /// The next write of a ConfigMap meets this.
    fn disturb(stage: &Stage, fault: Fault) {
        let rule = Rule::new(fault).verbs(&["patch"]).resource("configmaps").times(1);
        stage.simulator().faults().add(rule);
    }

    async fn until_disturbed(stage: &Stage) {
        let injected = |stage: &Stage| (stage.simulator().faults().injected() > 0).then_some(());
        assert!(stage.until(injected).await.is_some());
    }

    async fn until_reconciled(stage: &Stage, name: &str) {
        let well = stage.until(|stage| stage.is_reconciled("Hostile", name).then_some(()));
        assert!(well.await.is_some(), "{:?}", stage.reconciled("Hostile", name));
    }

    #[tokio::test(start_paused = true)]
    async fn an_unacknowledged_create_is_neither_repeated_nor_foreign() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        let mark = stage.mark();
        disturb(&stage, Fault::LoseResponse);
        stage.create(&behaving("victim")).await;
        until_reconciled(&stage, "victim").await;
        let writes = stage.host_writes_since(mark);
        let deletes = writes.iter().filter(|write| write.verb == "delete").count();
        assert_eq!((stage.simulator().faults().injected(), deletes), (1, 0), "{writes:?}");
        assert_eq!(
            stage.find("ConfigMap", "victim").unwrap()["data"]["text"],
            "as it should be"
        );
        stage.stop().await;
    }

    /// The writes of an object that the server refused, and those that it took.
    fn refused_and_taken(stage: &Stage, mark: Mark, resource: &str, subresource: &str) -> (usize, usize) {
        let writes = stage.host_writes_since(mark);
        let of_it = writes
            .iter()
            .filter(|it| it.resource == resource && it.subresource == subresource);
        let (taken, refused): (Vec<_>, Vec<_>) = of_it.partition(|write| write.code < 300);
        (refused.len(), taken.len())
    }

    #[tokio::test(start_paused = true)]
    async fn transient_errors_are_retried_within_the_reconcile() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        for code in [409, 429, 500, 503] {
            let name = format!("victim-{code}");
            for (turn, text) in ["made", "changed"].into_iter().enumerate() {
                let mark = stage.mark();
                for (resource, subresource) in [("configmaps", ""), ("hostiles", "status")] {
                    let busy = Fault::Status {
                        code,
                        retry_after: None,
                    };
                    let rule = Rule::new(busy).verbs(&["patch"]).resource(resource);
                    let of_status = subresource.to_owned();
                    let rule = rule.when(move |asked| {
                        asked.subresource == of_status && asked.user_agent != pilothouse_testkit::requests::TEST_ACCOUNT
                    });
                    stage.simulator().faults().add(rule.times(2));
                }
                let spec = json!({"behaviour": "config-map", "text": text});
                if turn == 0 {
                    stage.create(&hostile(&name, &spec)).await;
                } else {
                    stage.patch_hostile(&name, &json!({"spec": spec})).await;
                }
                let is_told = |stage: &Stage| {
                    let told = stage.find("Hostile", &name)?["status"]["text"] == text;
                    (told && stage.is_reconciled("Hostile", &name)).then_some(())
                };
                assert!(
                    stage.until(is_told).await.is_some(),
                    "{code}: {:?}",
                    stage.reconciled("Hostile", &name)
                );
                for (resource, subresource) in [("configmaps", ""), ("hostiles", "status")] {
                    let counts = refused_and_taken(&stage, mark, resource, subresource);
                    assert_eq!(counts, (2, 1), "{code} for {resource} when it is {text}");
                }
                stage.simulator().faults().clear();
            }
            assert!(stage.events(&name, "ReconcileFailed").is_empty());
            assert!(stage.lines(&["reconcile failed", &name]).is_empty());
        }
        stage.stop().await;
    }

    /// Checks that an object of another client, created while our create of it is in flight with these faults, is left
    /// alone.
    async fn is_left_alone(faults: impl IntoIterator<Item = Fault>) {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        for fault in faults {
            disturb(&stage, fault);
        }
        stage.create(&behaving("victim")).await;
        until_disturbed(&stage).await;
        stage.create(&config_map("victim", &json!({"theirs": "1"}))).await;
        let told = |stage: &Stage| {
            let condition = stage.reconciled("Hostile", "victim")?;
            (condition["reason"] == "ForeignObject").then_some(())
        };
        assert!(
            stage.until(told).await.is_some(),
            "{:?}",
            stage.reconciled("Hostile", "victim")
        );
        let theirs = stage.find("ConfigMap", "victim").unwrap();
        assert_eq!(theirs["data"], json!({"theirs": "1"}));
        assert!(theirs["metadata"].get("ownerReferences").is_none(), "{theirs}");
        let managers = theirs["metadata"]["managedFields"].as_array().unwrap().iter();
        let managers: Vec<_> = managers.filter_map(|entry| entry["manager"].as_str()).collect();
        assert!(!managers.contains(&"pilothouse/hostile"), "{managers:?}");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_created_between_read_and_create_is_untouched() {
        is_left_alone([Fault::Delay(Duration::from_secs(5))]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_created_before_a_lost_create_is_untouched() {
        is_left_alone([Fault::Delay(Duration::from_secs(5)), Fault::LoseResponse]).await;
    }

    #[tokio::test(start_paused = true)]
    async fn remote_children_of_a_primary_deleted_meanwhile_are_collected() {
        let stage = Stage::with(&["wisher"], unhurried()).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}});
        stage.create(&namespace).await;
        disturb(&stage, Fault::Delay(Duration::from_secs(5)));
        let mark = stage.mark();
        let mut child = config_map("far", &json!({"a": "1"}));
        child["metadata"]["namespace"] = json!("elsewhere");
        let wish = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": [{"object": child}]},
        });
        stage.create(&wish).await;
        until_disturbed(&stage).await;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish"));
        let client = stage.cluster.client().await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
        api.delete("it", &DeleteParams::default()).await.unwrap();
        let collected = |stage: &Stage| {
            let writes = stage.host_writes_since(mark);
            let has = |verb: &str, code: u16| writes.iter().any(|write| write.verb == verb && write.code == code);
            (has("patch", 201) && has("delete", 200) && stage.find("ConfigMap", "far").is_none()).then_some(())
        };
        assert!(
            stage.until(collected).await.is_some(),
            "{:?}",
            stage.host_writes_since(mark)
        );
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_former_operators_objects_are_taken_over_completely() {
        let mut stage = Stage::empty(unhurried());
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let client = stage.cluster.client().await.unwrap();
        let api: Api<DynamicObject> = Api::namespaced_with(client, "default", &resource);
        for (name, manager) in [("victim", "earlier-operator"), ("neighbour", "somebody")] {
            let made = config_map(name, &json!({"text": "old", "besides": "x"}));
            let by = PostParams {
                field_manager: Some(manager.to_owned()),
                ..PostParams::default()
            };
            api.create(&by, &serde_json::from_value(made).unwrap()).await.unwrap();
        }
        // What another object owns is no leftover of an earlier operator's.
        let mut owned = config_map("owned", &json!({"text": "old"}));
        let owner = stage.find("ConfigMap", "neighbour").unwrap();
        owned["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "v1", "kind": "ConfigMap", "name": "neighbour", "uid": owner["metadata"]["uid"],
            "controller": true,
        }]);
        let by = PostParams {
            field_manager: Some("earlier-operator".to_owned()),
            ..PostParams::default()
        };
        api.create(&by, &serde_json::from_value(owned).unwrap()).await.unwrap();
        let spec = StaticPlugin {
            former_managers: vec!["earlier-operator".to_owned()],
            ..stage.host.spec("hostile").unwrap()
        };
        stage.start(vec![spec]).await;
        stage.host.settled().await.unwrap();
        stage.create(&behaving("victim")).await;
        stage.create(&behaving("neighbour")).await;
        until_reconciled(&stage, "victim").await;
        let taken = stage.find("ConfigMap", "victim").unwrap();
        assert_eq!(
            taken["data"],
            json!({"text": "as it should be"}),
            "what it wrote besides is gone"
        );
        assert_eq!(taken["metadata"]["ownerReferences"][0]["name"], "victim");
        stage.create(&behaving("owned")).await;
        for name in ["neighbour", "owned"] {
            let refused = |stage: &Stage| {
                let condition = stage.reconciled("Hostile", name)?;
                (condition["reason"] == "ForeignObject").then_some(())
            };
            assert!(
                stage.until(refused).await.is_some(),
                "what is others' is not touched: {name}"
            );
            assert_eq!(stage.find("ConfigMap", name).unwrap()["data"]["text"], "old");
        }
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_in_preview_says_what_it_would_do_and_writes_nothing() {
        let mut stage = Stage::empty(unhurried());
        let spec = StaticPlugin {
            mode: RunMode::Preview,
            ..stage.host.spec("hostile").unwrap()
        };
        stage.start(vec![spec]).await;
        stage.host.settled().await.unwrap();
        let mark = stage.mark();
        stage.create(&behaving("victim")).await;
        let said = |stage: &Stage| {
            let lines = stage.lines(&["would change", "act=Create", "ConfigMap default/victim"]);
            (!lines.is_empty()).then_some(())
        };
        assert!(stage.until(said).await.is_some());
        stage.host.settled().await.unwrap();
        assert!(stage.host_writes_since(mark).is_empty());
        assert!(stage.find("ConfigMap", "victim").is_none() && stage.reconciled("Hostile", "victim").is_none());
        stage.stop().await;
    }
}
