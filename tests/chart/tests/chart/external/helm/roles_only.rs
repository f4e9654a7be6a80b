//! An installation by somebody who owns some namespaces and has no right of cluster scope: `helm install`, the host, a plugin
//! with a configuration, and `helm uninstall`.

use std::collections::BTreeSet;
use std::fs;

use kube::api::ListParams;
use pilothouse_end_to_end::components::root;
use pilothouse_end_to_end::program::component;
use serde_json::{Value, json};

use super::bench::{Bench, NAMESPACE, RELEASE, helm_as, named, requests, until};

const RBAC: &str = "rbac.authorization.k8s.io";

/// The namespace that the owner has besides the host's, and one that somebody else has.
const SHOP: &str = "shop";
const BANK: &str = "bank";

/// A kubeconfig of a ServiceAccount that may do everything in its namespaces, and nothing elsewhere.
async fn owner(bench: &Bench) -> String {
    bench
        .apply(&named("v1", "ServiceAccount", Some(NAMESPACE), "owner"))
        .await;
    for namespace in [NAMESPACE, SHOP] {
        let mut role = named(&format!("{RBAC}/v1"), "Role", Some(namespace), "owner");
        role["rules"] = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
        let mut binding = named(&format!("{RBAC}/v1"), "RoleBinding", Some(namespace), "owner");
        binding["roleRef"] = json!({"apiGroup": RBAC, "kind": "Role", "name": "owner"});
        binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "owner", "namespace": NAMESPACE}]);
        bench.apply(&role).await;
        bench.apply(&binding).await;
    }
    let token = bench.token_of("owner", "owner-token").await;
    bench.kubeconfig("owner.yaml", &json!({"token": token}))
}

/// The rules that `pilothouse rights` prints for the plugin in the namespace.
async fn rules(bench: &Bench) -> Vec<Value> {
    let cache = root().join("target/test-code").display().to_string();
    let file = component("reverse-proxy");
    let arguments = ["rights", &file, "--namespaces", SHOP, "--host-account", RELEASE];
    let more = ["--host-in-namespaces", "--cache-dir", &cache, "-o", "json"];
    let printed = bench.pilothouse(&[&arguments[..], &more].concat()).await;
    let printed: Value = serde_json::from_str(&printed).unwrap();
    let items = printed["items"].as_array().unwrap();
    assert!(!items.iter().any(|item| item["kind"] == "ClusterRole"), "{printed}");
    let roles = items.iter().filter(|item| item["kind"] == "Role");
    roles
        .flat_map(|role| role["rules"].as_array().unwrap().clone())
        .collect()
}

/// The kinds and names of what the release has made of cluster scope, and in a namespace that is not the owner's.
async fn elsewhere(bench: &Bench) -> Vec<String> {
    let mut found = Vec::new();
    for (group, kind) in [
        (RBAC, "ClusterRole"),
        (RBAC, "ClusterRoleBinding"),
        (RBAC, "Role"),
        (RBAC, "RoleBinding"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("scheduling.k8s.io", "PriorityClass"),
    ] {
        let all = bench.api(&named(&format!("{group}/v1"), kind, None, ""));
        let these = ListParams::default().labels("app.kubernetes.io/managed-by=Helm");
        for object in all.list(&these).await.unwrap() {
            let namespace = object.metadata.namespace.unwrap_or_default();
            if ![NAMESPACE, SHOP].contains(&&*namespace) {
                found.push(format!("{kind} {namespace}/{}", object.metadata.name.unwrap()));
            }
        }
    }
    found
}

fn proxy(namespace: &str) -> Value {
    let mut proxy = named("nginx.lin2ur.cn/v1", "ReverseProxy", Some(namespace), "web");
    proxy["spec"] = json!({"proxyPass": "https://example.com"});
    proxy
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_owner_installs_a_host_with_roles_alone() {
    let bench = Bench::new().await;
    for namespace in [SHOP, BANK] {
        bench.apply(&named("v1", "Namespace", None, namespace)).await;
    }
    // Somebody with the right to do so has installed the plugin's CRDs.
    for kind in ["reverseproxies", "tcpreverseproxies"] {
        let file = root().join(format!("plugins/reverse-proxy/crds/{kind}.nginx.lin2ur.cn.yaml"));
        let crd: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
        bench.apply(&crd).await;
    }
    let owner = owner(&bench).await;
    let values = json!({
        "plugins": {
            "volume": {"configMap": {"name": "components"}},
            "static": [{
                "name": "reverse-proxy", "file": "reverse-proxy.wasm", "rules": rules(&bench).await,
                "configuration": {"defaultImage": "nginx:of-the-chart"},
            }],
        },
        "rbac": {"clusterRole": false, "namespaces": [SHOP]},
        "host": {"identity": "none", "logFormat": "text"},
        "api": {"enabled": false},
    });
    helm_as(&owner).install(&values).unwrap();
    assert_eq!(elsewhere(&bench).await, Vec::<String>::new());

    let mark = bench.control_plane.mark().unwrap();
    let running = bench.started().await;
    for namespace in [BANK, SHOP] {
        bench.apply(&proxy(namespace)).await;
    }
    bench.is_reconciled(&proxy(SHOP), &running).await;
    let child = |namespace: &str| named("apps/v1", "Deployment", Some(namespace), "web");
    let deployments = bench.api(&child(SHOP)).list(&ListParams::default()).await.unwrap();
    let text = serde_json::to_string(&deployments.items).unwrap();
    assert!(
        text.contains("nginx:of-the-chart"),
        "the configuration is the chart's: {text}"
    );
    let others = bench.api(&child(BANK)).list(&ListParams::default()).await.unwrap();
    assert!(others.items.is_empty() && bench.find(&proxy(BANK)).await.unwrap()["status"].is_null());
    let ready =
        async || pilothouse_end_to_end::scrape::get(running.metrics, "/readyz").is_ok_and(|(code, _)| code == 200);
    until("the host is ready", ready, || running.process.log()).await;
    let (mut refused, mut outside) = (BTreeSet::new(), Vec::new());
    for request in requests(&bench, mark) {
        if request.code == 403 {
            refused.insert(request.resource.clone());
        } else if !request.namespace.is_empty() && ![NAMESPACE, SHOP].contains(&&*request.namespace)
            || request.namespace.is_empty() && request.is_write()
        {
            outside.push(request.to_string());
        }
    }
    assert_eq!(outside, Vec::<String>::new());
    let without = [
        "customresourcedefinitions",
        "mutatingwebhookconfigurations",
        "validatingwebhookconfigurations",
    ];
    assert!(
        refused.iter().all(|resource| without.contains(&&**resource)),
        "docs/installation.md says what is refused: {refused:?}\n{}",
        running.process.log()
    );

    running.stop().await;
    helm_as(&owner).uninstall().unwrap();
    for kind in ["Role", "RoleBinding"] {
        let all = bench.api(&named(&format!("{RBAC}/v1"), kind, None, ""));
        let these = ListParams::default().labels("app.kubernetes.io/managed-by=Helm");
        assert!(all.list(&these).await.unwrap().items.is_empty(), "{kind}");
    }
    bench.delete(&proxy(SHOP)).await;
    let is_collected = async || {
        bench
            .api(&child(SHOP))
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    };
    until("the object's children are collected", is_collected, String::new).await;
}
