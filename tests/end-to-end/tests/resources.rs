//! The host's own resources: a server takes their definitions, fills in the defaults and refuses bad input by the field's
//! name.

use kube::api::{DynamicObject, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use pilothouse_core::manifest::BroughtCrd;
use pilothouse_crds::plugin_definition;
use serde_json::{Value, json};

fn plugin(name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "apiVersion": "pilothouse.dev/v1alpha1", "kind": "Plugin", "metadata": {"name": name}, "spec": spec
    });
    serde_json::from_value(object).expect("it is an object")
}

async fn a_plugin_is_defaulted_or_refused(client: Client) {
    let crd = BroughtCrd {
        name: "plugins.pilothouse.dev".to_owned(),
        group: "pilothouse.dev".to_owned(),
        kind: "Plugin".to_owned(),
        definition: plugin_definition(),
    };
    assert!(
        pilothouse_cluster::install::install_crd(&client, &crd)
            .await
            .expect("the server takes it")
    );
    assert!(
        !pilothouse_cluster::install::install_crd(&client, &crd)
            .await
            .expect("it is there"),
        "nothing is written twice"
    );

    let kind = GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin");
    let plugins: Api<DynamicObject> = Api::all_with(client, &ApiResource::from_gvk(&kind));
    let made = plugins
        .create(
            &PostParams::default(),
            &plugin("good", &json!({"source": {"file": "a.wasm"}, "limits": {"reads": 5}})),
        )
        .await
        .expect("it is good");
    assert_eq!(made.data["spec"]["mode"], "Active");
    assert_eq!(made.data["spec"]["limits"]["reads"], 5);
    assert_eq!(made.data["spec"]["limits"]["callMilliseconds"], 100);

    let source = json!({"file": "a.wasm"});
    let bad = [
        (json!({}), "spec.source"),
        (json!({"source": {}}), "give either file or oci"),
        (json!({"source": {"file": "a", "oci": "b"}}), "give either file or oci"),
        (
            json!({"source": {"oci": "a", "digest": "sha256:1"}}),
            "spec.source.digest",
        ),
        (json!({"source": source, "mode": "Sleepy"}), "spec.mode"),
        (json!({"source": source, "concurrency": 0}), "spec.concurrency"),
        (
            json!({"source": source, "deletionPolicy": "delete"}),
            "spec.deletionPolicy",
        ),
        (json!({"source": source, "namespaces": ["a", "a"]}), "spec.namespaces"),
        (
            json!({"source": source, "limits": {"reads": "many"}}),
            "spec.limits.reads",
        ),
    ];
    for (spec, field) in bad {
        let error = plugins
            .create(&PostParams::default(), &plugin("bad", &spec))
            .await
            .expect_err(&spec.to_string());
        assert!(error.to_string().contains(field), "{spec}: {error}");
    }
}

mod simulated {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test]
    async fn a_plugin_is_defaulted_or_refused() {
        let client = Cluster::simulated().client().await.expect("it has a client");
        super::a_plugin_is_defaulted_or_refused(client).await;
    }
}

mod real {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test]
    async fn a_plugin_is_defaulted_or_refused() {
        let cluster = Cluster::real().await.expect("a control plane starts");
        super::a_plugin_is_defaulted_or_refused(cluster.client().await.expect("it has a client")).await;
    }
}
