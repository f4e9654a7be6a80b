//! Tests that a plugin leaves behind what its resource says, and that a plugin in preview has left nothing.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::hostile;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    async fn promises(fleet: &Fleet) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Promise"));
        Api::namespaced_with(fleet.client().await, "default", &resource)
    }

    fn config_map(name: &str, namespace: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
    }

    /// A plugin whose objects have finalizers, with two of them: one is being deleted and held, one lives.
    async fn one_of_two_is_held(policy: &str) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "deletionPolicy": policy});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        for name in ["leaving", "living"] {
            let owns = [
                json!({"object": config_map(name, "default"), "lasting": true}),
                json!({"object": config_map(&format!("{name}-passing"), "default")}),
            ];
            fleet
                .stage
                .create(&json!({
                    "apiVersion": "wishes.test.dev/v1", "kind": "Promise",
                    "metadata": {"name": name, "namespace": "default"}, "spec": {"holds": true, "owns": owns},
                }))
                .await;
        }
        fleet
            .until("both are reconciled", |stage| {
                stage.is_reconciled("Promise", "leaving") && stage.is_reconciled("Promise", "living")
            })
            .await;
        promises(&fleet)
            .await
            .delete("leaving", &DeleteParams::default())
            .await
            .unwrap();
        fleet
            .until("what should not last goes", |stage| {
                stage.find("ConfigMap", "leaving-passing").is_none()
            })
            .await;
        fleet
    }

    async fn lets_go(fleet: &Fleet, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"holds": false}}));
        promises(fleet)
            .await
            .patch(name, &PatchParams::default(), &patch)
            .await
            .unwrap();
    }

    fn finalizers(fleet: &Fleet, promise: &str) -> Value {
        fleet
            .stage
            .find("Promise", promise)
            .map_or(Value::Null, |promise| promise["metadata"]["finalizers"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn deleted_primaries_are_finalized_and_the_rest_is_released() {
        let fleet = one_of_two_is_held("Orphan").await;
        fleet.delete("it").await;
        let said = fleet.says("it", "Ready", "False", "Finishing").await;
        assert!(
            said["message"].as_str().unwrap().contains("Promise default/leaving"),
            "{said:#}"
        );
        assert!(fleet.stage.find("ConfigMap", "leaving").is_some(), "it should last");
        lets_go(&fleet, "leaving").await;
        fleet.is_gone("it").await;
        assert!(
            fleet.stage.lines(&["finalize: released", "default/leaving"]).len() == 1,
            "{}",
            fleet.log()
        );
        assert!(fleet.stage.find("Promise", "leaving").is_none() && fleet.stage.find("ConfigMap", "leaving").is_none());
        assert_eq!(finalizers(&fleet, "living"), Value::Null);
        assert!(fleet.stage.find("ConfigMap", "living").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_plugin_does_not_let_go_is_released_after_a_while() {
        let fleet = one_of_two_is_held("Orphan").await;
        fleet.delete("it").await;
        fleet.says("it", "Ready", "False", "Finishing").await;
        fleet.stage.minute().await;
        assert!(fleet.stage.find("Promise", "leaving").is_some(), "{}", fleet.log());
        fleet.stage.minute().await;
        fleet.is_gone("it").await;
        assert!(fleet.stage.find("Promise", "leaving").is_none());
        assert_eq!(finalizers(&fleet, "living"), Value::Null);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_policy_delete_the_next_start_finishes_and_deletes() {
        let mut fleet = one_of_two_is_held("Delete").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.delete("it").await;
        lets_go(&fleet, "leaving").await;
        fleet.start_host().await;
        fleet.is_gone("it").await;
        assert!(
            fleet.stage.lines(&["finalize: released", "default/leaving"]).len() == 1,
            "{}",
            fleet.log()
        );
        assert!(fleet.stage.find("Promise", "leaving").is_none() && fleet.stage.find("Promise", "living").is_some());
        assert_eq!(finalizers(&fleet, "living"), Value::Null);
        for gone in ["leaving", "living", "living-passing"] {
            assert!(fleet.stage.find("ConfigMap", gone).is_none(), "{gone}");
        }
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_the_policy_delete_what_others_need_goes_last() {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "deletionPolicy": "Delete"});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        let owns = [
            json!({"object": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "room"}}}),
            json!({"object": config_map("chair", "room")}),
        ];
        fleet
            .stage
            .create(&json!({
                "apiVersion": "wishes.test.dev/v1", "kind": "Wish",
                "metadata": {"name": "it", "namespace": "default"}, "spec": {"owns": owns},
            }))
            .await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        let mark = fleet.stage.mark();
        fleet.delete("it").await;
        fleet.is_gone("it").await;
        let mut deleted = fleet.stage.host_writes_since(mark);
        deleted.retain(|request| request.verb == "delete");
        let deleted: Vec<_> = deleted.iter().map(|request| request.name.as_str()).collect();
        assert_eq!(deleted, ["chair", "room"]);
        fleet.stage.stop().await;
    }

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
    async fn with_policy_delete_objects_go_first_and_primaries_stay() {
        let fleet = two_are_reconciled("Delete").await;
        let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "foreign", "namespace": "default"}});
        fleet.stage.create(&foreign).await;
        fleet.delete("it").await;
        fleet.is_gone("it").await;
        assert!(fleet.stage.find("ConfigMap", "one").is_none() && fleet.stage.find("ConfigMap", "two").is_none());
        assert!(fleet.stage.find("Hostile", "one").is_some() && fleet.stage.find("ConfigMap", "foreign").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_primary_that_may_not_be_released_holds_up_no_other() {
        let fleet = one_of_two_is_held("Orphan").await;
        let forbidden = Rule::new(Fault::Status {
            code: 403,
            retry_after: None,
        });
        let of_leaving = forbidden
            .resource("promises")
            .when(|asked| asked.is_write() && asked.name.as_deref() == Some("leaving"));
        fleet.stage.simulator().faults().add(of_leaving);
        fleet.delete("it").await;
        for _ in 0..9 {
            fleet.stage.minute().await;
        }
        fleet.is_gone("it").await;
        assert_eq!(finalizers(&fleet, "living"), Value::Null);
        assert!(
            fleet.stage.find("Promise", "leaving").is_some(),
            "nobody may release it"
        );
        assert_eq!(fleet.stage.events("it", "ObjectsLeft").len(), 1);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_remaining_finalizer_is_named_and_delays_the_plugins_end() {
        let fleet = two_are_reconciled("Delete").await;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let maps: Api<DynamicObject> = Api::namespaced_with(fleet.client().await, "default", &resource);
        let held = Patch::Merge(json!({"metadata": {"finalizers": ["tenant.test.dev/mine"]}}));
        maps.patch("one", &PatchParams::default(), &held).await.unwrap();
        fleet.stage.host.settled().await.unwrap();
        fleet.delete("it").await;
        fleet
            .until("the condition names object, finalizer and next step", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap();
                let mut conditions = plugin["status"]["conditions"].as_array().unwrap().iter();
                let ready = conditions.find(|condition| condition["type"] == "Ready").unwrap();
                let words = ["ConfigMap default/one", "tenant.test.dev/mine", "take it off"];
                words
                    .iter()
                    .all(|word| ready["message"].as_str().unwrap().contains(word))
            })
            .await;
        for _ in 0..6 {
            fleet.stage.minute().await;
        }
        fleet.is_gone("it").await;
        assert!(fleet.stage.find("ConfigMap", "two").is_none() && fleet.stage.find("ConfigMap", "one").is_some());
        let warned = fleet
            .stage
            .lines(&["left behind", "ConfigMap default/one", "tenant.test.dev/mine"]);
        assert_eq!(warned.len(), 1, "{}", fleet.log());
        assert_eq!(fleet.stage.events("it", "ObjectsLeft").len(), 1);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_deleted_during_downtime_ends_at_the_next_start() {
        let mut fleet = two_are_reconciled("Delete").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.delete("it").await;
        assert!(fleet.stage.find("Plugin", "it").is_some(), "it waits for the host");
        fleet.start_host().await;
        fleet.is_gone("it").await;
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
    async fn a_previewed_plugin_reports_its_writes_and_makes_them_later() {
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
        fleet.stage.delete_hostile("web").await;
        fleet
            .until("of what goes nothing is told any more", |stage| {
                stage.find("Plugin", "it").unwrap()["status"]["previews"].is_null()
            })
            .await;
        fleet
            .stage
            .create(&hostile("web", &json!({"behaviour": "config-map"})))
            .await;
        fleet
            .until("it is told again", |stage| {
                stage.find("Plugin", "it").unwrap()["status"]["previews"][0]["object"] == "default/web"
            })
            .await;
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
