//! A version that declares another finalizer, or none: the finalizer of the version before is taken off where the host
//! has set it, also from objects that are being deleted, and stays where somebody else has.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const OLD: &str = "wishes.test.dev/old";
    const NEW: &str = "wishes.test.dev/new";
    const THEIRS: &str = "others.test.dev/hold";

    pub(super) fn configured(finalizer: &str) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": {"owns": ["ConfigMap"], "finalizer": finalizer}})
    }

    pub(super) fn promise(name: &str, finalizers: &[&str]) -> Value {
        let kept = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Promise",
            "metadata": {"name": name, "namespace": "default", "finalizers": finalizers},
            "spec": {"holds": true, "owns": [{"object": kept, "lasting": true}]},
        })
    }

    pub(super) async fn promises(fleet: &Fleet) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Promise"));
        Api::namespaced_with(fleet.client().await, "default", &kind)
    }

    async fn running(finalizer: &str) -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured(finalizer)).await;
        fleet.is_ready("it").await;
        fleet
    }

    /// Makes a Promise and waits until it is reconciled.
    async fn made(fleet: &Fleet, name: &str, finalizers: &[&str]) {
        fleet.stage.create(&promise(name, finalizers)).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Promise", name))
            .await;
    }

    async fn delete(fleet: &Fleet, name: &str) {
        let deleted = promises(fleet).await.delete(name, &DeleteParams::default()).await;
        deleted.unwrap();
        fleet.stage.host.settled().await.unwrap();
    }

    /// Lets a Promise go that is being deleted.
    async fn let_go(fleet: &Fleet, name: &str) {
        let patch = Patch::Merge(json!({"spec": {"holds": false}}));
        let patched = promises(fleet).await.patch(name, &PatchParams::default(), &patch).await;
        patched.unwrap();
    }

    fn finalizers(stage: &Stage, name: &str) -> Value {
        stage.find("Promise", name).unwrap_or_default()["metadata"]["finalizers"].clone()
    }

    async fn has(fleet: &Fleet, name: &str, wanted: &Value) {
        let what = format!("the finalizers of {name} are {wanted}");
        fleet.until(&what, |stage| finalizers(stage, name) == *wanted).await;
    }

    async fn goes(fleet: &Fleet, kind: &str, name: &str) {
        let what = format!("{kind} {name} goes");
        fleet.until(&what, |stage| stage.find(kind, name).is_none()).await;
    }

    fn remembered(stage: &Stage) -> Vec<Value> {
        let plugin = stage.find("Plugin", "it").unwrap_or_default();
        let entries = plugin["status"]["finalizers"].as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| entry["finalizer"].clone()).collect()
    }

    async fn remembers(fleet: &Fleet, wanted: &[&str]) {
        fleet
            .until(&format!("it remembers {wanted:?}"), |stage| remembered(stage) == wanted)
            .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_renamed_finalizer_takes_the_place_of_the_old_one() {
        let fleet = running(OLD).await;
        for name in ["living", "going"] {
            made(&fleet, name, &[]).await;
            assert_eq!(finalizers(&fleet.stage, name), json!([OLD]));
        }
        delete(&fleet, "going").await;

        let mark = fleet.stage.mark();
        fleet.change("it", configured(NEW)).await;
        has(&fleet, "living", &json!([NEW])).await;
        fleet.stage.host.settled().await.unwrap();
        let writes = fleet.stage.host_writes_since(mark);
        let of_promises = writes
            .iter()
            .filter(|it| it.resource == "promises" && it.subresource.is_empty());
        assert_eq!(of_promises.count(), 1, "one write changes both: {writes:?}");
        assert_eq!(finalizers(&fleet.stage, "going"), json!([OLD]), "it holds");
        assert!(fleet.stage.find("ConfigMap", "going").is_some());
        assert_eq!(remembered(&fleet.stage), [NEW, OLD]);

        let_go(&fleet, "going").await;
        goes(&fleet, "Promise", "going").await;
        goes(&fleet, "ConfigMap", "going").await;
        remembers(&fleet, &[NEW]).await;

        fleet.change("it", configured(OLD)).await;
        has(&fleet, "living", &json!([OLD])).await;
        remembers(&fleet, &[OLD]).await;
        let mark = fleet.stage.mark();
        fleet.stage.minute().await;
        let mut writes = fleet.stage.host_writes_since(mark);
        writes.retain(|request| request.resource != "plugins");
        assert_eq!(writes, []);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_finalizer_is_taken_off_without_a_call() {
        let mut fleet = running(OLD).await;
        for name in ["living", "going"] {
            made(&fleet, name, &[]).await;
        }
        delete(&fleet, "going").await;
        fleet.stage.host.stop().await.unwrap();
        fleet.change("it", configured("")).await;
        fleet.start_host().await;
        has(&fleet, "living", &Value::Null).await;
        goes(&fleet, "Promise", "going").await;
        goes(&fleet, "ConfigMap", "going").await;
        assert!(fleet.stage.find("ConfigMap", "living").is_some());
        remembers(&fleet, &[]).await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_finalizer_of_others_that_the_status_lists_stays() {
        let fleet = running(OLD).await;
        let primary = json!({"group": "wishes.test.dev", "version": "v1", "kind": "Promise"});
        let listed = [OLD, THEIRS].map(|finalizer| json!({"primary": primary, "finalizer": finalizer}));
        let forged = Patch::Merge(json!({"status": {"finalizers": listed}}));
        let plugins = fleet.plugins().await;
        plugins
            .patch_status("it", &PatchParams::default(), &forged)
            .await
            .unwrap();
        made(&fleet, "both", &[THEIRS]).await;
        assert_eq!(finalizers(&fleet.stage, "both"), json!([THEIRS, OLD]));
        fleet.change("it", configured(NEW)).await;
        has(&fleet, "both", &json!([THEIRS, NEW])).await;

        let patch = Patch::Merge(json!({"spec": {"holds": false}}));
        let promises = promises(&fleet).await;
        promises.patch("both", &PatchParams::default(), &patch).await.unwrap();
        delete(&fleet, "both").await;
        has(&fleet, "both", &json!([THEIRS])).await;
        let warned = |stage: &Stage| {
            let warnings = stage.find("Plugin", "it").unwrap()["status"]["warnings"].to_string();
            warnings.contains(THEIRS) && warnings.contains("pilothouse release")
        };
        fleet.until("the Plugin says what stays", warned).await;
        fleet.stage.minute().await;
        assert_eq!(finalizers(&fleet.stage, "both"), json!([THEIRS]));
        fleet.stage.stop().await;
    }
}

/// The same on a real API server, whose managedFields prove who has set a finalizer.
mod real {
    use kube::api::{DeleteParams, Patch, PatchParams};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::controlplane::Options;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use super::simulated::{configured, promise, promises};
    use crate::fleet::{Fleet, condition, until_real};

    const THEIRS: &str = "others.test.dev/hold";

    async fn is_ready(fleet: &Fleet) {
        until_real("the Plugin is ready", fleet, async || {
            let plugin = fleet.plugins().await.get("it").await.unwrap();
            let ready = condition(&plugin.data["status"], "Ready");
            ready["status"] == "True" && ready["observedGeneration"] == json!(plugin.metadata.generation)
        })
        .await;
    }

    #[tokio::test]
    async fn a_renamed_finalizer_is_exchanged_and_its_object_goes() {
        let cluster = Cluster::real_with(Options::default()).await.unwrap();
        let mut fleet = Fleet::start_with(cluster, HostOptions::default()).await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", configured("wishes.test.dev/old")).await;
        is_ready(&fleet).await;
        let promises = promises(&fleet).await;
        let has = async |name: &str, wanted: &[&str]| {
            let promise = promises.get_opt(name).await.unwrap();
            promise.is_some_and(|promise| promise.metadata.finalizers.unwrap_or_default() == wanted)
        };
        fleet.stage.create(&promise("living", &[THEIRS])).await;
        fleet.stage.create(&promise("going", &[])).await;
        until_real("both have the finalizer", &fleet, async || {
            has("living", &[THEIRS, "wishes.test.dev/old"]).await && has("going", &["wishes.test.dev/old"]).await
        })
        .await;
        promises.delete("going", &DeleteParams::default()).await.unwrap();

        fleet.stage.host.stop().await.unwrap();
        fleet.change("it", configured("wishes.test.dev/new")).await;
        fleet.start_host().await;
        until_real("one takes the place of the other", &fleet, async || {
            has("living", &[THEIRS, "wishes.test.dev/new"]).await
        })
        .await;
        assert!(has("going", &["wishes.test.dev/old"]).await, "it holds");
        let patch = Patch::Merge(json!({"spec": {"holds": false}}));
        promises.patch("going", &PatchParams::default(), &patch).await.unwrap();
        until_real("it goes", &fleet, async || {
            promises.get_opt("going").await.unwrap().is_none()
        })
        .await;
        until_real("the old one is forgotten", &fleet, async || {
            let plugin = fleet.plugins().await.get("it").await.unwrap();
            let entries = plugin.data["status"]["finalizers"].clone();
            let entries = entries.as_array().into_iter().flatten();
            let finalizers: Vec<Value> = entries.map(|entry| entry["finalizer"].clone()).collect();
            finalizers == ["wishes.test.dev/new"]
        })
        .await;
        fleet.stage.stop().await;
    }
}
