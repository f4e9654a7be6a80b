//! `pilothouse release` on a cluster: it frees what it is told to free of a finalizer that nobody serves any more, and
//! nothing else.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::path::Path;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::DeleteParams;
use kube::{Api, Client};
use pilothouse_end_to_end::program::ended;
use pilothouse_end_to_end::stage::create;
use pilothouse_testkit::cluster::Cluster;
use serde_json::{Value, json};

const LOST: &str = "lost.test.dev/finalizer";
const KEPT: &str = "kept.test.dev/finalizer";

fn held(kind: &str, namespace: &str, name: &str, finalizers: &[&str]) -> Value {
    let metadata = json!({"name": name, "namespace": namespace, "finalizers": finalizers});
    json!({"apiVersion": "v1", "kind": kind, "metadata": metadata})
}

/// Runs the command, which must succeed, and returns its output.
async fn release(kubeconfig: &Path, more: &[&str]) -> String {
    let (code, printed, said) = run(kubeconfig, more).await;
    assert_eq!((code, said.as_str()), (0, ""), "{printed}");
    printed
}

async fn run(kubeconfig: &Path, more: &[&str]) -> (i32, String, String) {
    let arguments = ["release", LOST, "--kubeconfig", kubeconfig.to_str().unwrap()];
    let arguments: Vec<String> = arguments.iter().chain(more).map(|it| (*it).to_owned()).collect();
    // The cluster may be served by this runtime.
    let run = move || ended(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
    tokio::task::spawn_blocking(run).await.unwrap()
}

async fn only_what_is_meant_is_released(cluster: Cluster) {
    let client: Client = cluster.client().await.unwrap();
    let kubeconfig = cluster.host_kubeconfig().unwrap();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}});
    for object in [
        namespace,
        held("ConfigMap", "default", "going", &[LOST]),
        held("ConfigMap", "default", "staying", &[KEPT, LOST]),
        held("ConfigMap", "default", "other", &[KEPT]),
        held("ConfigMap", "elsewhere", "far", &[LOST]),
        held("Secret", "default", "secret", &[LOST]),
    ] {
        create(client.clone(), &object).await;
    }
    let here: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "elsewhere");
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    let _ = here.delete("going", &DeleteParams::default()).await.unwrap();
    let finalizers = async |api: &Api<ConfigMap>, name: &str| {
        let found = api.get_opt(name).await.unwrap();
        found.map(|object| object.metadata.finalizers.unwrap_or_default())
    };

    let told = release(&kubeconfig, &[]).await;
    for line in [
        "would release ConfigMap default/going, which is being deleted\n",
        "would release ConfigMap default/staying, which is not being deleted\n",
        "would release ConfigMap elsewhere/far, which is not being deleted\n",
        "would release Secret default/secret, which is not being deleted\n",
        "nothing was changed; with --yes the finalizer lost.test.dev/finalizer is taken off 4 objects",
    ] {
        assert!(told.contains(line), "{line}{told}");
    }
    assert_eq!(finalizers(&here, "going").await, Some(vec![LOST.to_owned()]));

    let deleting = ["--deleting", "-o", "json"];
    let told: Value = serde_json::from_str(&release(&kubeconfig, &deleting).await).unwrap();
    let mut going = json!({"apiVersion": "v1", "kind": "ConfigMap", "namespace": "default", "name": "going",
        "deleting": true, "released": false});
    assert_eq!(told, json!({"finalizer": LOST, "dryRun": true, "objects": [going]}));
    assert_eq!(finalizers(&here, "going").await, Some(vec![LOST.to_owned()]));

    let freed = release(&kubeconfig, &[&deleting[..], &["--yes"]].concat()).await;
    let freed: Value = serde_json::from_str(&freed).unwrap();
    going["released"] = json!(true);
    assert_eq!(freed, json!({"finalizer": LOST, "dryRun": false, "objects": [going]}));
    assert_eq!(finalizers(&here, "going").await, None);

    let freed = release(
        &kubeconfig,
        &["--yes", "--kind", "ConfigMap", "--namespace", "elsewhere"],
    );
    assert_eq!(freed.await, "released ConfigMap elsewhere/far\n");
    assert_eq!(finalizers(&elsewhere, "far").await, Some(Vec::new()));

    let freed = release(&kubeconfig, &["--yes"]).await;
    assert!(
        freed.contains("released ConfigMap default/staying\n") && freed.contains("released Secret default/secret\n"),
        "{freed}"
    );
    assert_eq!(freed.lines().count(), 2, "{freed}");
    assert_eq!(finalizers(&here, "staying").await, Some(vec![KEPT.to_owned()]));
    assert_eq!(finalizers(&here, "other").await, Some(vec![KEPT.to_owned()]));
    assert_eq!(secrets.get("secret").await.unwrap().metadata.finalizers, None);

    let told = release(&kubeconfig, &["-o", "json", "--yes"]).await;
    let told: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(told["objects"], json!([]));
    let told = release(&kubeconfig, &["--yes"]).await;
    assert_eq!(told, "no object has the finalizer lost.test.dev/finalizer\n");
    let told = release(&kubeconfig, &[]).await;
    assert_eq!(told, "no object has the finalizer lost.test.dev/finalizer\n");
    let (code, _, said) = run(&kubeconfig, &["--kind", "Nonsense"]).await;
    assert!(
        code == 1 && said.contains("serves no kind that is called Nonsense; write KIND or KIND.GROUP"),
        "{said}"
    );
}

mod simulated {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test(flavor = "multi_thread")]
    async fn only_what_is_meant_is_released() {
        super::only_what_is_meant_is_released(Cluster::simulated_over_http().await.unwrap()).await;
    }
}

mod real {
    use pilothouse_testkit::cluster::Cluster;

    #[tokio::test(flavor = "multi_thread")]
    async fn only_what_is_meant_is_released() {
        super::only_what_is_meant_is_released(Cluster::real().await.unwrap()).await;
    }
}
