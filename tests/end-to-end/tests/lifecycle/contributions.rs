//! Tests of contributions in a Plugin's status: primaries that have not answered yet and, in preview, the planned
//! fields; and of the contributions when the Plugin is deleted.

mod simulated {
    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_simulator::{Fault, Rule};
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
        let reason = if mode == "Active" { "Running" } else { mode };
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

    fn service(ports: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target", "namespace": "default"},
            "spec": {"ports": ports},
        })
    }

    /// A plugin that owns a ConfigMap and contributes to it, to another's, and to another's Service, with and without a
    /// primary that can be asked.
    async fn contributing(policy: &str) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("sharer", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "deletionPolicy": policy});
        fleet.plugin("it", spec).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&target(&json!({"theirs": "1"}))).await;
        fleet
            .stage
            .create(&service(&json!([{"name": "theirs", "port": 22}])))
            .await;
        let own = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"own": "1"}});
        let given =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "own"}, "data": {"given": "1"}});
        let port = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "target"},
            "spec": {"ports": [{"name": "given", "port": 80}]},
        });
        for (name, spec) in [
            ("one", json!({"contributes": [entry("a", "1"), port], "owns": [own]})),
            ("two", json!({"contributes": [entry("b", "1"), given]})),
        ] {
            fleet.stage.create(&share(name, &spec)).await;
        }
        fleet
            .until("all is contributed", |stage| {
                ["one", "two"].iter().all(|name| stage.is_reconciled("Share", name))
            })
            .await;
        assert_eq!(data(&fleet, "target"), json!({"theirs": "1", "a": "1", "b": "1"}));
        assert_eq!(data(&fleet, "own"), json!({"own": "1", "given": "1"}));
        let told = fleet.stage.lines(&[" contributed plugin=\"it\" ", "Share default/one"]);
        assert!(!told.is_empty(), "the log names who contributes: {}", fleet.log());
        patch(&fleet, "Share", "two", &json!({"spec": {"fails": "not now"}})).await;
        fleet
            .until("one cannot be asked any more", |stage| {
                !stage.is_reconciled("Share", "two")
            })
            .await;
        fleet
    }

    fn data(fleet: &Fleet, name: &str) -> Value {
        let found = fleet.stage.find("ConfigMap", name);
        found.map_or(Value::Null, |found| found["data"].clone())
    }

    fn ports(fleet: &Fleet) -> Vec<u64> {
        let service = fleet.stage.find("Service", "target").unwrap();
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|port| port["port"].as_u64().unwrap()).collect()
    }

    async fn is_ended(fleet: &Fleet) {
        fleet.delete("it").await;
        fleet.is_gone("it").await;
    }

    fn has_taken_back(fleet: &Fleet) {
        assert_eq!(data(fleet, "target"), json!({"theirs": "1"}));
        assert_eq!(ports(fleet), [22]);
        assert_eq!(data(fleet, "own"), Value::Null, "what was its own is deleted");
        assert!(fleet.stage.find("Share", "one").is_some() && fleet.stage.find("Share", "two").is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn with_policy_delete_only_contributions_are_taken_back() {
        let fleet = contributing("Delete").await;
        let theirs = fleet.stage.find("ConfigMap", "target").unwrap()["metadata"]["uid"].clone();
        let begun = fleet.stage.mark();
        is_ended(&fleet).await;
        has_taken_back(&fleet);
        assert_eq!(
            fleet.stage.find("ConfigMap", "target").unwrap()["metadata"]["uid"],
            theirs
        );
        let written = fleet.stage.host_writes_since(begun);
        let taken = written.iter().filter(|write| write.name == "target");
        assert_eq!(taken.count(), 2, "{written:?}");
        fleet.stage.minute().await;
        has_taken_back(&fleet);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_the_policy_delete_the_next_start_takes_back_too() {
        let mut fleet = contributing("Delete").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.delete("it").await;
        fleet.start_host().await;
        fleet.is_gone("it").await;
        has_taken_back(&fleet);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn with_the_policy_orphan_what_the_plugin_contributes_stays() {
        let fleet = contributing("Orphan").await;
        is_ended(&fleet).await;
        fleet.stage.minute().await;
        assert_eq!(data(&fleet, "target"), json!({"theirs": "1", "a": "1", "b": "1"}));
        assert_eq!(ports(&fleet), [22, 80]);
        assert_eq!(data(&fleet, "own"), json!({"own": "1", "given": "1"}));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_does_not_let_go_keeps_no_plugin_from_ending() {
        let fleet = contributing("Delete").await;
        // A Service of this type must have one port at least.
        let only = json!({"spec": {"ports": [{"name": "given", "port": 80, "protocol": "TCP"}]}});
        patch(&fleet, "Service", "target", &only).await;
        is_ended(&fleet).await;
        assert_eq!(
            (data(&fleet, "target"), ports(&fleet)),
            (json!({"theirs": "1"}), vec![80])
        );
        let said = fleet.stage.lines(&[
            "cannot withdraw the contributed fields; they stay",
            "Service default/target",
            "spec.ports",
        ]);
        assert_eq!(said.len(), 1, "{}", fleet.log());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_irrevocable_contribution_blocks_nothing_else() {
        let fleet = contributing("Delete").await;
        let forbidden = Rule::new(Fault::Status {
            code: 403,
            retry_after: None,
        });
        fleet
            .stage
            .simulator()
            .faults()
            .add(forbidden.resource("services").verbs(&["patch"]));
        fleet.delete("it").await;
        let said = fleet.says("it", "Ready", "False", "Finishing").await;
        fleet
            .until("the condition names the object", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap();
                plugin["status"].to_string().contains("Service default/target")
            })
            .await;
        assert_eq!(data(&fleet, "target"), json!({"theirs": "1"}), "{said}");
        for _ in 0..6 {
            fleet.stage.minute().await;
        }
        fleet.is_gone("it").await;
        assert_eq!(ports(&fleet), [22, 80], "it could not be taken back");
        assert_eq!(data(&fleet, "own"), Value::Null, "what was its own is deleted");
        assert_eq!(fleet.stage.events("it", "ObjectsLeft").len(), 1);
        fleet.stage.stop().await;
    }
}
