//! What a Plugin's status tells of contributions: who has yet to answer, and, in preview, what would be put where.

mod simulated {
    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    fn share(name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "sharing.test.dev/v1", "kind": "Share", "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        })
    }

    fn target(data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target", "namespace": "default"},
            "data": data,
        })
    }

    fn entry(key: &str, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "target"}, "data": {key: value}})
    }

    async fn patch(fleet: &Fleet, kind: &str, name: &str, body: &Value) {
        let (group, version) = if kind == "Share" {
            ("sharing.test.dev", "v1")
        } else {
            ("", "v1")
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        let api: Api<DynamicObject> = Api::namespaced_with(fleet.client().await, "default", &resource);
        api.patch(name, &PatchParams::default(), &Patch::Merge(body))
            .await
            .unwrap();
    }

    async fn fleet(mode: &str) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("sharer", "a.wasm", 0);
        fleet
            .plugin("it", json!({"source": {"file": "a.wasm"}, "mode": mode}))
            .await;
        let reason = if mode == "Active" { "Reconciling" } else { mode };
        fleet.says("it", "Ready", "True", reason).await;
        fleet
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_yet_to_answer_is_named_until_it_has() {
        let mut fleet = fleet("Active").await;
        fleet.stage.create(&share("well", &json!({}))).await;
        for index in 10..35 {
            fleet
                .stage
                .create(&share(&format!("broken-{index}"), &json!({"fails": "not yet"})))
                .await;
        }
        fleet.stage.host.stop().await.unwrap();
        fleet.start_host().await;
        fleet
            .until("the first that have not answered are named", |stage| {
                let status = &stage.find("Plugin", "it").unwrap()["status"];
                let named = status["waitedFor"].as_array().map_or(0, Vec::len);
                let first = json!({"controller": "sharer", "object": "default/broken-10"});
                status["unanswered"] == 25 && named == 20 && status["waitedFor"][0] == first
            })
            .await;
        for index in 10..35 {
            let spec = json!({"spec": {"fails": null}});
            patch(&fleet, "Share", &format!("broken-{index}"), &spec).await;
        }
        fleet
            .until("nobody is waited for", |stage| {
                let status = &stage.find("Plugin", "it").unwrap()["status"];
                status["unanswered"].is_null() && status["waitedFor"].is_null()
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_preview_shows_what_would_be_put_into_what_others_have() {
        let fleet = fleet("Preview").await;
        fleet.stage.create(&target(&json!({"theirs": "1", "a": "0"}))).await;
        let spec = json!({"contributes": [entry("a", "1")]});
        fleet.stage.create(&share("it", &spec)).await;
        let changes = |stage: &pilothouse_end_to_end::stage::Stage| {
            stage.find("Plugin", "it").unwrap()["status"]["previews"][0]["changes"].clone()
        };
        fleet
            .until("what would change is told", |stage| {
                changes(stage) == json!(["Contribute ConfigMap default/target; .data.a: \"0\" becomes \"1\""])
            })
            .await;
        patch(&fleet, "ConfigMap", "target", &json!({"data": {"a": "2"}})).await;
        fleet
            .until("it follows what it would go to", |stage| {
                changes(stage) == json!(["Contribute ConfigMap default/target; .data.a: \"2\" becomes \"1\""])
            })
            .await;
        assert!(
            !fleet.stage.lines(&["would change", "Contribute", ".data.a"]).is_empty(),
            "{}",
            fleet.log()
        );
        assert_eq!(fleet.stage.find("ConfigMap", "target").unwrap()["data"]["a"], "2");
        fleet.stage.stop().await;
    }
}
