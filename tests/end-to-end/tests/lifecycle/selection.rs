//! Tests of `spec.namespaces`, which selects a Plugin's primaries. Children of other primaries stay as they are, and
//! may be handed to another Plugin.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    fn namespace(name: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    }

    fn config_map(namespace: &str, name: &str) -> Value {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"text": "as it should be"}})
    }

    fn wish(kind: &str, namespace: &str, name: &str, holds: bool, owns: &[Value]) -> Value {
        let owns: Vec<_> = owns
            .iter()
            .map(|object| json!({"object": object, "lasting": true}))
            .collect();
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace},
            "spec": {"owns": owns, "holds": holds},
        })
    }

    fn spec(namespaces: &[&str], policy: &str) -> Value {
        json!({"source": {"file": "a.wasm"}, "namespaces": namespaces, "deletionPolicy": policy})
    }

    /// A host with a namespace `other` beside `default`, and the plugin of wishes in its folder.
    async fn fleet() -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.stage.create(&namespace("other")).await;
        fleet
    }

    async fn api(fleet: &Fleet, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", kind));
        Api::namespaced_with(fleet.client().await, namespace, &resource)
    }

    async fn is_granted(fleet: &Fleet, kind: &str, name: &str) {
        fleet
            .until(&format!("{name} is reconciled"), |stage| {
                stage.is_reconciled(kind, name)
            })
            .await;
    }

    /// Returns the parts by which an object is recognised as the same, with the same values and owners.
    fn state(stage: &Stage, name: &str) -> Value {
        let object = stage.find("ConfigMap", name).unwrap_or_default();
        let metadata = &object["metadata"];
        json!([
            metadata["uid"],
            object["data"],
            metadata["labels"],
            metadata["ownerReferences"]
        ])
    }

    fn appliers(stage: &Stage, name: &str) -> Vec<String> {
        let object = stage.find("ConfigMap", name).unwrap_or_default();
        let entries = object["metadata"]["managedFields"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let managers = entries.iter().filter_map(|entry| entry["manager"].as_str());
        managers
            .filter(|it| it.starts_with("pilothouse/"))
            .map(str::to_owned)
            .collect()
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_plugin_keeps_finalizers_in_other_namespaces() {
        let fleet = fleet().await;
        fleet.plugin("here", spec(&["default"], "Orphan")).await;
        fleet.is_ready("here").await;
        fleet.a_second().await;
        fleet.plugin("there", spec(&["other"], "Orphan")).await;
        fleet.is_ready("there").await;
        for (place, name) in [("default", "near"), ("other", "far")] {
            let owns = [config_map(place, name)];
            fleet.stage.create(&wish("Promise", place, name, true, &owns)).await;
            is_granted(&fleet, "Promise", name).await;
        }
        let _ = api(&fleet, "Promise", "other")
            .await
            .delete("far", &DeleteParams::default())
            .await
            .unwrap();
        fleet.delete("here").await;
        fleet.is_gone("here").await;
        for _ in 0..5 {
            fleet.stage.minute().await;
        }
        let finalizers = |name: &str| fleet.stage.find("Promise", name).unwrap()["metadata"]["finalizers"].clone();
        assert_eq!(finalizers("near"), Value::Null);
        assert_eq!(finalizers("far"), json!(["wishes.test.dev/promise"]));
        fleet.stage.stop().await;
    }

    /// Wishes in both namespaces, and one in `other` with a child in `default`.
    async fn with_wishes(fleet: &Fleet) {
        for (kind, place, name, child) in [
            ("Wish", "default", "here", "default"),
            ("Wish", "other", "there", "other"),
            ("Wish", "other", "across", "default"),
            ("Promise", "other", "promise", "other"),
        ] {
            let owns = [config_map(child, &format!("{name}-child"))];
            fleet.stage.create(&wish(kind, place, name, true, &owns)).await;
            is_granted(fleet, kind, name).await;
        }
    }

    const OUTSIDE: [&str; 3] = ["there-child", "across-child", "promise-child"];

    async fn narrowed_leaves_what_is_outside(is_down: bool) {
        let mut fleet = fleet().await;
        fleet.plugin("it", spec(&[], "Orphan")).await;
        fleet.is_ready("it").await;
        with_wishes(&fleet).await;
        let before = OUTSIDE.map(|name| state(&fleet.stage, name));
        if is_down {
            fleet.stage.host.stop().await.unwrap();
        }
        fleet.change("it", spec(&["default"], "Orphan")).await;
        if is_down {
            fleet.start_host().await;
        }
        fleet.is_ready("it").await;
        fleet
            .until("the status says how many stay", |stage| {
                stage
                    .find("Plugin", "it")
                    .is_some_and(|it| it["status"]["unselectedObjects"] == 3)
            })
            .await;
        fleet.stage.minute().await;
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        assert_eq!(OUTSIDE.map(|name| state(&fleet.stage, name)), before, "{}", fleet.log());
        assert!(fleet.stage.is_reconciled("Wish", "here"));
        let promise = fleet.stage.find("Promise", "promise").unwrap();
        assert_eq!(
            promise["metadata"]["finalizers"],
            Value::Null,
            "nobody would take it off"
        );
        // It is not written any more.
        let mark = fleet.stage.mark();
        let _ = api(&fleet, "Wish", "other")
            .await
            .delete("across", &DeleteParams::default())
            .await
            .unwrap();
        fleet.stage.minute().await;
        let writes = fleet.stage.host_writes_since(mark);
        assert!(writes.iter().all(|write| write.resource == "plugins"), "{writes:?}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn children_outside_of_narrowed_namespaces_stay() {
        narrowed_leaves_what_is_outside(false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn children_outside_namespaces_narrowed_while_down_stay() {
        narrowed_leaves_what_is_outside(true).await;
    }

    async fn narrowed_prunes_what_is_outside(is_down: bool) {
        let mut fleet = fleet().await;
        fleet.plugin("it", spec(&[], "Delete")).await;
        fleet.is_ready("it").await;
        with_wishes(&fleet).await;
        if is_down {
            fleet.stage.host.stop().await.unwrap();
        }
        fleet.change("it", spec(&["default"], "Delete")).await;
        if is_down {
            fleet.start_host().await;
        }
        fleet
            .until("what is outside goes", |stage| {
                OUTSIDE.iter().all(|name| stage.find("ConfigMap", name).is_none())
            })
            .await;
        assert!(fleet.stage.find("ConfigMap", "here-child").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_deletion_policy_delete_children_outside_go() {
        narrowed_prunes_what_is_outside(false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_policy_delete_unselected_children_go_at_the_next_start() {
        narrowed_prunes_what_is_outside(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_is_handed_over_and_its_children_never_go() {
        let mut fleet = fleet().await;
        fleet.plugin("old", spec(&["default", "other"], "Delete")).await;
        fleet.is_ready("old").await;
        fleet.a_second().await;
        with_wishes(&fleet).await;
        let before = OUTSIDE.map(|name| state(&fleet.stage, name));
        // The new one waits for the namespace, which the older one has.
        let mut new = spec(&["other"], "Delete");
        // One of the wishes there has a child in the other's namespace.
        new["accessNamespaces"] = json!(["default"]);
        fleet.plugin("new", new).await;
        fleet.says("new", "Ready", "False", "KindTaken").await;
        let mark = fleet.stage.mark();
        fleet
            .change("old", json!({"namespaces": ["default"], "deletionPolicy": "Orphan"}))
            .await;
        fleet.is_ready("new").await;
        fleet
            .until("the new one has them to itself", |stage| {
                OUTSIDE.iter().all(|name| appliers(stage, name) == ["pilothouse/new"])
            })
            .await;
        fleet.stage.minute().await;
        assert_eq!(OUTSIDE.map(|name| state(&fleet.stage, name)), before, "{}", fleet.log());
        assert_eq!(appliers(&fleet.stage, "here-child"), ["pilothouse/old"]);
        let writes = fleet.stage.host_writes_since(mark);
        assert!(writes.iter().all(|write| write.verb != "delete"), "{writes:?}");
        // What the old one wrote and the new one does not want goes with the next change.
        let mark = fleet.stage.mark();
        fleet.stage.host.resync().await.unwrap();
        fleet.stage.minute().await;
        let writes = fleet.stage.host_writes_since(mark);
        assert!(writes.iter().all(|write| write.resource == "plugins"), "{writes:?}");
        fleet.delete("old").await;
        fleet.is_gone("old").await;
        fleet.stage.minute().await;
        assert_eq!(OUTSIDE.map(|name| state(&fleet.stage, name)), before);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn of_two_owners_of_one_object_the_second_names_the_first() {
        let fleet = Fleet::start().await;
        fleet.put("service-ingress", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "deletionPolicy": "Delete"});
        fleet.plugin("one", spec.clone()).await;
        fleet.is_ready("one").await;
        fleet
            .stage
            .create(&json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": {"name": "web", "namespace": "default", "annotations": {"ingress/http": "yes"}},
                "spec": {"ports": [{"port": 80}]},
            }))
            .await;
        fleet
            .until("it has its Ingress", |stage| stage.find("Ingress", "web").is_some())
            .await;
        fleet.plugin("two", spec).await;
        fleet.is_ready("two").await;
        fleet
            .until("the second says who has it", |stage| {
                let events = stage.events("web", "ReconcileFailed");
                events.iter().any(|event| {
                    let message = event["message"].as_str().unwrap_or_default();
                    message.contains("pilothouse/one")
                        && event["source"]["component"].as_str() != Some("pilothouse/one")
                })
            })
            .await;
        let managers = |stage: &Stage| {
            let ingress = stage.find("Ingress", "web").unwrap_or_default();
            let entries = ingress["metadata"]["managedFields"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            entries.iter().map(|entry| entry["manager"].clone()).collect::<Vec<_>>()
        };
        assert_eq!(managers(&fleet.stage), ["pilothouse/one"]);
        fleet.change("one", json!({"deletionPolicy": "Orphan"})).await;
        fleet.is_ready("one").await;
        let uid = fleet.stage.find("Ingress", "web").unwrap()["metadata"]["uid"].clone();
        fleet.delete("one").await;
        fleet.is_gone("one").await;
        fleet
            .until("the second has it", |stage| managers(stage) == ["pilothouse/two"])
            .await;
        assert_eq!(fleet.stage.find("Ingress", "web").unwrap()["metadata"]["uid"], uid);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_another_plugin_applies_too_is_released_and_not_deleted() {
        let fleet = fleet().await;
        fleet.plugin("it", spec(&[], "Delete")).await;
        fleet.is_ready("it").await;
        let names = ["pruned", "last"];
        let owns = names.map(|name| config_map("default", name));
        fleet.stage.create(&wish("Wish", "default", "it", false, &owns)).await;
        is_granted(&fleet, "Wish", "it").await;
        // An earlier version let two plugins apply one object.
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
        let config_maps: Api<DynamicObject> = Api::namespaced_with(fleet.client().await, "default", &resource);
        fleet.plugin("also", json!({"source": {"file": "none.wasm"}})).await;
        for name in names {
            let by = kube::api::PatchParams::apply("pilothouse/also");
            let body = config_map("default", name);
            config_maps
                .patch(name, &by, &kube::api::Patch::Apply(&body))
                .await
                .unwrap();
        }
        let change = json!({"spec": {"owns": [{"object": owns[1]}]}});
        let by = kube::api::PatchParams::default();
        let wishes = api(&fleet, "Wish", "default").await;
        wishes
            .patch("it", &by, &kube::api::Patch::Merge(&change))
            .await
            .unwrap();
        fleet
            .until("the first is released", |stage| {
                appliers(stage, "pruned") == ["pilothouse/also"]
            })
            .await;
        fleet.delete("it").await;
        fleet.is_gone("it").await;
        for name in names {
            assert_eq!(appliers(&fleet.stage, name), ["pilothouse/also"]);
            let data = fleet.stage.find("ConfigMap", name).unwrap()["data"].clone();
            assert_eq!(data, json!({"text": "as it should be"}));
        }
        fleet.stage.stop().await;
    }
}
