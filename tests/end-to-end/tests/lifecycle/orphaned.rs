//! Tests that children orphaned by `--cascade=orphan` are owned by nobody, whoever saw the deletion and whatever else
//! happens to them.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PropagationPolicy};
    use kube::core::{ApiResource, GroupVersionKind};
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    fn config_map(name: &str, namespace: &str) -> Value {
        let metadata = json!({"name": name, "namespace": namespace});
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}})
    }

    fn primary(kind: &str, spec: &Value) -> Value {
        let metadata = json!({"name": "it", "namespace": "default"});
        json!({"apiVersion": "wishes.test.dev/v1", "kind": kind, "metadata": metadata, "spec": spec})
    }

    /// A fleet with a reconciled primary that has children `near` and `far`.
    async fn one_is_reconciled(kind: &str, plugin: Value) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        let mut spec = json!({"source": {"file": "a.wasm"}});
        spec.as_object_mut()
            .unwrap()
            .extend(plugin.as_object().unwrap().clone());
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        let elsewhere = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}});
        fleet.stage.create(&elsewhere).await;
        let owns = ["near", "near-too"].map(|name| json!({"object": config_map(name, "default")}));
        let far = json!({"object": config_map("far", "elsewhere")});
        let owns: Vec<_> = owns.into_iter().chain([far]).collect();
        let object = primary(kind, &json!({"holds": true, "owns": owns}));
        fleet.stage.create(&object).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled(kind, "it"))
            .await;
        fleet.stage.host.settled().await.unwrap();
        fleet
    }

    async fn api(fleet: &Fleet, kind: &str) -> Api<DynamicObject> {
        let kind = match kind {
            "ConfigMap" => GroupVersionKind::gvk("", "v1", kind),
            kind => GroupVersionKind::gvk("wishes.test.dev", "v1", kind),
        };
        Api::namespaced_with(fleet.client().await, "default", &ApiResource::from_gvk(&kind))
    }

    async fn delete(fleet: &Fleet, kind: &str, policy: PropagationPolicy) {
        let parameters = DeleteParams {
            propagation_policy: Some(policy),
            ..DeleteParams::default()
        };
        let _ = api(fleet, kind).await.delete("it", &parameters).await.unwrap();
    }

    async fn are_nobodys(fleet: &Fleet, what: &str) {
        let is_free = |child: &Value| {
            let metadata = &child["metadata"];
            let marks = [
                &metadata["ownerReferences"],
                &metadata["labels"],
                &metadata["annotations"],
            ];
            marks.iter().all(|mark| mark.is_null())
        };
        fleet
            .until(what, |stage| {
                let children = ["near", "near-too", "far"].map(|name| stage.find("ConfigMap", name));
                children.iter().all(|child| child.as_ref().is_some_and(is_free))
            })
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn orphaned_children_have_no_trace_of_their_owner() {
        for kind in ["Wish", "Promise"] {
            let fleet = one_is_reconciled(kind, json!({})).await;
            delete(&fleet, kind, PropagationPolicy::Orphan).await;
            are_nobodys(&fleet, kind).await;
            assert!(fleet.stage.find(kind, "it").is_none(), "{kind}");
            fleet.stage.minute().await;
            are_nobodys(&fleet, kind).await;
            fleet.stage.stop().await;
        }
    }

    /// One that is being finalized is deleted once more, with another policy.
    #[tokio::test(start_paused = true)]
    async fn a_second_deletion_can_save_what_the_first_has_not_taken() {
        let fleet = one_is_reconciled("Promise", json!({})).await;
        let traps = Patch::Merge(json!({"spec": {"traps": true}}));
        let promises = api(&fleet, "Promise").await;
        promises.patch("it", &PatchParams::default(), &traps).await.unwrap();
        delete(&fleet, "Promise", PropagationPolicy::Background).await;
        fleet.stage.minute().await;
        assert!(fleet.stage.find("Promise", "it").is_some(), "the plugin traps");
        delete(&fleet, "Promise", PropagationPolicy::Orphan).await;
        are_nobodys(&fleet, "the second deletion").await;
        assert!(fleet.stage.find("Promise", "it").is_none());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_plugin_leaves_what_an_orphaning_deletion_left() {
        let fleet = one_is_reconciled("Promise", json!({"deletionPolicy": "Delete"})).await;
        delete(&fleet, "Promise", PropagationPolicy::Orphan).await;
        fleet.delete("it").await;
        fleet.is_gone("it").await;
        for name in ["near", "near-too", "far"] {
            assert!(fleet.stage.find("ConfigMap", name).is_some(), "{name}\n{}", fleet.log());
        }
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_is_none_of_these_takes_everything() {
        for kind in ["Wish", "Promise"] {
            let fleet = one_is_reconciled(kind, json!({})).await;
            let held = Patch::Merge(json!({"spec": {"holds": false}}));
            let objects = api(&fleet, kind).await;
            objects.patch("it", &PatchParams::default(), &held).await.unwrap();
            // Somebody takes the owner reference off a child of a living owner.
            let free = Patch::Merge(json!({"metadata": {"ownerReferences": null}}));
            let maps = api(&fleet, "ConfigMap").await;
            maps.patch("near", &PatchParams::default(), &free).await.unwrap();
            fleet.stage.minute().await;
            delete(&fleet, kind, PropagationPolicy::Background).await;
            fleet
                .until("what is still its own goes", |stage| {
                    ["near-too", "far"]
                        .iter()
                        .all(|name| stage.find("ConfigMap", name).is_none())
                        && stage.find(kind, "it").is_none()
                })
                .await;
            fleet.stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_successor_adopts_orphans_of_a_former_manager_of_its_own() {
        let fleet = one_is_reconciled("Wish", json!({})).await;
        delete(&fleet, "Wish", PropagationPolicy::Orphan).await;
        are_nobodys(&fleet, "the first").await;
        let owns = [
            json!({"object": config_map("near", "default")}),
            json!({"object": config_map("far", "elsewhere")}),
        ];
        fleet.stage.create(&primary("Wish", &json!({"owns": owns}))).await;
        fleet
            .until("they are foreign", |stage| {
                let reconciled = stage.reconciled("Wish", "it");
                reconciled.is_some_and(|condition| condition["reason"] == "ForeignObject")
            })
            .await;
        fleet.change("it", json!({"formerManagers": ["pilothouse/it"]})).await;
        fleet
            .until("they are its own", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        let near = fleet.stage.find("ConfigMap", "near").unwrap();
        let uid = &fleet.stage.find("Wish", "it").unwrap()["metadata"]["uid"];
        assert_eq!(&near["metadata"]["ownerReferences"][0]["uid"], uid);
        fleet.stage.stop().await;
    }
}
