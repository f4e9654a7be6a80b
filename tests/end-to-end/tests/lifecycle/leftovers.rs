//! Tests of children of a kind that a plugin's new version no longer owns: they are deleted, whether the version
//! arrived while the host ran or while it did not, and then the kind is watched no more.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_runtime::Handle;
    use pilothouse_simulator::{Fault, Rule};
    use pilothouse_testkit::cluster::Mark;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const BOTH: &[&str] = &["ConfigMap", "Service"];
    const ONE: &[&str] = &["ConfigMap"];

    fn configured(owns: &[&str]) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": {"owns": owns}})
    }

    fn config_map(name: &str, namespace: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
    }

    fn service(name: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
            "spec": {"ports": [{"port": 80}]},
        })
    }

    fn trinket() -> Value {
        json!({
            "apiVersion": "trinkets.test.dev/v1alpha1", "kind": "Trinket",
            "metadata": {"name": "web", "namespace": "default"},
        })
    }

    /// A Wish for objects, each alone or with the exceptions to its life.
    fn wish(owns: &[Value]) -> Value {
        let entry = |it: &Value| match it["object"] {
            Value::Null => json!({"object": it}),
            _ => it.clone(),
        };
        let owns: Vec<_> = owns.iter().map(entry).collect();
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": owns},
        })
    }

    /// A plugin that owns these kinds.
    async fn running(owns: &[&str]) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured(owns)).await;
        fleet.is_ready("it").await;
        fleet
    }

    /// The same, and a Wish that has got what it asks for.
    async fn owning(owns: &[&str], wished: &[Value]) -> Fleet {
        let fleet = running(owns).await;
        fleet.stage.create(&wish(wished)).await;
        is_granted(&fleet).await;
        fleet
    }

    async fn is_granted(fleet: &Fleet) {
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "it"))
            .await;
    }

    /// Another version comes.
    async fn comes(fleet: &Fleet, mark: u8, owns: &[&str]) {
        fleet.put("wisher", "a.wasm", mark);
        fleet.change("it", configured(owns)).await;
    }

    fn remembered(stage: &Stage) -> Vec<Value> {
        let plugin = stage.find("Plugin", "it").unwrap_or_default();
        let entries = plugin["status"]["ownedKinds"].as_array().cloned().unwrap_or_default();
        let of_wishes = entries.iter().filter(|entry| entry["primary"]["kind"] == "Wish");
        of_wishes.map(|entry| entry["kind"]["kind"].clone()).collect()
    }

    async fn remembers(fleet: &Fleet, kinds: &[&str]) {
        fleet
            .until(&format!("it remembers {kinds:?}"), |stage| remembered(stage) == kinds)
            .await;
    }

    async fn goes(fleet: &Fleet, kind: &str, name: &str) {
        fleet.until("it goes", |stage| stage.find(kind, name).is_none()).await;
    }

    /// The deletions since then, as `resource/name`.
    fn deleted(fleet: &Fleet, mark: Mark) -> Vec<String> {
        let writes = fleet.stage.host_writes_since(mark).into_iter();
        let deletions = writes.filter(|request| request.verb == "delete");
        deletions
            .map(|request| format!("{}/{}", request.resource, request.name))
            .collect()
    }

    /// Waits until each watch has been started again, and returns the watched resources.
    async fn watched(fleet: &Fleet) -> Vec<String> {
        let mark = fleet.stage.mark();
        tokio::time::sleep(Duration::from_mins(6)).await;
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let watches = requests.into_iter().filter(|request| request.verb == "watch");
        watches.map(|request| request.resource).collect()
    }

    fn uid(stage: &Stage, kind: &str, name: &str) -> Value {
        stage.find(kind, name).unwrap()["metadata"]["uid"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_prunes_undeclared_kinds_and_forgets_them() {
        let fleet = owning(BOTH, &[config_map("web", "default"), service("web")]).await;
        fleet.stage.create(&service("foreign")).await;
        let mut borrowed = service("borrowed");
        borrowed["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "name": "it", "controller": true,
            "uid": uid(&fleet.stage, "Wish", "it"),
        }]);
        fleet.stage.create(&borrowed).await;
        let kept = uid(&fleet.stage, "ConfigMap", "web");
        assert_eq!(remembered(&fleet.stage), BOTH);

        let mark = fleet.stage.mark();
        comes(&fleet, 1, ONE).await;
        goes(&fleet, "Service", "web").await;
        remembers(&fleet, ONE).await;
        assert_eq!(deleted(&fleet, mark), ["services/web"]);
        assert_eq!(uid(&fleet.stage, "ConfigMap", "web"), kept);
        assert!(fleet.stage.find("Service", "foreign").is_some(), "it is nobody's");
        assert!(fleet.stage.find("Service", "borrowed").is_some(), "another made it");
        let watched = watched(&fleet).await;
        assert!(watched.contains(&"configmaps".to_owned()), "{watched:?}");
        assert!(!watched.contains(&"services".to_owned()), "{watched:?}");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_with_a_new_version_prunes_by_the_status() {
        let mut fleet = owning(BOTH, &[config_map("web", "default"), service("web")]).await;
        fleet.stage.host.stop().await.unwrap();
        comes(&fleet, 1, ONE).await;
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        goes(&fleet, "Service", "web").await;
        remembers(&fleet, ONE).await;
        assert_eq!(deleted(&fleet, mark), ["services/web"]);
        fleet.stage.minute().await;

        fleet.stage.host.stop().await.unwrap();
        let mark = fleet.stage.mark();
        fleet.start_host().await;
        fleet.stage.host.settled().await.unwrap();
        let watched = watched(&fleet).await;
        assert!(!watched.contains(&"services".to_owned()), "{watched:?}");
        assert_eq!(fleet.stage.host_writes_since(mark), []);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn writes_of_the_old_version_in_flight_are_awaited_and_pruned() {
        let fleet = running(BOTH).await;
        // Longer than it takes to look once whether anything is left.
        let slow = Rule::new(Fault::Delay(Duration::from_secs(20))).verbs(&["patch"]);
        fleet.stage.simulator().faults().add(slow.resource("services").times(1));
        let mark = fleet.stage.mark();
        let owns = [config_map("web", "default"), service("web")];
        fleet.stage.create(&wish(&owns)).await;
        fleet
            .until("it is made", |stage| stage.find("ConfigMap", "web").is_some())
            .await;
        comes(&fleet, 1, ONE).await;
        remembers(&fleet, ONE).await;
        fleet.stage.minute().await;
        assert!(fleet.stage.find("Service", "web").is_none(), "{}", fleet.log());
        assert_eq!(deleted(&fleet, mark), ["services/web"]);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn objects_of_earlier_versions_are_deleted_with_the_plugin() {
        let mut fleet = owning(BOTH, &[config_map("web", "default"), service("web")]).await;
        fleet.change("it", json!({"deletionPolicy": "Delete"})).await;
        fleet.is_ready("it").await;
        fleet.stage.host.stop().await.unwrap();
        comes(&fleet, 1, ONE).await;
        fleet.delete("it").await;
        fleet.start_host().await;
        fleet.is_gone("it").await;
        assert!(fleet.stage.find("Service", "web").is_none() && fleet.stage.find("ConfigMap", "web").is_none());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_before_comes_back_to_what_it_owned() {
        let fleet = owning(BOTH, &[config_map("web", "default"), service("web")]).await;
        comes(&fleet, 1, ONE).await;
        goes(&fleet, "Service", "web").await;
        comes(&fleet, 0, BOTH).await;
        fleet
            .until("it is made again", |stage| stage.find("Service", "web").is_some())
            .await;
        is_granted(&fleet).await;
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        assert_eq!(deleted(&fleet, mark), [""; 0]);
        assert_eq!(remembered(&fleet.stage), BOTH);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_preview_tells_what_would_go_and_what_is_to_be_kept_stays() {
        let kept = json!({"object": service("kept"), "keep": true});
        let fleet = owning(BOTH, &[config_map("web", "default"), service("web"), kept]).await;
        fleet.put("wisher", "a.wasm", 1);
        let mut spec = configured(ONE);
        spec["mode"] = json!("Preview");
        fleet.change("it", spec).await;
        fleet
            .until("what would go is told", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap();
                plugin["status"]["previews"][0]["changes"] == json!(["Delete Service default/web"])
            })
            .await;
        fleet.stage.minute().await;
        assert!(fleet.stage.find("Service", "web").is_some());
        assert_eq!(remembered(&fleet.stage), BOTH);
        fleet.change("it", json!({"mode": "Active"})).await;
        goes(&fleet, "Service", "web").await;
        remembers(&fleet, ONE).await;
        assert!(fleet.stage.find("Service", "kept").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_that_looks_less_far_prunes_what_it_leaves_outside() {
        let fleet = running(ONE).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}});
        fleet.stage.create(&namespace).await;
        let owns = [config_map("near", "default"), config_map("far", "far")];
        fleet.stage.create(&wish(&owns)).await;
        is_granted(&fleet).await;
        fleet
            .change("it", json!({"configuration": {"places": ["default"]}}))
            .await;
        goes(&fleet, "ConfigMap", "far").await;
        assert!(fleet.stage.find("ConfigMap", "near").is_some());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_forbidden_kind_blocks_nothing_and_is_pruned_once_allowed() {
        let mut fleet = owning(BOTH, &[config_map("web", "default"), service("web")]).await;
        fleet.stage.host.stop().await.unwrap();
        comes(&fleet, 1, ONE).await;
        let forbidden = Fault::Status {
            code: 403,
            retry_after: None,
        };
        let faults = fleet.stage.simulator().faults();
        let rule = faults.add(Rule::new(forbidden).verbs(&["list", "watch"]).resource("services"));
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.create(&renamed("other")).await;
        fleet
            .until("others are reconciled", |stage| stage.is_reconciled("Wish", "other"))
            .await;
        fleet.stage.minute().await;
        assert!(fleet.stage.find("Service", "web").is_some());
        assert_eq!(remembered(&fleet.stage), BOTH);
        fleet.stage.simulator().faults().remove(rule);
        goes(&fleet, "Service", "web").await;
        remembers(&fleet, ONE).await;
        fleet.stage.stop().await;
    }

    fn renamed(name: &str) -> Value {
        let mut wish = wish(&[config_map(name, "default")]);
        wish["metadata"]["name"] = json!(name);
        wish
    }

    /// The definition of a kind that is served in these versions, of which the last one is stored.
    fn trinkets(versions: &[(&str, bool)]) -> Value {
        let (stored, _) = versions[versions.len() - 1];
        let version = |(name, served): &(&str, bool)| {
            let schema = json!({"openAPIV3Schema": {"type": "object"}});
            json!({"name": name, "served": served, "storage": *name == stored, "schema": schema})
        };
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "trinkets.trinkets.test.dev"},
            "spec": {
                "group": "trinkets.test.dev", "scope": "Namespaced",
                "names": {"kind": "Trinket", "listKind": "TrinketList", "plural": "trinkets", "singular": "trinket"},
                "versions": versions.iter().map(version).collect::<Vec<_>>(),
            },
        })
    }

    async fn definitions(fleet: &Fleet) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        Api::all_with(fleet.client().await, &ApiResource::from_gvk(&kind))
    }

    /// A plugin that made an object of a kind that it brings no definition of; its host is stopped, and another version of
    /// it, which does not own that kind, is there.
    async fn left_with_a_trinket() -> Fleet {
        let mut fleet = Fleet::start().await;
        fleet.stage.create(&trinkets(&[("v1alpha1", true)])).await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured(&["ConfigMap", "Trinket"])).await;
        fleet.is_ready("it").await;
        fleet
            .stage
            .create(&wish(&[config_map("web", "default"), trinket()]))
            .await;
        is_granted(&fleet).await;
        assert!(fleet.stage.find("Trinket", "web").is_some());
        fleet.stage.host.stop().await.unwrap();
        comes(&fleet, 1, ONE).await;
        fleet
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_without_a_crd_blocks_nothing_and_is_forgotten() {
        let mut fleet = left_with_a_trinket().await;
        definitions(&fleet)
            .await
            .delete("trinkets.trinkets.test.dev", &DeleteParams::default())
            .await
            .unwrap();
        goes(&fleet, "Trinket", "web").await;
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.create(&renamed("other")).await;
        fleet
            .until("others are reconciled", |stage| stage.is_reconciled("Wish", "other"))
            .await;
        remembers(&fleet, ONE).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_cannot_remember_keeps_no_plugin_from_running() {
        let fleet = Fleet::start().await;
        let refused = Fault::Status {
            code: 422,
            retry_after: None,
        };
        let rule = Rule::new(refused).when(|asked| asked.resource == "plugins" && asked.subresource == "status");
        fleet.stage.simulator().faults().add(rule);
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured(BOTH)).await;
        fleet
            .until("its definitions are there", |stage| {
                stage
                    .find("CustomResourceDefinition", "promises.wishes.test.dev")
                    .is_some()
            })
            .await;
        fleet.stage.create(&wish(&[config_map("web", "default")])).await;
        is_granted(&fleet).await;
        let told = fleet
            .stage
            .lines(&["WARN", "cannot remember which kinds it owns", "install the CRD"]);
        assert_eq!(told.len(), 1, "{}", fleet.log());
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_watches_any_more_keeps_no_object_waiting() {
        let fleet = Fleet::start().await;
        fleet.stage.create(&trinkets(&[("v1alpha1", true), ("v1", true)])).await;
        let silent = Rule::new(Fault::SilentWatch).verbs(&["watch"]).resource("trinkets");
        fleet.stage.simulator().faults().add(silent.times(1));
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured(&["ConfigMap", "Trinket"])).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&wish(&[trinket()])).await;
        is_granted(&fleet).await;
        // It waits to see the Trinket that it made in a version that the next one does not look at.
        comes(&fleet, 1, &["ConfigMap", "NewTrinket"]).await;
        goes(&fleet, "Trinket", "web").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_ends_after_its_watch_holds_no_object() {
        let fleet = Fleet::start().await;
        fleet.stage.create(&trinkets(&[("v1alpha1", true), ("v1", true)])).await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured(&["ConfigMap", "Trinket"])).await;
        fleet.is_ready("it").await;
        // By the time that it has its answer, the next version looks at Trinkets in another form alone.
        let slow = Rule::new(Fault::Delay(Duration::from_secs(20))).verbs(&["patch"]);
        fleet.stage.simulator().faults().add(slow.resource("trinkets").times(1));
        let mark = fleet.stage.mark();
        let owns = [config_map("web", "default"), trinket()];
        fleet.stage.create(&wish(&owns)).await;
        fleet
            .until("it is being made", |stage| stage.find("ConfigMap", "web").is_some())
            .await;
        comes(&fleet, 1, &["ConfigMap", "NewTrinket"]).await;
        // It is made then, and the next version does not want it.
        let gone = |_: &Stage| (deleted(&fleet, mark) == ["trinkets/web"]).then_some(());
        assert!(fleet.stage.until(gone).await.is_some(), "{}", fleet.log());
        let stuck = fleet.stage.host.handle().map(Handle::stuck);
        assert_eq!(stuck, Some(0), "nothing but the end of the watch ends the wait");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_served_in_another_version_is_found_in_that_one() {
        let mut fleet = left_with_a_trinket().await;
        let next = trinkets(&[("v1alpha1", false), ("v1", true)]);
        definitions(&fleet)
            .await
            .patch(
                "trinkets.trinkets.test.dev",
                &PatchParams::default(),
                &Patch::Merge(next),
            )
            .await
            .unwrap();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        goes(&fleet, "Trinket", "web").await;
        remembers(&fleet, ONE).await;
        fleet.stage.stop().await;
    }
}

/// The same on a real API server, whose own ways are the point here: the status that two managers write, the metadata that
/// is listed alone, and the rights of what is deleted.
mod real {
    use kube::Api;
    use kube::api::DynamicObject;
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::{Fleet, condition, until_real};

    async fn plugin_status(fleet: &Fleet) -> Value {
        fleet.plugins().await.get("it").await.unwrap().data["status"].clone()
    }

    async fn is_ready(fleet: &Fleet) {
        until_real("the Plugin is ready", fleet, async || {
            condition(&plugin_status(fleet).await, "Ready")["status"] == "True"
        })
        .await;
    }

    async fn remembered(fleet: &Fleet) -> Vec<Value> {
        let entries = plugin_status(fleet).await["ownedKinds"].take();
        let of_wishes = entries.as_array().into_iter().flatten();
        let of_wishes = of_wishes.filter(|entry| entry["primary"]["kind"] == "Wish");
        of_wishes.map(|entry| entry["kind"]["kind"].clone()).collect()
    }

    #[tokio::test]
    async fn the_next_version_prunes_the_old_ones_objects_at_its_start() {
        let cluster = Cluster::real().await.unwrap();
        let mut fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("wisher", "a.wasm", 0);
        let spec = json!({"source": {"file": "a.wasm"}, "configuration": {"owns": ["ConfigMap", "Service"]}});
        fleet.plugin("it", spec).await;
        is_ready(&fleet).await;
        let metadata = json!({"name": "web", "namespace": "default"});
        let owns = [
            json!({"object": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}}),
            json!({"object": {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": [{"port": 80}]}}}),
        ];
        let wish =
            json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": metadata, "spec": {"owns": owns}});
        fleet.stage.create(&wish).await;
        let client = fleet.client().await;
        let api = |kind: &str| -> Api<DynamicObject> {
            let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
            Api::namespaced_with(client.clone(), "default", &kind)
        };
        let (services, config_maps) = (api("Service"), api("ConfigMap"));
        let is_there = async |api: &Api<DynamicObject>| api.get_opt("web").await.unwrap().is_some();
        until_real("both are made", &fleet, async || {
            is_there(&services).await && is_there(&config_maps).await
        })
        .await;
        assert_eq!(remembered(&fleet).await, ["ConfigMap", "Service"]);

        fleet.stage.host.stop().await.unwrap();
        fleet.put("wisher", "a.wasm", 1);
        fleet
            .change("it", json!({"configuration": {"owns": ["ConfigMap"]}}))
            .await;
        fleet.start_host().await;
        until_real("the Service goes", &fleet, async || !is_there(&services).await).await;
        until_real("the kind is forgotten", &fleet, async || {
            remembered(&fleet).await == ["ConfigMap"]
        })
        .await;
        is_ready(&fleet).await;
        assert!(is_there(&config_maps).await);
        fleet.stage.stop().await;
    }
}
