//! A cluster that has no host yet.

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use pilothouse_end_to_end::program::component;
use pilothouse_testkit::cluster::Cluster;
use serde_json::json;

use crate::support::command;

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_without_a_host_is_told_what_comes_first() {
    let cluster = Cluster::simulated_over_http().await.unwrap();
    let client = cluster.client().await.unwrap();
    let kubeconfig = cluster.host_kubeconfig().unwrap().display().to_string();
    let arguments = ["install", &component("app-service"), "--yes"];
    let (code, _, said) = command(&arguments, &kubeconfig).await;
    assert_eq!(code, 1);
    assert!(
        said.contains("there is no namespace pilothouse-system; create it"),
        "{said}"
    );
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "pilothouse-system"}})).unwrap();
    let _ = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let (code, _, said) = command(&arguments, &kubeconfig).await;
    assert_eq!(code, 1);
    let words =
        "does not serve pilothouse.dev/v1alpha1 Plugin; install the host's CRD first: run the host with --install-crds";
    assert!(said.contains(words), "{said}");
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    let found = definitions.get_opt("appservices.kosmos.io").await.unwrap();
    assert!(found.is_none(), "nothing was applied");
    let (code, printed, said) = command(&["uninstall", "any", "--yes"], &kubeconfig).await;
    assert_eq!((code, printed.contains("there is no Plugin any")), (0, true), "{said}");
}
