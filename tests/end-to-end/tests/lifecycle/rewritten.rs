//! Values that change though their fields are still ours: somebody applies under our field manager.

mod simulated {
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_testkit::host::SteeredHost as _;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    fn wish() -> Value {
        let resources = json!({"limits": {"cpu": "1000m"}});
        let container = json!({"name": "web", "image": "web:1", "resources": resources});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"replicas": 1, "selector": {"matchLabels": {"run": "web"}},
                "template": {"metadata": {"labels": {"run": "web"}}, "spec": {"containers": [container]}}}});
        json!({"apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": "it", "namespace": "default"},
            "spec": {"owns": [{"object": deployment}]}})
    }

    async fn owning() -> Fleet {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        fleet.stage.create(&wish()).await;
        fleet
            .until("it is reconciled", |stage| stage.is_reconciled("Wish", "it"))
            .await;
        fleet
    }

    fn image(stage: &Stage) -> Value {
        let web = stage.find("Deployment", "web").unwrap();
        web["spec"]["template"]["spec"]["containers"][0]["image"].clone()
    }

    /// Applies the Deployment as our manager has, but with another image: the field stays ours.
    async fn forge(fleet: &Fleet) {
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(fleet.client().await, "default");
        let web = fleet.stage.find("Deployment", "web").unwrap();
        let mut body = wish()["spec"]["owns"][0]["object"].clone();
        body["metadata"]["annotations"] = web["metadata"]["annotations"].clone();
        body["metadata"]["ownerReferences"] = web["metadata"]["ownerReferences"].clone();
        body["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:9");
        let forged = PatchParams::apply("pilothouse/it").force();
        api.patch("web", &forged, &Patch::Apply(body)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_applied_under_our_manager_is_set_back() {
        let fleet = owning().await;
        forge(&fleet).await;
        fleet.until("the image is ours", |stage| image(stage) == "web:1").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_applied_while_no_host_ran_is_set_back_after_the_start() {
        let mut fleet = owning().await;
        fleet.stage.host.stop().await.unwrap();
        forge(&fleet).await;
        assert_eq!(image(&fleet.stage), "evil:9");
        fleet.start_host().await;
        fleet.until("the image is ours", |stage| image(stage) == "web:1").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_quantity_in_another_form_is_not_applied_again() {
        let mut fleet = owning().await;
        let web = fleet.stage.find("Deployment", "web").unwrap();
        let limits = &web["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"];
        assert_eq!(limits["cpu"], "1", "the server writes the quantity in its own form");
        fleet.stage.host.stop().await.unwrap();
        let begun = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.minute().await;
        let mut applied = fleet.stage.host_writes_since(begun);
        applied.retain(|write| write.resource == "deployments");
        assert!(applied.is_empty(), "{applied:?}");
        fleet.stage.stop().await;
    }
}
