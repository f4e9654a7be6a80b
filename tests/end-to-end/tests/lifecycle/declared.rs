//! Tests that objects no longer declared by a plugin's version are removed: fields in objects of kinds that it does not
//! contribute to, and children and finalizers of a controller that it does not have. The version arrives while the host
//! runs, while it does not, and while another host still runs the version before.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, unhurried};
    use pilothouse_runtime::HostOptions;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    /// Returns a Plugin's remembered kinds, as `primary kind`, or its remembered finalizers.
    fn remembered(stage: &Stage, list: &str) -> Vec<String> {
        let plugin = stage.find("Plugin", "it").unwrap_or_default();
        let entries = plugin["status"][list].as_array().cloned().unwrap_or_default();
        let text = |entry: &Value| {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let other = match &entry["finalizer"] {
                Value::Null => word(&entry["kind"]["kind"]),
                finalizer => word(finalizer),
            };
            format!("{} {other}", word(&entry["primary"]["kind"]))
        };
        entries.iter().map(text).collect()
    }

    async fn api(fleet: &Fleet, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "Share" => ("sharing.test.dev", "v1"),
            "Wish" | "Promise" => ("wishes.test.dev", "v1"),
            _ => ("", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(fleet.client().await, namespace, &resource)
    }

    fn config_map(name: &str, namespace: &str, data: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}, "data": data,
        })
    }

    fn service(name: &str, ports: &Value) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"ports": ports},
        })
    }

    fn share(name: &str, spec: &Value) -> Value {
        json!({
            "apiVersion": "sharing.test.dev/v1", "kind": "Share", "metadata": {"name": name, "namespace": "default"},
            "spec": spec,
        })
    }

    fn contributing(kinds: &[&str]) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": {"contributes": kinds}})
    }

    fn ports(stage: &Stage) -> Vec<u64> {
        let service = stage.find("Service", "target").unwrap();
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|port| port["port"].as_u64().unwrap()).collect()
    }

    fn data(stage: &Stage) -> Value {
        stage.find("ConfigMap", "target").unwrap()["data"].clone()
    }

    /// A plugin that contributes to a ConfigMap and a Service of somebody else.
    async fn sharing() -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("sharer", "a.wasm", 0);
        fleet.plugin("it", contributing(&["ConfigMap", "Service"])).await;
        fleet.is_ready("it").await;
        fleet
            .stage
            .create(&config_map("target", "default", &json!({"theirs": "1"})))
            .await;
        fleet
            .stage
            .create(&service("target", &json!([{"name": "theirs", "port": 22}])))
            .await;
        let entry = config_map("target", "default", &json!({"ours": "1"}));
        let port = service("target", &json!([{"name": "ours", "port": 80}]));
        fleet
            .stage
            .create(&share("it", &json!({"contributes": [entry, port]})))
            .await;
        fleet
            .until("both are contributed to", |stage| {
                stage.is_reconciled("Share", "it") && ports(stage) == [22, 80]
            })
            .await;
        assert_eq!(data(&fleet.stage), json!({"theirs": "1", "ours": "1"}));
        assert_eq!(
            remembered(&fleet.stage, "contributedKinds"),
            ["Share ConfigMap", "Share Service", "Share Share"]
        );
        fleet
    }

    /// Checks that contributions to Services, and nothing else, are removed, and that Services are then watched no
    /// more.
    async fn gives_up_services(fleet: &Fleet) {
        fleet
            .until("what was contributed to Services goes", |stage| ports(stage) == [22])
            .await;
        fleet
            .until("the kind is forgotten", |stage| {
                remembered(stage, "contributedKinds") == ["Share ConfigMap", "Share Share"]
            })
            .await;
        assert_eq!(data(&fleet.stage), json!({"theirs": "1", "ours": "1"}));
        let mark = fleet.stage.mark();
        for _ in 0..6 {
            fleet.stage.minute().await;
        }
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        assert!(
            !requests.iter().any(|request| request.resource == "services"),
            "{requests:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn undeclared_contributions_are_given_up_by_a_new_version() {
        let fleet = sharing().await;
        fleet.put("sharer", "a.wasm", 1);
        fleet.change("it", contributing(&["ConfigMap"])).await;
        gives_up_services(&fleet).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_with_a_new_version_gives_up_old_contributions() {
        let mut fleet = sharing().await;
        // Who does not answer keeps what it may claim; no version claims this any more.
        let fails = Patch::Merge(json!({"spec": {"fails": "not now"}}));
        let shares = api(&fleet, "Share", "default").await;
        shares.patch("it", &PatchParams::default(), &fails).await.unwrap();
        fleet
            .until("it cannot be asked", |stage| !stage.is_reconciled("Share", "it"))
            .await;
        fleet.stage.host.stop().await.unwrap();
        fleet.put("sharer", "a.wasm", 1);
        fleet.change("it", contributing(&["ConfigMap"])).await;
        fleet.start_host().await;
        gives_up_services(&fleet).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_release_that_the_server_ignores_is_tried_once() {
        let fleet = sharing().await;
        let only = Patch::Merge(json!({"spec": {"ports": [{"name": "ours", "port": 80, "protocol": "TCP"}]}}));
        let services = api(&fleet, "Service", "default").await;
        services.patch("target", &PatchParams::default(), &only).await.unwrap();
        let mark = fleet.stage.mark();
        fleet.put("sharer", "a.wasm", 1);
        fleet.change("it", contributing(&["ConfigMap"])).await;
        fleet.is_ready("it").await;
        for _ in 0..5 {
            fleet.stage.minute().await;
        }
        let writes = fleet.stage.host_writes_since(mark);
        let asked = writes.iter().filter(|write| write.resource == "services").count();
        assert!((1..=2).contains(&asked), "{writes:?}");
        assert!(remembered(&fleet.stage, "contributedKinds").contains(&"Share Service".to_owned()));
        let theirs = Patch::Merge(json!({"spec": {"ports": [
            {"name": "ours", "port": 80, "protocol": "TCP"}, {"name": "theirs", "port": 22, "protocol": "TCP"}]}}));
        services
            .patch("target", &PatchParams::default(), &theirs)
            .await
            .unwrap();
        gives_up_services(&fleet).await;
        fleet.stage.stop().await;
    }

    fn steering(kinds: &[&str]) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": {"steers": kinds}})
    }

    /// A plugin with two controllers, each with a primary that has a child beside it and one in another namespace; those of
    /// one have finalizers.
    async fn steering_both() -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", steering(&["Wish", "Promise"])).await;
        fleet.is_ready("it").await;
        with_primaries(&fleet).await;
        fleet.accept("it", "deletes=10").await;
        assert_eq!(
            remembered(&fleet.stage, "finalizers"),
            ["Promise wishes.test.dev/promise"]
        );
        fleet
    }

    async fn with_primaries(fleet: &Fleet) {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}});
        fleet.stage.create(&namespace).await;
        for kind in ["Wish", "Promise"] {
            let name = kind.to_lowercase();
            let owns = [
                json!({"object": config_map(&format!("{name}-near"), "default", &json!({}))}),
                json!({"object": config_map(&format!("{name}-far"), "far", &json!({}))}),
                json!({"object": config_map(&format!("{name}-kept"), "far", &json!({})), "keep": true}),
            ];
            fleet
                .stage
                .create(&json!({
                    "apiVersion": "wishes.test.dev/v1", "kind": kind,
                    "metadata": {"name": "it", "namespace": "default"}, "spec": {"owns": owns},
                }))
                .await;
            fleet
                .until("its children are made", |stage| stage.is_reconciled(kind, "it"))
                .await;
        }
    }

    fn is_there(stage: &Stage, name: &str) -> bool {
        stage.find("ConfigMap", name).is_some()
    }

    fn has_finalizers(stage: &Stage, kind: &str) -> bool {
        stage.find(kind, "it").unwrap()["metadata"]["finalizers"].is_array()
    }

    /// Checks that the objects of the controller of Promises, and nothing else, are removed, and that Promises are then
    /// watched no more.
    async fn clears_promises(fleet: &Fleet) {
        fleet
            .until("its children go and its primary is released", |stage| {
                !is_there(stage, "promise-near") && !is_there(stage, "promise-far") && !has_finalizers(stage, "Promise")
            })
            .await;
        fleet
            .until("it is forgotten", |stage| {
                let owned = remembered(stage, "ownedKinds");
                !owned.is_empty()
                    && owned.iter().all(|kind| kind.starts_with("Wish "))
                    && remembered(stage, "finalizers").is_empty()
            })
            .await;
        assert!(is_there(&fleet.stage, "promise-kept"));
        assert!(is_there(&fleet.stage, "wish-near") && is_there(&fleet.stage, "wish-far"));
        let mark = fleet.stage.mark();
        for _ in 0..6 {
            fleet.stage.minute().await;
        }
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        assert!(
            !requests.iter().any(|request| request.resource == "promises"),
            "{requests:?}"
        );
        fleet.is_ready("it").await;
    }

    #[tokio::test(start_paused = true)]
    async fn leftovers_of_a_removed_controller_go() {
        let fleet = steering_both().await;
        fleet.put("wisher", "a.wasm", 1);
        fleet.change("it", steering(&["Wish"])).await;
        clears_promises(&fleet).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn leftovers_of_a_removed_controller_go_at_the_next_start() {
        let mut fleet = steering_both().await;
        fleet.stage.host.stop().await.unwrap();
        fleet.put("wisher", "a.wasm", 1);
        fleet.change("it", steering(&["Wish"])).await;
        fleet.start_host().await;
        clears_promises(&fleet).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_restart_in_the_middle_goes_on_where_it_was() {
        let mut fleet = steering_both().await;
        let refused = Fault::Status {
            code: 403,
            retry_after: None,
        };
        let rule = Rule::new(refused).verbs(&["delete"]).resource("configmaps");
        let rule = fleet.stage.simulator().faults().add(rule);
        fleet.put("wisher", "a.wasm", 1);
        fleet.change("it", steering(&["Wish"])).await;
        fleet.stage.minute().await;
        assert!(is_there(&fleet.stage, "promise-near") && has_finalizers(&fleet.stage, "Promise"));
        fleet.stage.host.kill().await;
        fleet.stage.simulator().faults().remove(rule);
        fleet.start_host().await;
        clears_promises(&fleet).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_comes_back_has_its_primaries_again() {
        let fleet = steering_both().await;
        fleet.put("wisher", "a.wasm", 1);
        fleet.change("it", steering(&["Wish"])).await;
        fleet
            .until("its children go", |stage| !is_there(stage, "promise-far"))
            .await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.change("it", steering(&["Wish", "Promise"])).await;
        fleet
            .until("they are made again", |stage| {
                is_there(stage, "promise-near") && is_there(stage, "promise-far") && has_finalizers(stage, "Promise")
            })
            .await;
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|write| write.verb == "delete");
        assert_eq!(writes, []);
        assert!(is_there(&fleet.stage, "promise-far"));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_whose_kind_is_gone_is_forgotten() {
        let mut fleet = steering_both().await;
        fleet.stage.host.stop().await.unwrap();
        let released = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        let promises = api(&fleet, "Promise", "default").await;
        promises.patch("it", &PatchParams::default(), &released).await.unwrap();
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(fleet.client().await, &ApiResource::from_gvk(&kind));
        let gone = definitions
            .delete("promises.wishes.test.dev", &DeleteParams::default())
            .await;
        assert!(gone.is_ok());
        fleet
            .until("the definition goes", |stage| {
                stage
                    .find("CustomResourceDefinition", "promises.wishes.test.dev")
                    .is_none()
            })
            .await;
        fleet.put("wisher", "a.wasm", 1);
        fleet.change("it", steering(&["Wish"])).await;
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet
            .until("what it made elsewhere goes, too", |stage| {
                !is_there(stage, "promise-far")
            })
            .await;
        fleet
            .until("it is forgotten", |stage| {
                remembered(stage, "ownedKinds")
                    .iter()
                    .all(|kind| kind.starts_with("Wish "))
                    && remembered(stage, "finalizers").is_empty()
            })
            .await;
        assert!(is_there(&fleet.stage, "wish-far") && is_there(&fleet.stage, "promise-kept"));
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_forgotten_while_another_host_runs_the_old_version() {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        with_primaries(&fleet).await;
        fleet.accept("it", "deletes=10").await;
        // Another component, which has none of these controllers, under the same name in another host.
        let folder = tempfile::tempdir().unwrap();
        let built = pilothouse_end_to_end::components::folder().join("sharer.wasm");
        std::fs::copy(built, folder.path().join("a.wasm")).unwrap();
        let mut other = RuntimeHost::new(HostOptions::default(), unhurried());
        other
            .start_by_resources(&fleet.stage.cluster, folder.path().to_owned())
            .await
            .unwrap();
        for _ in 0..3 {
            fleet.stage.minute().await;
        }
        let mut fleet = fleet;
        fleet.stage.host.kill().await;
        let gone = |stage: &Stage| {
            let names = ["wish-near", "wish-far", "promise-near", "promise-far"];
            !names.iter().any(|name| is_there(stage, name)) && !has_finalizers(stage, "Promise")
        };
        fleet.until("all that the version before made goes", gone).await;
        fleet
            .until("and is forgotten", |stage| {
                remembered(stage, "ownedKinds") == ["Share ConfigMap"] && remembered(stage, "finalizers").is_empty()
            })
            .await;
        assert!(gone(&fleet.stage));
        other.stop().await.unwrap();
    }
}
