//! Drift that our own entry of managedFields does not show by itself: a member of a map that somebody emptied looks there
//! like a value that is held as a whole.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::Mark;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    /// A kind with a map of objects that are merged, and one of objects that are held as a whole.
    fn trinkets() -> Value {
        let weighed =
            json!({"type": "object", "properties": {"weight": {"type": "integer"}, "size": {"type": "integer"}}});
        let mut whole = weighed.clone();
        whole["x-kubernetes-map-type"] = json!("atomic");
        let map = |of: Value| json!({"type": "object", "additionalProperties": of});
        let spec = json!({"type": "object", "properties": {"merged": map(weighed), "whole": map(whole)}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "trinkets.trinkets.test.dev"},
            "spec": {
                "group": "trinkets.test.dev", "scope": "Namespaced",
                "names": {"kind": "Trinket", "listKind": "TrinketList", "plural": "trinkets", "singular": "trinket"},
                "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                    {"type": "object", "properties": {"spec": spec}}}}],
            },
        })
    }

    /// A plugin that has made a Trinket.
    async fn owning_a_trinket() -> Fleet {
        let fleet = Fleet::start().await;
        fleet.stage.create(&trinkets()).await;
        fleet.put("wisher", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": {"owns": ["Trinket"]}});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        let trinket = json!({
            "apiVersion": "trinkets.test.dev/v1alpha1", "kind": "Trinket",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"merged": {"a": {"weight": 1}}, "whole": {"a": {"weight": 1}}},
        });
        let wish = json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": [{"object": trinket}]},
        });
        fleet.stage.create(&wish).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        fleet
    }

    /// Empties `a` as another user.
    async fn empty(fleet: &Fleet, member: &str) {
        let kind = GroupVersionKind::gvk("trinkets.test.dev", "v1alpha1", "Trinket");
        let api: Api<DynamicObject> =
            Api::namespaced_with(fleet.client().await, "default", &ApiResource::from_gvk(&kind));
        let patch = json!({"spec": {member: {"a": {"weight": null}}}});
        let patched = api
            .patch("web", &PatchParams::default(), &Patch::Merge(patch))
            .await
            .unwrap();
        assert_eq!(patched.data["spec"][member]["a"], json!({}));
    }

    async fn is_as_desired(fleet: &Fleet) {
        let wanted = json!({"merged": {"a": {"weight": 1}}, "whole": {"a": {"weight": 1}}});
        let is_so = |stage: &Stage| {
            stage
                .find("Trinket", "web")
                .is_some_and(|trinket| trinket["spec"] == wanted)
        };
        fleet.until("it is as desired again", is_so).await;
    }

    fn writes(fleet: &Fleet, mark: Mark) -> usize {
        let writes = fleet.stage.host_writes_since(mark);
        writes.iter().filter(|write| write.resource == "trinkets").count()
    }

    #[tokio::test(start_paused = true)]
    async fn an_emptied_map_member_is_restored_with_one_write() {
        let mut fleet = owning_a_trinket().await;
        for member in ["merged", "whole"] {
            let mark = fleet.stage.mark();
            empty(&fleet, member).await;
            is_as_desired(&fleet).await;
            tokio::time::sleep(Duration::from_hours(3)).await;
            assert_eq!(writes(&fleet, mark), 1, "{member}");
        }
        // Nobody saw it, and only the types of the kind can tell.
        fleet.stage.host.stop().await.unwrap();
        empty(&fleet, "merged").await;
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        is_as_desired(&fleet).await;
        assert_eq!(writes(&fleet, mark), 1);
        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        tokio::time::sleep(Duration::from_hours(3)).await;
        assert_eq!(writes(&fleet, mark), 0, "nothing was changed");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn without_openapi_an_unclear_object_is_applied_once() {
        let mut fleet = owning_a_trinket().await;
        fleet.stage.host.stop().await.unwrap();
        empty(&fleet, "merged").await;
        let forbidden = Fault::Status {
            code: 403,
            retry_after: None,
        };
        let rule = Rule::new(forbidden).resource("openapi");
        fleet.stage.simulator().faults().add(rule);
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        is_as_desired(&fleet).await;
        tokio::time::sleep(Duration::from_hours(3)).await;
        assert_eq!(writes(&fleet, mark), 1);
        assert!(
            !fleet.stage.lines(&["WARN", "Trinket", "merged"]).is_empty(),
            "{}",
            fleet.log()
        );
        fleet.stage.stop().await;
    }
}
