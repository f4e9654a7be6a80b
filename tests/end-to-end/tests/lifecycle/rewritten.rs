//! Values that change though their fields are still ours: somebody applies under our field manager, or a mutating webhook
//! changes what the host applies.

mod simulated {
    use kube::Api;
    use kube::api::{DeleteParams, Patch, PatchParams};
    use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
    use pilothouse_end_to_end::stage::Stage;
    use pilothouse_simulator::{Fault, Rewrite, Rule, RuleId};
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

    /// Applies the Deployment as our manager has, but with this image: the field stays ours.
    async fn apply_as_host(fleet: &Fleet, image: &str) {
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(fleet.client().await, "default");
        let web = fleet.stage.find("Deployment", "web").unwrap();
        let mut body = wish()["spec"]["owns"][0]["object"].clone();
        body["metadata"]["annotations"] = web["metadata"]["annotations"].clone();
        body["metadata"]["ownerReferences"] = web["metadata"]["ownerReferences"].clone();
        body["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image);
        let forged = PatchParams::apply("pilothouse/it").force();
        api.patch("web", &forged, &Patch::Apply(body)).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_applied_under_our_manager_is_set_back() {
        let fleet = owning().await;
        apply_as_host(&fleet, "evil:9").await;
        fleet.until("the image is ours", |stage| image(stage) == "web:1").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_applied_during_downtime_is_reverted_at_start() {
        let mut fleet = owning().await;
        fleet.stage.host.stop().await.unwrap();
        apply_as_host(&fleet, "evil:9").await;
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

    /// A webhook changes Deployments that anybody writes.
    fn rewrite(fleet: &Fleet, change: impl Fn(&mut Value) + Send + Sync + 'static) -> RuleId {
        let rule = Rule::new(Fault::Rewritten(Rewrite::new(change))).resource("deployments");
        fleet.stage.simulator().faults().add(rule)
    }

    fn to_evil(web: &mut Value) {
        web["spec"]["template"]["spec"]["containers"][0]["image"] = json!("evil:9");
    }

    fn without_digest(web: &mut Value) {
        let annotations = web["metadata"]["annotations"].as_object_mut();
        annotations.map(|annotations| annotations.remove("pilothouse.dev/desired"));
    }

    fn without_owner(web: &mut Value) {
        web["metadata"]
            .as_object_mut()
            .map(|metadata| metadata.remove("ownerReferences"));
    }

    /// The message of the condition while the server stores other values than were applied.
    fn rewritten(stage: &Stage) -> Option<String> {
        let reconciled = stage.reconciled("Wish", "it")?;
        let is_told = reconciled["status"] == "True" && reconciled["reason"] == "Rewritten";
        is_told.then(|| reconciled["message"].as_str().unwrap_or_default().to_owned())
    }

    /// The writes of Deployments in two resyncs, after a restart, and with an edit of something else beside.
    async fn applies(fleet: &mut Fleet) -> [usize; 3] {
        let mut counts = [0; 3];
        for count in &mut counts[..2] {
            let begun = fleet.stage.mark();
            fleet.stage.host.resync().await.unwrap();
            fleet.stage.minute().await;
            *count = writes(fleet, begun);
        }
        fleet.stage.host.stop().await.unwrap();
        let begun = fleet.stage.mark();
        fleet.start_host().await;
        fleet.is_ready("it").await;
        fleet.stage.minute().await;
        counts[2] = writes(fleet, begun);
        counts
    }

    async fn wishes(fleet: &Fleet) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("wishes.test.dev", "v1", "Wish"), "wishes");
        Api::namespaced_with(fleet.client().await, "default", &kind)
    }

    fn writes(fleet: &Fleet, begun: pilothouse_testkit::cluster::Mark) -> usize {
        let written = fleet.stage.host_writes_since(begun);
        written.iter().filter(|write| write.resource == "deployments").count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_rewriting_webhook_is_named_and_reverted_once_gone() {
        let mut fleet = owning().await;
        let rule = rewrite(&fleet, to_evil);
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(fleet.client().await, "default");
        let label = json!({"metadata": {"labels": {"touched": "yes"}}});
        api.patch("web", &PatchParams::default(), &Patch::Merge(label))
            .await
            .unwrap();
        fleet
            .until("it is told", |stage| {
                rewritten(stage)
                    .is_some_and(|told| told.contains("image of Deployment default/web is evil:9 in place of web:1"))
            })
            .await;
        assert_eq!(applies(&mut fleet).await, [1; 3]);
        assert_eq!(fleet.stage.events("it", "Rewritten").len(), 1);
        fleet.stage.simulator().faults().remove(rule);
        fleet.stage.host.resync().await.unwrap();
        fleet
            .until("the image is ours, and all is well", |stage| {
                image(stage) == "web:1" && stage.is_reconciled("Wish", "it") && rewritten(stage).is_none()
            })
            .await;
        assert_eq!(applies(&mut fleet).await, [0; 3]);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_rewritten_value_fixed_by_another_host_is_not_reported() {
        let fleet = owning().await;
        let rule = rewrite(&fleet, to_evil);
        let touched = Patch::Merge(json!({"metadata": {"labels": {"touched": "yes"}}}));
        let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(fleet.client().await, "default");
        api.patch("web", &PatchParams::default(), &touched).await.unwrap();
        fleet.until("it is told", |stage| rewritten(stage).is_some()).await;
        fleet.stage.simulator().faults().remove(rule);
        apply_as_host(&fleet, "web:1").await;
        fleet
            .until("all is well", |stage| {
                stage.is_reconciled("Wish", "it") && rewritten(stage).is_none()
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_webhook_that_strips_annotations_costs_an_apply_per_resync() {
        let mut fleet = owning().await;
        rewrite(&fleet, without_digest);
        fleet.stage.host.stop().await.unwrap();
        let mut wish = wish();
        wish["spec"]["owns"][0]["object"]["spec"]["replicas"] = json!(2);
        let api = wishes(&fleet).await;
        api.patch("it", &PatchParams::default(), &Patch::Merge(wish))
            .await
            .unwrap();
        fleet.start_host().await;
        fleet
            .until("it is told", |stage| {
                rewritten(stage)
                    .is_some_and(|told| told.contains("pilothouse.dev/desired of Deployment default/web is absent"))
            })
            .await;
        assert_eq!(applies(&mut fleet).await, [1; 3]);
        assert_eq!(fleet.stage.find("Deployment", "web").unwrap()["spec"]["replicas"], 2);
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn children_with_stripped_owner_references_are_still_ours() {
        let mut fleet = Fleet::start().await;
        rewrite(&fleet, without_owner);
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", json!({"source": {"file": "a.wasm"}})).await;
        fleet.is_ready("it").await;
        for is_restarted in [false, true] {
            fleet.stage.create(&wish()).await;
            fleet
                .until("it is told", |stage| {
                    rewritten(stage).is_some_and(|told| told.contains("ownerReferences"))
                })
                .await;
            if is_restarted {
                assert_eq!(applies(&mut fleet).await, [1; 3]);
            }
            let stripped = fleet.stage.find("Deployment", "web").unwrap();
            assert!(stripped["metadata"]["ownerReferences"].is_null());
            let api = wishes(&fleet).await;
            let mut other = wish();
            other["spec"]["owns"][0]["object"]["metadata"]["name"] = json!("other");
            api.patch("it", &PatchParams::default(), &Patch::Merge(other))
                .await
                .unwrap();
            fleet
                .until("the child that is not desired any more is pruned", |stage| {
                    stage.find("Deployment", "other").is_some() && stage.find("Deployment", "web").is_none()
                })
                .await;
            api.delete("it", &DeleteParams::default()).await.unwrap();
            fleet
                .until("the child is gone", |stage| stage.find("Deployment", "other").is_none())
                .await;
        }
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_forged_as_stripped_in_another_namespace_stays() {
        let mut fleet = owning().await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
        fleet.stage.create(&namespace).await;
        let web = fleet.stage.find("Deployment", "web").unwrap();
        let mut forged = web.clone();
        let metadata = &mut forged["metadata"];
        metadata["name"] = json!("forged");
        for member in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "ownerReferences",
            "generation",
        ] {
            metadata.as_object_mut().unwrap().remove(member);
        }
        let client = fleet.client().await;
        for (namespace, is_ours) in [("other", false), ("default", true)] {
            forged["metadata"]["namespace"] = json!(namespace);
            let api: Api<k8s_openapi::api::apps::v1::Deployment> = Api::namespaced(client.clone(), namespace);
            let made = serde_json::from_value(forged.clone()).unwrap();
            let made = api.create(&kube::api::PostParams::default(), &made).await.unwrap();
            let entries = made.metadata.managed_fields.unwrap();
            assert!(
                entries
                    .iter()
                    .any(|entry| entry.manager.as_deref() == Some("pilothouse/it")),
                "{entries:?}"
            );
            fleet.stage.host.resync().await.unwrap();
            fleet.stage.minute().await;
            assert_eq!(
                api.get_opt("forged").await.unwrap().is_none(),
                is_ours,
                "in {namespace}"
            );
        }
        fleet.stage.stop().await;
    }
}
