//! The host's own resources: a server takes their definitions, fills in the defaults, and prints what one looks for first.

use std::collections::BTreeMap;

use http::Request;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_core::plugin::manifest::BroughtCrd;
use pilothouse_crds::{PluginStatus, plugin_definition};
use serde_json::{Value, json};

fn plugin(name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}, "spec": spec
    });
    serde_json::from_value(object).expect("it is an object")
}

/// Installs the definition; `bad_resources/plugin.yaml` has the resources that it refuses.
async fn installed(client: &Client) -> Api<DynamicObject> {
    let crd = BroughtCrd {
        name: "plugins.pilothouse.dev".to_owned(),
        group: "pilothouse.dev".to_owned(),
        kind: "Plugin".to_owned(),
        definition: plugin_definition(),
    };
    for is_new in [true, false] {
        let written = pilothouse_cluster::resources::install::install_crd(
            client,
            &crd,
            pilothouse_cluster::resources::install::CrdPolicy::Leave,
            None,
        )
        .await;
        assert_eq!(
            written.expect("the server takes it"),
            is_new,
            "nothing is written twice"
        );
    }
    let kind = GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// Returns the output of `kubectl get plugins` for one, by the columns' names.
async fn printed(client: &Client, name: &str) -> BTreeMap<String, Value> {
    let request = Request::get(format!("/apis/pilothouse.dev/v1alpha1/plugins/{name}"))
        .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Vec::new())
        .expect("it is a request");
    let table: Value = client.request(request).await.expect("the server prints it");
    let columns = table["columnDefinitions"].as_array().expect("it has columns").iter();
    let names = columns.map(|column| column["name"].as_str().expect("each has a name").to_owned());
    let cells = table["rows"][0]["cells"].as_array().expect("it has a row");
    names.zip(cells.iter().cloned()).collect()
}

async fn a_plugin_is_defaulted_and_printed_with_what_matters(client: Client) {
    let plugins = installed(&client).await;
    let good = plugin("good", &json!({"source": {"file": "a.wasm"}, "limits": {"reads": 5}}));
    let made = plugins.create(&PostParams::default(), &good).await.expect("it is good");
    assert_eq!(made.data["spec"]["mode"], "Active");
    assert_eq!(made.data["spec"]["limits"]["reads"], 5);
    assert_eq!(made.data["spec"]["limits"]["callMilliseconds"], 100);
    let again = plugins.create(&PostParams::default(), &good).await;
    let taken = again.expect_err("the name is another's");
    assert!(taken.to_string().contains("\"good\" already exists"), "{taken}");

    let digest = format!("sha256:{}", "0".repeat(64));
    let ready = json!({
        "type": "Ready", "status": "False", "reason": "CrashLoop", "message": "it trapped again and again",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = PluginStatus {
        digest: Some(digest.clone()),
        version: Some("1.2.3".to_owned()),
        objects: 7,
        failing: 2,
        conditions: vec![serde_json::from_value(ready).expect("it is a condition")],
        ..PluginStatus::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    let told = plugins.patch_status("good", &PatchParams::default(), &patch).await;
    told.expect("the server keeps it");
    let mut printed = printed(&client, "good").await;
    assert!(printed.remove("Age").is_some_and(|age| age.is_string()));
    let expected = [
        ("Name", json!("good")),
        ("Ready", json!("False")),
        ("Reason", json!("CrashLoop")),
        ("Mode", json!("Active")),
        ("Version", json!("1.2.3")),
        ("Objects", json!(7)),
        ("Failing", json!(2)),
        ("Message", json!("it trapped again and again")),
        ("Digest", json!(digest)),
        ("Artifact", Value::Null),
    ];
    let expected: BTreeMap<_, _> = expected.map(|(name, cell)| (name.to_owned(), cell)).into();
    assert_eq!(printed, expected);
}

mod simulated {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test]
    async fn a_plugin_is_defaulted_and_printed_with_what_matters() {
        let client = Cluster::simulated().client().await.expect("it has a client");
        super::a_plugin_is_defaulted_and_printed_with_what_matters(client).await;
    }
}

mod real {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test]
    async fn a_plugin_is_defaulted_and_printed_with_what_matters() {
        let cluster = Cluster::real().await.expect("a control plane starts");
        super::a_plugin_is_defaulted_and_printed_with_what_matters(cluster.client().await.expect("it has a client"))
            .await;
    }
}
