//! Tests of the objects that the commands create, refuse to create, and delete.

use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::program::component;
use serde_json::json;

use super::{control_plane, named, plugin_kind};
use crate::support::{Bench, command};

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_is_repeated_narrowed_and_taken_away() {
    let control_plane = control_plane().await;
    // Two Plugins with one CRD need namespaces of their own.
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    for namespace in ["pilothouse-system", "first", "second"] {
        bench.namespace(namespace).await;
    }
    plugin_kind(&bench).await;
    let plugin = format!("shop={}", component("app-service"));
    let name = account_name("shop");
    let (code, printed, said) = command(&["install", &plugin], &bench.admin).await;
    assert_eq!(code, 1, "{printed}");
    assert!(
        said.contains("there is no terminal to ask on") && said.contains("--yes"),
        "{said}"
    );
    for words in [
        "Plugin shop: app-service ",
        "read, create, change, delete  deployments.apps",
        "caution: by deployments it can run Pods in all namespaces",
        &format!("  ClusterRole {name}\n"),
    ] {
        assert!(printed.contains(words), "{words}: {printed}");
    }
    assert_eq!(bench.find(&named("Plugin", None, "shop")).await, None);

    let (code, printed, said) = command(&["install", &plugin, "--yes", "--wait=false"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    let done: Vec<&str> = printed.lines().filter(|line| line.ends_with(" created")).collect();
    let expected = [
        format!("ServiceAccount pilothouse-system/{name} created"),
        format!("ClusterRole {name} created"),
        format!("ClusterRole {name}:view created"),
        format!("ClusterRole {name}:edit created"),
        format!("ClusterRoleBinding {name} created"),
        "Plugin shop created".to_owned(),
    ];
    assert_eq!(done, expected);
    let (code, printed, said) = command(&["install", &plugin, "--yes", "--wait=false"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    // No host has seen the Plugin, so the API server stores the default of its status with this apply, which is no change.
    assert!(
        !printed.contains(" created\n") && !printed.contains(" changed\n"),
        "{printed}"
    );
    assert!(printed.contains(&format!("ClusterRole {name} unchanged")), "{printed}");

    // A rule that somebody has added goes, and what is granted no more goes with it.
    let widened = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let mut role = named("ClusterRole", None, &name);
    role["rules"] = widened.clone();
    bench.apply(&[role.clone()]).await;
    let (code, printed, said) = command(&["install", &plugin, "--yes", "--wait=false"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains(&format!("ClusterRole {name} changed")), "{printed}");
    assert_ne!(bench.find(&role).await.unwrap()["rules"], widened);
    let (code, printed, said) = command(
        &[
            "install",
            &plugin,
            "--namespaces",
            "first,second",
            "--yes",
            "--wait=false",
        ],
        &bench.admin,
    )
    .await;
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains(&format!("ClusterRole {name} deleted")), "{printed}");
    assert_eq!(bench.find(&role).await, None);
    assert!(bench.find(&named("RoleBinding", Some("second"), &name)).await.is_some());
    let spec = bench.find(&named("Plugin", None, "shop")).await.unwrap();
    assert_eq!(spec["spec"]["namespaces"], json!(["first", "second"]));

    let (code, printed, said) = command(&["uninstall", "shop", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(
        printed.contains("Its deletionPolicy is Orphan") && printed.contains("Plugin shop deleted"),
        "{printed}"
    );
    for gone in [
        named("Plugin", None, "shop"),
        named("Role", Some("first"), &name),
        named("ServiceAccount", Some("pilothouse-system"), &name),
    ] {
        assert_eq!(bench.find(&gone).await, None);
    }
    let definition = named("CustomResourceDefinition", None, "appservices.kosmos.io");
    assert!(bench.find(&definition).await.is_some(), "users' objects stay");
    let (code, printed, _) = command(&["uninstall", "shop", "--yes"], &bench.admin).await;
    assert_eq!(
        (code, printed.contains("there is no Plugin shop")),
        (0, true),
        "{printed}"
    );
}

#[tokio::test(flavor = "multi_thread")]
#[expect(clippy::too_many_lines, reason = "one control plane serves all of them")]
async fn what_cannot_be_granted_is_named_with_the_next_step() {
    let control_plane = control_plane().await;
    let bench = Bench::new(control_plane).await;
    bench.namespace("pilothouse-system").await;
    plugin_kind(&bench).await;
    let component = component("service-ingress");
    let install = |name: &str, more: &[&str]| {
        let plugin = format!("{name}={component}");
        let mut arguments = vec![
            "install".to_owned(),
            plugin,
            "--yes".to_owned(),
            "--wait=false".to_owned(),
        ];
        arguments.extend(more.iter().map(|it| (*it).to_owned()));
        arguments
    };
    let fails = async |arguments: Vec<String>, kubeconfig: &str, words: &[&str]| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (code, printed, said) = command(&arguments, kubeconfig).await;
        assert_eq!(code, 1, "{printed}");
        for words in words {
            assert!(said.contains(words), "{words}: {said}");
        }
    };
    let looks = json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]});
    let grants = json!({
        "apiGroups": ["", "rbac.authorization.k8s.io", "pilothouse.dev"],
        "resources": ["serviceaccounts", "clusterroles", "clusterrolebindings", "plugins"], "verbs": ["create", "patch"],
    });
    let limited = bench.account("people", "limited", &json!([looks, grants])).await;
    fails(
        install("escalated", &[]),
        &limited,
        &[
            "it grants rights that you do not have yourself",
            "create, patch, delete ingresses.networking.k8s.io",
            "-o yaml",
        ],
    )
    .await;
    assert_eq!(
        bench.find(&named("Plugin", None, "escalated")).await,
        None,
        "the Plugin comes last"
    );
    let looker = bench.account("people", "looker", &json!([looks])).await;
    fails(
        install("looked", &[]),
        &looker,
        &["cannot apply ServiceAccount", "people:looker", "-o yaml"],
    )
    .await;

    let admin = bench.admin.clone();
    fails(
        install("nowhere", &["--namespaces", "not-there"]),
        &admin,
        &["there is no namespace not-there; create it"],
    )
    .await;
    bench.namespace("going").await;
    let mut held = named("ConfigMap", Some("going"), "held");
    held["metadata"]["finalizers"] = json!(["test.dev/held"]);
    bench.apply(&[held.clone()]).await;
    let going = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "going"}});
    let _ = bench
        .api(&going)
        .delete("going", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    fails(
        install("going", &["--namespaces", "going"]),
        &admin,
        &["namespace going is being deleted"],
    )
    .await;
    held["metadata"]["finalizers"] = json!([]);
    bench.apply(&[held]).await;

    // Somebody has prepared a role of the name that the installation would use.
    let name = account_name("prepared");
    let mut role = named("ClusterRole", None, &name);
    role["rules"] = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    bench.apply(&[role.clone()]).await;
    fails(
        install("prepared", &[]),
        &admin,
        &[&format!("ClusterRole {name} exists and is not one that pilothouse")],
    )
    .await;
    assert_eq!(bench.find(&role).await.unwrap()["rules"], role["rules"]);
    let binding = named("ClusterRoleBinding", None, &account_name("bound"));
    let mut other = binding.clone();
    other["metadata"]["labels"] =
        json!({"app.kubernetes.io/managed-by": "pilothouse", "pilothouse.dev/plugin": "bound"});
    other["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"});
    bench.apply(&[other]).await;
    fails(install("bound", &[]), &admin, &["binds another role"]).await;
    assert!(bench.find(&binding).await.unwrap()["subjects"].is_null());

    // A Plugin that somebody else looks after.
    let mut plugin = named("Plugin", None, "kept");
    plugin["spec"] = json!({"source": {"file": "elsewhere.wasm"}});
    bench.apply(&[plugin.clone()]).await;
    fails(
        install("kept", &[]),
        &admin,
        &["Plugin kept exists", ".spec.source.file (test)"],
    )
    .await;
}
