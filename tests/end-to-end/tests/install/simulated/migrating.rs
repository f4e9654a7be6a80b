//! `pilothouse migrate-storage` on a cluster whose objects are not converted: what it finds, and when it trims.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use pilothouse_simulator::{Fault, Rule};
use pilothouse_testkit::cluster::Cluster;
use serde_json::{Value, json};

use crate::support::command;

pub fn definition(storage: &str) -> Value {
    let version = |name: &str| {
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        json!({"name": name, "served": true, "storage": name == storage, "schema": {"openAPIV3Schema": schema}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "sites.migrated.dev"},
        "spec": {
            "group": "migrated.dev", "scope": "Namespaced",
            "names": {"kind": "Site", "listKind": "SiteList", "plural": "sites", "singular": "site", "shortNames": ["st"]},
            "versions": [version("v1"), version("v2")],
        },
    })
}

struct Sites {
    cluster: Cluster,
    kubeconfig: String,
}

impl Sites {
    /// Three Sites that were stored in v1, of which v2 is the storage version now.
    async fn new() -> Self {
        let cluster = Cluster::simulated_over_http().await.unwrap();
        let kubeconfig = cluster.host_kubeconfig().unwrap().display().to_string();
        let sites = Self { cluster, kubeconfig };
        let definition_of = |storage| serde_json::from_value(definition(storage)).unwrap();
        let definitions = sites.definitions().await;
        definitions
            .create(&PostParams::default(), &definition_of("v1"))
            .await
            .unwrap();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("migrated.dev", "v1", "Site"));
        let api: Api<DynamicObject> = Api::namespaced_with(sites.cluster.client().await.unwrap(), "default", &kind);
        for name in ["a", "b", "c"] {
            let site = json!({"apiVersion": "migrated.dev/v1", "kind": "Site", "metadata": {"name": name}});
            let site = serde_json::from_value(site).unwrap();
            api.create(&PostParams::default(), &site).await.unwrap();
        }
        let next = Patch::Merge(definition("v2"));
        let moved = definitions
            .patch("sites.migrated.dev", &PatchParams::default(), &next)
            .await;
        moved.unwrap();
        assert_eq!(sites.stored().await, json!(["v1", "v2"]));
        sites
    }

    async fn definitions(&self) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
        Api::all_with(self.cluster.client().await.unwrap(), &ApiResource::from_gvk(&kind))
    }

    async fn stored(&self) -> Value {
        let found = self.definitions().await.get("sites.migrated.dev").await.unwrap();
        found.data["status"]["storedVersions"].clone()
    }

    async fn migrate(&self, arguments: &[&str]) -> (i32, String, String) {
        command(&[&["migrate-storage"], arguments].concat(), &self.kubeconfig).await
    }

    fn fault(&self, code: u16, name: &'static str, times: u32) {
        let fault = Fault::Status {
            code,
            retry_after: None,
        };
        let rule = Rule::new(fault).when(move |asked| asked.verb == "patch" && asked.name.as_deref() == Some(name));
        let Cluster::Simulated(simulated) = &self.cluster else {
            panic!("the cluster is simulated")
        };
        simulated.simulator().faults().add(rule.times(times));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_rewritten_and_stored_versions_trimmed() {
    let sites = Sites::new().await;
    let (code, printed, said) = sites.migrate(&["st", "--dry-run"]).await;
    assert_eq!(code, 3, "{printed}{said}");
    for words in [
        "sites.migrated.dev: objects may be stored in v1; the storage version is v2",
        "would rewrite 3 objects, 20 in a second, and then remove v1 from status.storedVersions",
    ] {
        assert!(printed.contains(words), "{printed}");
    }
    assert_eq!(sites.stored().await, json!(["v1", "v2"]));

    // One object is busy, and one is deleted meanwhile.
    sites.fault(409, "a", 1);
    sites.fault(503, "b", 1);
    let (code, printed, said) = sites
        .migrate(&["sites.migrated.dev", "-o", "json", "--rate", "1000"])
        .await;
    assert_eq!(code, 0, "{printed}{said}");
    let document: Value = serde_json::from_str(&printed).unwrap();
    let sum = ["rewritten", "unchanged", "deleted"].map(|member| document[member].as_u64().unwrap());
    assert_eq!(sum.iter().sum::<u64>(), 3, "{document}");
    assert_eq!((&document["failed"], &document["trimmed"]), (&json!([]), &json!(true)));
    assert_eq!(sites.stored().await, json!(["v2"]));

    let (code, printed, _) = sites.migrate(&["Site"]).await;
    assert_eq!(code, 0);
    assert!(
        printed.contains("nothing is due: objects of sites.migrated.dev are stored in v2 alone"),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_versions_stay_where_an_object_is_not_rewritten() {
    let sites = Sites::new().await;
    sites.fault(422, "b", 1);
    let (code, printed, said) = sites.migrate(&["sites"]).await;
    assert_eq!(code, 1, "{printed}{said}");
    assert!(said.contains("cannot rewrite Site default/b: "), "{said}");
    let words = "1 object was not rewritten, so status.storedVersions of CRD sites.migrated.dev stays";
    assert!(said.contains(words), "{said}");
    assert_eq!(sites.stored().await, json!(["v1", "v2"]));

    // The CRD changes again and again.
    sites.fault(409, "sites.migrated.dev", 100);
    let (code, _, said) = sites.migrate(&["sites"]).await;
    assert_eq!(code, 1);
    assert!(said.contains("CRD sites.migrated.dev was changed meanwhile"), "{said}");
    assert_eq!(sites.stored().await, json!(["v1", "v2"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_means_no_crd_is_answered_with_those_due() {
    let sites = Sites::new().await;
    for called in ["deployments", "sites.other.dev", ""] {
        let (code, _, said) = sites.migrate(&[called]).await;
        assert_eq!(code, 1, "{said}");
        let words = format!("no CRD defines a kind that is called {called}");
        assert!(
            said.contains(&words) && said.contains("due are sites.migrated.dev"),
            "{said}"
        );
    }
    let mut twin = definition("v1");
    twin["metadata"]["name"] = json!("sites.twin.dev");
    twin["spec"]["group"] = json!("twin.dev");
    let definitions = sites.definitions().await;
    let twin = serde_json::from_value(twin).unwrap();
    definitions.create(&PostParams::default(), &twin).await.unwrap();
    let (code, _, said) = sites.migrate(&["site"]).await;
    assert_eq!(code, 1);
    assert!(
        said.contains("site may be sites.migrated.dev or sites.twin.dev; write one of these"),
        "{said}"
    );
    for rate in ["0", "1001", "fast"] {
        let (code, _, said) = sites.migrate(&["sites.twin.dev", "--rate", rate]).await;
        assert_eq!(code, 2, "{said}");
    }
}
