//! The shipped policy about Plugins, with the API server as its judge: who may not act as an account gives nobody its rights.

use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, Error};
use pilothouse_core::rights::installed::INSTALLED_FOR;
use pilothouse_end_to_end::components::root;
use serde_json::{Value, json};

use super::{control_plane, named, plugin_kind};
use crate::support::{Bench, until};

/// A client with the rights of an account.
async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.unwrap()).unwrap()
}

fn plugin(name: &str, account: Option<&str>) -> Value {
    let mut plugin = named("Plugin", None, name);
    plugin["spec"] = json!({"source": {"file": "a.wasm"}});
    if let Some(account) = account {
        plugin["spec"]["serviceAccountName"] = json!(account);
    }
    plugin
}

/// Returns the API server's message, if it refuses a request.
fn refusal<T: std::fmt::Debug>(answer: Result<T, Error>) -> String {
    match answer {
        Err(Error::Api(status)) if status.code == 403 => status.message,
        other => panic!("it is not refused: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_act_as_its_account_creates_or_changes_a_plugin() {
    let control_plane = control_plane().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    let system = "policy-system";
    let all = json!([{"apiGroups": ["pilothouse.dev"], "resources": ["plugins"], "verbs": ["*"]}]);
    let kubeconfig = bench.account(system, "tenant", &all).await;
    let rbac = "rbac.authorization.k8s.io";
    let (role, mut binding) = (
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "acts", "namespace": system},
            "rules": [{
                "apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"],
                "resourceNames": ["pilothouse-plugin-guarded", "shared"],
            }],
        }),
        json!({
            "apiVersion": format!("{rbac}/v1"), "kind": "RoleBinding", "metadata": {"name": "acts", "namespace": system},
            "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "acts"},
        }),
    );
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "tenant", "namespace": system}]);
    bench.apply(&[role, binding]).await;

    let text = std::fs::read_to_string(root().join("deploy/plugin-policy.yaml")).unwrap();
    let text = text
        .replace("'pilothouse-system'", &format!("'{system}'"))
        .replace("name: plugins.pilothouse.dev", "name: test.plugins.pilothouse.dev")
        .replace(
            "policyName: plugins.pilothouse.dev",
            "policyName: test.plugins.pilothouse.dev",
        );
    let policy: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    bench.apply(&policy).await;

    let client = client(&kubeconfig).await;
    let api = Api::<kube::api::DynamicObject>::all_with(client, &Bench::resource(&plugin("any", None)));
    let create = async |plugin: Value| {
        let dry = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        api.create(&dry, &serde_json::from_value(plugin).unwrap()).await
    };
    // A policy takes effect some time after it is created.
    let is_refused = async || create(plugin("probe", None)).await.is_err();
    until("the policy is in effect", is_refused, String::new).await;
    let words = format!("you may not impersonate the ServiceAccount {system}/pilothouse-plugin-probe");
    let said = refusal(create(plugin("probe", None)).await);
    assert!(said.contains(&words), "{said}");
    let said = refusal(create(plugin("guarded", Some("admin"))).await);
    assert!(said.contains(&format!("{system}/admin")), "{said}");
    for account in [None, Some("shared")] {
        let made = create(plugin("guarded", account)).await;
        assert!(made.is_ok(), "{made:?}");
    }

    // A Plugin of others: its spec stays as it is, whatever account it is to get.
    bench
        .apply(&[plugin("others", Some("admin")), plugin("guarded", None)])
        .await;
    let patch = async |name: &str, patch: Value| api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
    let said = refusal(patch("others", json!({"spec": {"serviceAccountName": "shared"}})).await);
    assert!(said.contains("in whose name this Plugin acts so far"), "{said}");
    let said = refusal(patch("others", json!({"spec": {"concurrency": 2}})).await);
    assert!(said.contains(&format!("{system}/admin")), "{said}");
    let said = refusal(patch("guarded", json!({"spec": {"serviceAccountName": "admin"}})).await);
    assert!(said.contains("in whose name this Plugin would act"), "{said}");
    let may_bind = json!({
        "apiVersion": format!("{rbac}/v1"), "kind": "Role", "metadata": {"name": "acts", "namespace": system},
        "rules": [{"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["impersonate"],
                   "resourceNames": ["pilothouse-plugin-guarded", "shared"]},
                  {"apiGroups": [rbac], "resources": ["rolebindings"], "verbs": ["create"]}],
    });
    // To whom the next installation grants rights is as much as the spec.
    let host = json!({"metadata": {"annotations": {INSTALLED_FOR: "{}"}}});
    let said = refusal(patch("others", host.clone()).await);
    assert!(said.contains(&format!("{system}/admin")), "{said}");
    let said = refusal(patch("guarded", host.clone()).await);
    let words = format!("you may not create RoleBindings in namespace {system}");
    assert!(said.contains(&words), "{said}");
    bench.apply(&[may_bind]).await;
    let may_change = async || patch("guarded", host.clone()).await.is_ok();
    until("who may bind roles changes it", may_change, String::new).await;
    for (name, change) in [
        (
            "guarded",
            json!({"spec": {"serviceAccountName": "shared", "concurrency": 2}}),
        ),
        ("others", json!({"metadata": {"labels": {"team": "a"}}})),
    ] {
        let changed = patch(name, change).await;
        assert!(changed.is_ok(), "{changed:?}");
    }
    for object in policy
        .iter()
        .rev()
        .cloned()
        .chain([plugin("others", None), plugin("guarded", None)])
    {
        let name = object["metadata"]["name"].as_str().unwrap();
        let deleted = bench
            .api(&object)
            .delete(name, &kube::api::DeleteParams::default())
            .await;
        assert!(deleted.is_ok(), "{deleted:?}");
    }
}
