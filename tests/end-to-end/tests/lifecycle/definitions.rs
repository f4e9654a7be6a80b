//! Definitions that change while the host runs: what one refused is sent again when it takes it, and one that goes, or comes
//! back, is told.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const NAME: &str = "trinkets.trinkets.test.dev";

    /// The definition of Trinkets whose size has this type.
    fn trinkets(size: &str) -> Value {
        let spec = json!({"type": "object", "properties": {"size": {"type": size}}});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
            "spec": {
                "group": "trinkets.test.dev", "scope": "Namespaced",
                "names": {"kind": "Trinket", "listKind": "TrinketList", "plural": "trinkets", "singular": "trinket"},
                "versions": [{
                    "name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }

    fn wish() -> Value {
        let trinket = json!({
            "apiVersion": "trinkets.test.dev/v1alpha1", "kind": "Trinket",
            "metadata": {"name": "web", "namespace": "default"}, "spec": {"size": "large"},
        });
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": [{"object": trinket}]},
        })
    }

    async fn definitions(fleet: &Fleet) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        Api::all_with(fleet.client().await, &ApiResource::from_gvk(&kind))
    }

    async fn owning_trinkets(size: &str) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.stage.create(&trinkets(size)).await;
        fleet.put("wisher", "a.wasm", 0);
        let configuration = json!({"owns": ["ConfigMap", "Trinket"]});
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": configuration});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&wish()).await;
        fleet
    }

    fn asked(fleet: &Fleet, mark: pilothouse_testkit::cluster::Mark) -> usize {
        let writes = fleet.stage.host_writes_since(mark);
        writes.iter().filter(|write| write.resource == "trinkets").count()
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_crd_refused_is_sent_again_only_after_it_changed() {
        let fleet = owning_trinkets("integer").await;
        fleet
            .until("it is refused", |stage| {
                let condition = stage.reconciled("Wish", "it").unwrap_or_default();
                condition["message"]
                    .as_str()
                    .is_some_and(|message| message.contains("size"))
            })
            .await;
        let mark = fleet.stage.mark();
        for _ in 0..30 {
            fleet.stage.minute().await;
        }
        assert_eq!(asked(&fleet, mark), 0, "nothing has changed");
        // A change that does not help costs few requests, and one that does is enough.
        for (size, most) in [("boolean", 2), ("string", 2)] {
            let mark = fleet.stage.mark();
            let patch = Patch::Merge(json!({"spec": trinkets(size)["spec"]}));
            definitions(&fleet)
                .await
                .patch(NAME, &PatchParams::default(), &patch)
                .await
                .unwrap();
            fleet.stage.minute().await;
            let asked = asked(&fleet, mark);
            assert!((1..=most).contains(&asked), "{asked}");
        }
        assert!(fleet.stage.find("Trinket", "web").is_some());
        assert!(fleet.stage.is_reconciled("Wish", "it"));
        fleet.stage.stop().await;
    }

    fn warns(stage: &Stage) -> bool {
        let plugin = stage.find("Plugin", "it").unwrap_or_default();
        plugin["status"]["warnings"].as_array().is_some_and(|warnings| {
            let words = "does not serve trinkets.test.dev/v1alpha1 Trinket any more";
            warnings
                .iter()
                .any(|it| it.as_str().is_some_and(|it| it.contains(words)))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_crd_that_is_deleted_and_restored_is_reported_both_times() {
        let fleet = owning_trinkets("string").await;
        fleet
            .until("it is made", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        let gone = definitions(&fleet).await.delete(NAME, &DeleteParams::default()).await;
        assert!(gone.is_ok());
        fleet.until("it is told", warns).await;
        let said = fleet.says("it", "Established", "False", "Waiting").await;
        assert!(said["message"].as_str().unwrap().contains("Trinket"), "{said}");
        let lost = fleet
            .stage
            .lines(&["WARN", "does not serve", "Trinket any more", "was deleted"]);
        assert_eq!(lost.len(), 1, "{}", fleet.log());
        fleet.stage.create(&trinkets("string")).await;
        fleet
            .until("it is made again", |stage| {
                stage.find("Trinket", "web").is_some() && !warns(stage)
            })
            .await;
        fleet.is_ready("it").await;
        assert_eq!(
            fleet
                .stage
                .lines(&["INFO", "the missing kind is served now", "Trinket"])
                .len(),
            1
        );
        fleet.stage.stop().await;
    }
}
