//! `pilothouse dev --kubeconfig` on a real control plane.

use pilothouse_testkit::cluster::Cluster;
use pilothouse_testkit::scenario::{Objects, Reference};

use super::*;

fn named(api_version: &str, kind: &str, namespace: Option<&str>, name: &str) -> Reference {
    Reference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        namespace: namespace.map(str::to_owned),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_runs_on_a_real_cluster_and_leaves_its_objects() {
    let cluster = Cluster::real().await.unwrap();
    let mut objects = Objects::new(cluster.client().await.unwrap(), "default");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("web.wasm");
    put("app-service", &file, 0);
    let object = OBJECT.replace("NAME", "web").replace("shop", "default");
    fs::write(folder.path().join("sample.yaml"), object).unwrap();
    let kubeconfig = cluster.host_kubeconfig().unwrap();
    let arguments = [
        "web.wasm",
        "--plain",
        "-f",
        "sample.yaml",
        "--kubeconfig",
        kubeconfig.to_str().unwrap(),
    ];
    let mut dev = start(&arguments, folder.path());
    dev.wait_for(&["the cluster of the kubeconfig"]);
    dev.wait_for(&["build", "runs,"]);
    dev.wait_for(&["applied sample.yaml"]);
    dev.wait_for(&["Deployment default/web was made for AppService default/web"]);
    let plugin = named("pilothouse.dev/v1alpha1", "Plugin", None, "web-dev");
    assert!(
        objects.find(&plugin).await.unwrap().is_some(),
        "it runs as a Plugin of its own"
    );

    put("app-service", &file, 1);
    dev.wait_for(&["runs,", "ms after it was saved"]);
    dev.wait_for(&["AppService default/web: a new version of the plugin; nothing to change"]);

    assert_eq!(dev.interrupt(), Some(0));
    assert_eq!(
        objects.find(&plugin).await.unwrap(),
        None,
        "no host would find its component"
    );
    let deployment = named("apps/v1", "Deployment", Some("default"), "web");
    assert!(objects.find(&deployment).await.unwrap().is_some(), "the objects stay");
}
