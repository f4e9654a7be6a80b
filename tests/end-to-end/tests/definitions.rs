//! Definitions that do not take all of a status, and one that is deleted, on a real API server, whose own ways are the point
//! here: what it refuses, what it drops without a word, what it publishes, and how it deletes a definition. A program of its
//! own, so that the cluster has no other Plugins.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

mod real {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, ListParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::fleet::{Fleet, until_real};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use serde_json::{Value, json};

    /// A definition of a kind of its own with this schema of the status.
    fn definition(kind: &str, status: &Value) -> Value {
        let plural = if kind == "Wish" { "wishes" } else { "promises" };
        let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.wishes.test.dev")},
            "spec": {
                "group": "wishes.test.dev", "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase()},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": schema},
                }],
            },
        })
    }

    async fn warns(fleet: &Fleet, words: &str) -> bool {
        let plugin = fleet.plugins().await.get("it").await.unwrap();
        plugin.data["status"]["warnings"]
            .as_array()
            .is_some_and(|it| it.iter().any(|it| it.as_str().is_some_and(|it| it.contains(words))))
    }

    #[tokio::test]
    async fn unaccepted_status_fields_and_deleted_crds_are_reported() {
        let cluster = Cluster::real().await.unwrap();
        let fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("wisher", "a.wasm", 0);
        let item = json!({"type": "object", "required": ["type", "status"], "properties": {
            "type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
            "message": {"type": "string"}, "lastTransitionTime": {"type": "string"}}});
        let conditions = json!({"type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["type"]});
        let crds = [
            definition(
                "Wish",
                &json!({"type": "object", "properties": {"conditions": conditions}}),
            )
            .to_string(),
            definition("Promise", &json!({"type": "object"})).to_string(),
        ];
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": {"owns": ["ConfigMap"], "crds": crds}});
        fleet.plugin("it", spec).await;
        let client = fleet.client().await;
        let api = |kind: &str| -> Api<DynamicObject> {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", kind));
            Api::namespaced_with(client.clone(), "default", &kind)
        };
        for kind in ["Wish", "Promise"] {
            until_real("the kind is served", &fleet, async || {
                api(kind).list(&ListParams::default()).await.is_ok()
            })
            .await;
            let name = kind.to_lowercase();
            let metadata = json!({"name": name, "namespace": "default"});
            let child = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
            fleet
                .stage
                .create(&json!({
                    "apiVersion": "wishes.test.dev/v1", "kind": kind, "metadata": metadata,
                    "spec": {"owns": [{"object": child}]},
                }))
                .await;
        }
        until_real("the condition is written without the generation", &fleet, async || {
            let wish = api("Wish").get("wish").await.unwrap();
            wish.data["status"]["conditions"][0]["status"] == "True"
        })
        .await;
        for words in [
            "the CRD of Wish does not take .status.conditions[].observedGeneration, .status.observedGeneration",
            "the CRD of Promise does not take .status.conditions, .status.observedGeneration",
        ] {
            until_real(words, &fleet, async || warns(&fleet, words).await).await;
            assert!(
                !fleet
                    .stage
                    .lines(&["WARN", "the status is not written as a whole", words])
                    .is_empty(),
                "{}",
                fleet.log()
            );
        }
        let refused = fleet.stage.lines(&["cannot report the status"]);
        assert!(refused.is_empty(), "{refused:?}");

        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        let gone = definitions
            .delete("wishes.wishes.test.dev", &DeleteParams::default())
            .await;
        assert!(gone.is_ok());
        let words = "does not serve wishes.test.dev/v1 Wish any more";
        until_real(words, &fleet, async || warns(&fleet, words).await).await;
        assert!(!fleet.stage.lines(&["WARN", words]).is_empty(), "{}", fleet.log());
        fleet.stage.stop().await;
    }
}
