//! The policies that the chart installs, on a real API server: who may write a Plugin that the host selects, and who may write
//! the metadata of Pilothouse.

use kube::api::{DynamicObject, Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::{Value, json};

use super::bench::{Bench, NAMESPACE, named, until};

const RBAC: &str = "rbac.authorization.k8s.io";

/// A user who may write Plugins, and has no other right.
async fn tenant(bench: &Bench) -> Client {
    bench
        .apply(&named("v1", "ServiceAccount", Some(NAMESPACE), "tenant"))
        .await;
    let mut role = named(&format!("{RBAC}/v1"), "ClusterRole", None, "tenant");
    role["rules"] =
        json!([{"apiGroups": ["pilothouse.dev"], "resources": ["plugins"], "verbs": ["get", "create", "patch"]}]);
    let mut binding = named(&format!("{RBAC}/v1"), "ClusterRoleBinding", None, "tenant");
    binding["roleRef"] = json!({"apiGroup": RBAC, "kind": "ClusterRole", "name": "tenant"});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "tenant", "namespace": NAMESPACE}]);
    bench.apply(&role).await;
    bench.apply(&binding).await;
    let token = bench.token_of("tenant", "tenant-token").await;
    let kubeconfig = Kubeconfig::read_from(bench.kubeconfig("tenant.yaml", &json!({"token": token}))).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.unwrap()).unwrap()
}

/// Applies a Plugin with this label, and returns the message of its refusal, or an empty one.
async fn put(client: &Client, name: &str, team: &str, account: Option<&str>) -> String {
    let mut plugin = named("pilothouse.dev/v1alpha1", "Plugin", None, name);
    plugin["metadata"]["labels"] = json!({"team": team});
    plugin["spec"] = json!({"source": {"file": "a.wasm"}});
    if let Some(account) = account {
        plugin["spec"]["serviceAccountName"] = json!(account);
    }
    let kind = kube::core::GroupVersionKind::gvk("pilothouse.dev", "v1alpha1", "Plugin");
    let plugins: Api<DynamicObject> = Api::all_with(client.clone(), &kube::core::ApiResource::from_gvk(&kind));
    let by = PatchParams::apply("tenant").force();
    let made = plugins.patch(name, &by, &Patch::Apply(&plugin)).await;
    made.err().map(|error| error.to_string()).unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn policies_of_a_release_guard_its_plugins_and_object_metadata() {
    let bench = Bench::new().await;
    let resources = json!([{"apiGroups": [""], "resources": ["configmaps"]}]);
    let values = json!({
        "plugins": {"selector": "team in (a,b)"},
        "policies": {"reservedMetadata": {"enabled": true, "resources": resources}},
    });
    bench.helm().install(&values).unwrap();
    let tenant = tenant(&bench).await;
    let refused = |name: &str| format!("you may not impersonate the ServiceAccount {NAMESPACE}/{name}");
    let mut tries = 0;
    let is_refused = async || {
        tries += 1;
        let said = put(&tenant, &format!("probe-{tries}"), "a", None).await;
        said.contains(&refused(&format!("pilothouse-plugin-probe-{tries}")))
    };
    until("the policy is in effect", is_refused, String::new).await;
    // One that no host of this release runs, and that is to be given to it later.
    assert_eq!(put(&tenant, "late", "z", None).await, "");
    let said = put(&tenant, "late", "a", None).await;
    assert!(said.contains(&refused("pilothouse-plugin-late")), "{said}");

    let mut role = named(&format!("{RBAC}/v1"), "Role", Some(NAMESPACE), "acts");
    role["rules"] = json!([{
        "apiGroups": [""], "resources": ["serviceaccounts"], "resourceNames": ["pilothouse-plugin-late"], "verbs": ["impersonate"],
    }]);
    let mut binding = named(&format!("{RBAC}/v1"), "RoleBinding", Some(NAMESPACE), "acts");
    binding["roleRef"] = json!({"apiGroup": RBAC, "kind": "Role", "name": "acts"});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "tenant", "namespace": NAMESPACE}]);
    bench.apply(&role).await;
    bench.apply(&binding).await;
    let is_made = async || put(&tenant, "late", "a", None).await.is_empty();
    until(
        "who may impersonate the account may write the Plugin",
        is_made,
        String::new,
    )
    .await;
    let said = put(&tenant, "late", "a", Some("admin")).await;
    assert!(said.contains(&refused("admin")), "{said}");

    let mut map = named("v1", "ConfigMap", Some("default"), "someones");
    map["metadata"]["labels"] = json!({"pilothouse.dev/owner-uid": "1"});
    let is_reserved = async || {
        let by = PatchParams::apply("test").force();
        let made = bench.api(&map).patch("someones", &by, &Patch::Apply(&map)).await;
        made.is_err_and(|error| error.to_string().contains("are reserved for Pilothouse"))
    };
    until("labels of Pilothouse are refused", is_reserved, String::new).await;
    let mut plain: Value = map.clone();
    plain["metadata"]["labels"] = json!({"example.com/owner": "1"});
    bench.apply(&plain).await;
}
