//! Tests that a version with other CRDs than the cluster's waits until a user applies them, where the host does not
//! install CRDs.

mod simulated {
    use std::time::Duration;

    use kube::Api;
    use kube::api::{DynamicObject, Patch, PatchParams};
    use kube::core::{ApiResource, GroupVersionKind};
    use pilothouse_end_to_end::host::RuntimeHost;
    use pilothouse_end_to_end::stage::{Stage, unhurried};
    use pilothouse_runtime::HostOptions;
    use pilothouse_testkit::cluster::Cluster;
    use pilothouse_testkit::host::SteeredHost as _;
    use pilothouse_testkit::requests::HOST_ACCOUNT;
    use serde_json::{Value, json};

    use crate::fleet::Fleet;

    const NAME: &str = "wishes.wishes.test.dev";

    /// The definition of Wishes, whose spec describes these members besides what it takes anyway.
    fn wishes(members: &[&str]) -> Value {
        let properties = members
            .iter()
            .map(|member| ((*member).to_owned(), json!({"type": "string"})));
        let properties: serde_json::Map<String, Value> = properties.collect();
        let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": NAME},
            "spec": {
                "group": "wishes.test.dev", "scope": "Namespaced", "preserveUnknownFields": false,
                "names": {"kind": "Wish", "plural": "wishes", "singular": "wish"},
                "versions": [{
                    "name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": status}}},
                }],
            },
        })
    }

    /// The configuration of a version that brings this definition.
    fn bringing(crd: &Value) -> Value {
        json!({"source": {"file": "a.wasm"}, "configuration": {"steers": ["Wish"], "crds": [crd.to_string()]}})
    }

    fn wish(name: &str) -> Value {
        let object =
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": "default"}});
        json!({
            "apiVersion": "wishes.test.dev/v1", "kind": "Wish", "metadata": {"name": name, "namespace": "default"},
            "spec": {"owns": [{"object": object}]},
        })
    }

    /// A host that installs no CRDs, and the definition of Plugins.
    async fn fleet() -> Fleet {
        let mut fleet = Fleet::start().await;
        fleet.stage.host.stop().await.unwrap();
        fleet.stage.host.install_no_crds();
        fleet.start_host().await;
        fleet.put("wisher", "a.wasm", 0);
        fleet
    }

    /// Applies a definition as another user.
    async fn apply(fleet: &Fleet, crd: &Value) {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        let definitions: Api<DynamicObject> = Api::all_with(fleet.client().await, &ApiResource::from_gvk(&kind));
        let by = PatchParams::apply("admin").force();
        definitions.patch(NAME, &by, &Patch::Apply(crd)).await.unwrap();
    }

    fn message(condition: &Value) -> &str {
        condition["message"].as_str().unwrap_or_default()
    }

    /// Uses the chart's rights of a host that installs its own CRD.
    #[tokio::test(start_paused = true)]
    async fn a_host_that_installs_only_its_own_crd_waits_for_others() {
        let mut host = RuntimeHost::new(HostOptions::default(), unhurried());
        host.install_own_crd();
        // It waits for the CRD of Plugin.
        let fleet = Fleet::start_host_with(Cluster::simulated(), host).await;
        fleet.put("wisher", "a.wasm", 0);
        fleet.plugin("it", bringing(&wishes(&["color"]))).await;
        fleet.says("it", "Established", "False", "CrdMissing").await;
        assert_eq!(fleet.stage.find("CustomResourceDefinition", NAME), None);
        apply(&fleet, &wishes(&["color"])).await;
        fleet.is_ready("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_version_waits_for_its_crds_while_the_old_one_goes_on() {
        let fleet = fleet().await;
        apply(&fleet, &wishes(&["color"])).await;
        fleet.plugin("it", bringing(&wishes(&["color"]))).await;
        fleet.is_ready("it").await;
        fleet.change("it", bringing(&wishes(&["color", "size"]))).await;
        let said = fleet.says("it", "Ready", "True", "PreviousVersion").await;
        for words in [
            "the version before goes on: CRD wishes.wishes.test.dev in the cluster is not the one that this version brings",
            "spec.versions[v1].schema.openAPIV3Schema.properties.spec.properties.size is missing",
            "`pilothouse upgrade it=a.wasm`",
        ] {
            assert!(message(&said).contains(words), "{words}: {said}");
        }
        let mark = fleet.stage.mark();
        fleet.stage.create(&wish("meanwhile")).await;
        fleet
            .until("the old version goes on", |stage| {
                stage.is_reconciled("Wish", "meanwhile")
            })
            .await;
        for _ in 0..20 {
            fleet.stage.minute().await;
        }
        assert_eq!(fleet.condition("it", "Ready")["reason"], "PreviousVersion");
        fleet.says("it", "Reconciling", "True", "CrdDiffers").await;
        assert_eq!(fleet.status("it")["observedGeneration"], 1, "it is not decided");
        let requests = fleet.stage.cluster.requests_since(mark).unwrap();
        let of_crds = |request: &&pilothouse_testkit::requests::Request| {
            request.is_by_host() && request.resource == "customresourcedefinitions"
        };
        let asked: Vec<_> = requests.iter().filter(of_crds).collect();
        assert!(
            asked.len() <= 40,
            "{} requests about CRDs in twenty minutes",
            asked.len()
        );
        assert!(
            asked.iter().all(|request| !request.is_write()),
            "the host installs nothing: {asked:#?}"
        );

        // What the cluster has besides does not matter, and the change is seen at once.
        apply(&fleet, &wishes(&["color", "more", "size"])).await;
        let begun = tokio::time::Instant::now();
        fleet.is_ready("it").await;
        assert!(begun.elapsed() <= Duration::from_secs(5), "{:?}", begun.elapsed());
        fleet.stage.create(&wish("afterwards")).await;
        fleet
            .until("the new version works", |stage| {
                stage.is_reconciled("Wish", "afterwards")
            })
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_runs_with_a_crd_that_accepts_more() {
        let fleet = fleet().await;
        let limited = |length: u64| {
            let mut crd = wishes(&["color"]);
            let color = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color";
            crd.pointer_mut(color).unwrap()["maxLength"] = json!(length);
            crd
        };
        apply(&fleet, &limited(20)).await;
        fleet.plugin("it", bringing(&limited(10))).await;
        fleet.is_ready("it").await;
        fleet.change("it", bringing(&limited(30))).await;
        let said = fleet.says("it", "Ready", "True", "PreviousVersion").await;
        assert!(
            message(&said).contains("properties.color.maxLength is 20 and not 30"),
            "{said}"
        );
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_installs_crds_leaves_a_superset() {
        let fleet = Fleet::start().await;
        fleet.put("wisher", "a.wasm", 0);
        let strict = |members: &[&str]| {
            let mut crd = wishes(members);
            let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
            let spec = crd.pointer_mut(spec).unwrap().as_object_mut().unwrap();
            spec.remove("x-kubernetes-preserve-unknown-fields");
            crd
        };
        fleet.plugin("it", bringing(&strict(&["color", "size"]))).await;
        fleet.is_ready("it").await;
        fleet.change("it", bringing(&strict(&["color"]))).await;
        fleet
            .until("the version before returns", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap_or_default();
                plugin["status"]["runningGeneration"] == 2
            })
            .await;
        let crd = fleet.stage.find("CustomResourceDefinition", NAME).unwrap();
        let size = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size";
        assert!(crd.pointer(size).is_some(), "{crd}");
        let plugin = fleet.stage.find("Plugin", "it").unwrap();
        assert_eq!(plugin["status"]["crds"], json!([NAME]));
        assert_eq!(plugin["status"]["history"][0]["reason"], "Installed");
        assert_eq!(plugin["status"]["history"][0]["file"], "a.wasm");
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_first_version_that_waits_for_crds_keeps_the_host_ready() {
        let fleet = fleet().await;
        fleet.plugin("it", bringing(&wishes(&["color"]))).await;
        let said = fleet.says("it", "Established", "False", "CrdMissing").await;
        assert!(
            message(&said).contains("CRD wishes.wishes.test.dev, which the plugin brings, is not installed")
                && message(&said).contains("`pilothouse upgrade it=a.wasm`"),
            "{said}"
        );
        fleet.says("it", "Ready", "False", "CrdMissing").await;
        let missing = |stage: &Stage| stage.host.handle().unwrap().missing_for_readiness();
        assert_eq!(missing(&fleet.stage), Vec::<String>::new());
        apply(&fleet, &wishes(&["other"])).await;
        let said = fleet.says("it", "Established", "False", "CrdDiffers").await;
        assert!(message(&said).contains("properties.color is missing"), "{said}");
        fleet.stage.create(&wish("early")).await;
        fleet.stage.minute().await;
        assert!(fleet.stage.find("ConfigMap", "early").is_none(), "nothing of it runs");
        apply(&fleet, &wishes(&["color"])).await;
        fleet.is_ready("it").await;
        fleet
            .until("it works", |stage| stage.find("ConfigMap", "early").is_some())
            .await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_plugin_that_waits_for_a_crd_can_be_changed_and_deleted() {
        let fleet = fleet().await;
        apply(&fleet, &wishes(&["color"])).await;
        fleet.plugin("it", bringing(&wishes(&["size"]))).await;
        fleet.says("it", "Established", "False", "CrdDiffers").await;
        fleet.change("it", bringing(&wishes(&["color"]))).await;
        fleet.is_ready("it").await;
        fleet.change("it", bringing(&wishes(&["size"]))).await;
        fleet.says("it", "Ready", "True", "PreviousVersion").await;
        fleet.delete("it").await;
        fleet.is_gone("it").await;
        fleet.stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_may_not_see_crds_runs_the_plugin_and_says_so() {
        let fleet = fleet().await;
        let rights = fleet.stage.simulator().rights();
        rights.deny(|asked| asked.user_agent == HOST_ACCOUNT && asked.resource == "customresourcedefinitions");
        apply(&fleet, &wishes(&[])).await;
        fleet.plugin("it", bringing(&wishes(&["color"]))).await;
        fleet.is_ready("it").await;
        let words = "get customresourcedefinitions.apiextensions.k8s.io named wishes.wishes.test.dev";
        fleet
            .until("it is told", |stage| {
                let plugin = stage.find("Plugin", "it").unwrap_or_default();
                plugin["status"]["warnings"].to_string().contains(words)
            })
            .await;
        fleet.stage.stop().await;
    }
}
