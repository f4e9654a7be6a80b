//! `helm install`, `upgrade`, `rollback` and `uninstall` on a real API server, with a host that runs as the chart has it.

use std::time::Duration;

use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::Api;
use kube::api::{ListParams, PostParams};
use kube::core::DynamicObject;
use pilothouse_end_to_end::scrape::get;
use pilothouse_testkit::controlplane::AuditMark;
use pilothouse_testkit::requests::Request;
use serde_json::json;

use super::bench::{Bench, NAMESPACE, app_service, deployment, named, plugin, requests, until};

fn printed(requests: impl IntoIterator<Item = Request>) -> Vec<String> {
    requests.into_iter().map(|request| request.to_string()).collect()
}

/// Returns the host's writes since the mark to the AppService `web` and its children.
fn writes_of_web(bench: &Bench, mark: AuditMark) -> Vec<String> {
    let requests = requests(bench, mark).into_iter();
    printed(requests.filter(|request| request.is_write() && request.name == "web"))
}

async fn pods(bench: &Bench) -> usize {
    let pods = bench.api(&named("v1", "Pod", Some(NAMESPACE), ""));
    let these = ListParams::default().labels("app.kubernetes.io/name=pilothouse");
    pods.list(&these).await.unwrap().items.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pods_are_admitted_where_only_restricted_pods_are() {
    let bench = Bench::new().await;
    bench.helm().install(&json!({})).unwrap();
    let events = async || {
        let events = bench.api(&named("v1", "Event", Some(NAMESPACE), ""));
        let listed = events.list(&ListParams::default()).await.unwrap();
        listed
            .items
            .iter()
            .map(|event| event.data["message"].to_string())
            .collect::<String>()
    };
    let both = async || pods(&bench).await == 2;
    until("the ReplicaSet makes both pods", both, String::new).await;
    assert!(!events().await.contains("violates PodSecurity"), "{}", events().await);
    // Not because nobody checks.
    let mut privileged = named("v1", "Pod", Some(NAMESPACE), "privileged");
    privileged["spec"] = json!({"containers": [{"name": "a", "image": "b"}]});
    let privileged: DynamicObject = serde_json::from_value(privileged).unwrap();
    let pods = bench.api(&named("v1", "Pod", Some(NAMESPACE), ""));
    let refused = pods
        .create(&PostParams::default(), &privileged)
        .await
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("violates PodSecurity \"restricted:latest\""),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_works_with_the_charts_account_and_strands_nothing() {
    let bench = Bench::new().await;
    bench.helm().install(&json!({"host": {"logFormat": "text"}})).unwrap();
    bench.install_plugin("app-service").await;
    let mut kept = plugin("app-service");
    kept["spec"] = json!({"deletionPolicy": "Delete"});
    bench.apply(&kept).await;
    let mark = bench.control_plane.mark().unwrap();
    let running = bench.started().await;
    bench.apply(&app_service("web")).await;
    bench.is_reconciled(&app_service("web"), &running).await;
    let ready = async || get(running.metrics, "/readyz").is_ok_and(|(code, _)| code == 200);
    until("the host is ready", ready, || running.process.log()).await;
    let has_finalizer =
        async || bench.find(&kept).await.unwrap()["metadata"]["finalizers"][0] == "pilothouse.dev/plugin";
    until("the Plugin has its finalizer", has_finalizer, || running.process.log()).await;
    let asked = requests(&bench, mark);
    let plugins_account = format!("system:serviceaccount:{NAMESPACE}:pilothouse-plugin-app-service");
    assert!(
        asked
            .iter()
            .any(|request| request.resource == "deployments"
                && request.impersonated.as_deref() == Some(&*plugins_account)),
        "the host acts as the plugin's account"
    );
    assert!(
        asked.iter().any(Request::is_lease),
        "the host takes part in the election"
    );
    assert_eq!(
        printed(asked.into_iter().filter(|request| request.code == 403)),
        Vec::<String>::new(),
        "{}",
        running.process.log()
    );

    // The status of the Deployment changes for a moment, and the object's with it.
    let mut quiet = bench.control_plane.mark().unwrap();
    let is_quiet = async || {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let before = std::mem::replace(&mut quiet, bench.control_plane.mark().unwrap());
        writes_of_web(&bench, before).is_empty()
    };
    until("nothing changes any more", is_quiet, || running.process.log()).await;

    // Another revision of the chart, and back: the host has nothing to write.
    let mark = bench.control_plane.mark().unwrap();
    bench
        .helm()
        .upgrade(&json!({"host": {"logFormat": "text", "workers": 8}, "replicas": 3}))
        .unwrap();
    running.stop().await;
    let replicas = async |expected: u32| bench.find(&deployment()).await.unwrap()["spec"]["replicas"] == expected;
    assert!(replicas(3).await && bench.arguments().await.contains(&"--workers=8".to_owned()));
    let running = bench.started().await;
    let is_seen = async || !running.process.lines(&["plugin ready"]).is_empty();
    until("the plugin runs", is_seen, || running.process.log()).await;
    bench.helm().rollback(1).unwrap();
    assert!(replicas(2).await && bench.arguments().await.contains(&"--workers=32".to_owned()));
    bench.apply(&app_service("other")).await;
    bench.is_reconciled(&app_service("other"), &running).await;
    assert_eq!(writes_of_web(&bench, mark), Vec::<String>::new());
    running.stop().await;

    // Somebody wants to uninstall the release and leave the Plugin behind: nothing is deleted, and the release can be used.
    let refused = bench.helm().uninstall().unwrap_err().printed.errors;
    for words in [
        "Plugin app-service is there",
        "pilothouse uninstall app-service",
        "--no-hooks",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    assert!(replicas(2).await);
    bench.helm().upgrade(&json!({})).unwrap();
    bench.helm().uninstall_without_hooks().unwrap();
    assert_eq!(bench.find(&deployment()).await, None);
    let child = named("apps/v1", "Deployment", Some("default"), "web");
    assert!(bench.find(&child).await.is_some() && bench.find(&kept).await.is_some());
    // A user's object goes as ever, and its child with it.
    bench.delete(&app_service("web")).await;
    let is_collected = async || bench.find(&child).await.is_none() && bench.find(&app_service("web")).await.is_none();
    until("the object and its child are gone", is_collected, String::new).await;
    // The Plugin waits for a host. As docs/installation.md has it:
    bench.delete(&kept).await;
    assert!(bench.find(&kept).await.is_some());
    bench
        .pilothouse(&[
            "release",
            "pilothouse.dev/plugin",
            "--kind",
            "Plugin.pilothouse.dev",
            "--yes",
        ])
        .await;
    assert_eq!(bench.find(&kept).await, None);
    // The release comes back over what it has left, and goes now that there is no Plugin.
    bench.helm().install(&json!({})).unwrap();
    assert!(replicas(2).await);
    let goes = async || bench.helm().uninstall().is_ok();
    until("the release can be uninstalled", goes, String::new).await;
    assert_eq!(bench.find(&deployment()).await, None);
}

/// What a user with one of Kubernetes' roles may do: `VERB RESOURCE` each.
async fn allowed(bench: &Bench, user: &str, namespace: Option<&str>, asked: &[(&str, &str, &str)]) -> Vec<String> {
    let reviews: Api<SubjectAccessReview> = Api::all(bench.client.clone());
    let mut allowed = Vec::new();
    for (verb, group, resource) in asked {
        let review = json!({"spec": {"user": user, "resourceAttributes":
            {"verb": verb, "group": group, "resource": resource, "namespace": namespace, "name": "web"}}});
        let review: SubjectAccessReview = serde_json::from_value(review).unwrap();
        let reviewed = reviews.create(&PostParams::default(), &review).await.unwrap();
        if reviewed.status.unwrap().allowed {
            allowed.push(format!("{verb} {resource}"));
        }
    }
    allowed
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_of_kubernetes_hold_for_plugins_and_their_kinds() {
    let bench = Bench::new().await;
    bench.helm().install(&json!({})).unwrap();
    bench.install_plugin("app-service").await;
    let rbac = "rbac.authorization.k8s.io";
    for role in ["view", "edit", "admin"] {
        for (kind, namespace) in [("RoleBinding", Some("default")), ("ClusterRoleBinding", None)] {
            let user = format!("{role}-{kind}");
            let mut binding = named(&format!("{rbac}/v1"), kind, namespace, &user.to_lowercase());
            binding["roleRef"] = json!({"apiGroup": rbac, "kind": "ClusterRole", "name": role});
            binding["subjects"] = json!([{"apiGroup": rbac, "kind": "User", "name": user}]);
            bench.apply(&binding).await;
        }
    }
    let asked = [
        ("get", "kosmos.io", "appservices"),
        ("get", "kosmos.io", "appservices/status"),
        ("create", "kosmos.io", "appservices"),
        ("patch", "kosmos.io", "appservices/status"),
        ("list", "pilothouse.dev", "plugins"),
        ("patch", "pilothouse.dev", "plugins"),
    ];
    let (sees, changes) = (["get appservices", "get appservices/status"], ["create appservices"]);
    for (user, namespace, expected) in [
        ("view-RoleBinding", Some("default"), sees.to_vec()),
        ("edit-RoleBinding", Some("default"), [&sees[..], &changes].concat()),
        ("admin-RoleBinding", Some("default"), [&sees[..], &changes].concat()),
        ("edit-RoleBinding", Some("kube-system"), vec![]),
        ("view-ClusterRoleBinding", None, [&sees[..], &["list plugins"]].concat()),
        (
            "edit-ClusterRoleBinding",
            None,
            [&sees[..], &changes, &["list plugins", "patch plugins"]].concat(),
        ),
    ] {
        let mut asked = asked.to_vec();
        if namespace.is_some() {
            asked.truncate(4);
        }
        let holds = async || allowed(&bench, user, namespace, &asked).await == expected;
        until(&format!("{user} may do {expected:?}"), holds, String::new).await;
    }
    bench
        .pilothouse(&["uninstall", "app-service", "--yes", "--wait=false"])
        .await;
    for name in [
        "pilothouse-plugin-app-service:view",
        "pilothouse-plugin-app-service:edit",
    ] {
        let role = named(&format!("{rbac}/v1"), "ClusterRole", None, name);
        assert_eq!(bench.find(&role).await, None, "{name}");
    }
}
