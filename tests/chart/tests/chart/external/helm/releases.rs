//! Two releases of the chart in one cluster, with the same name in two namespaces: each runs the Plugins that it selects, with
//! webhooks, policies and Roles of its own, and one goes without the other.

use kube::api::{DynamicObject, ListParams, PostParams};
use serde_json::{Value, json};

use super::bench::{Bench, Running, app_service, named, plugin, requests, until};

/// Namespace that both hosts watch.
const SHOP: &str = "shop";

fn values(team: &str, other: &str, crds: &str, webhooks: &Value) -> Value {
    let resources = json!([{"apiGroups": ["", "apps"], "resources": ["configmaps", "deployments", "services"]}]);
    json!({
        "host": {"logFormat": "text"},
        "plugins": {"selector": format!("team={team}")},
        "crds": {"installedBy": crds},
        "rbac": {"namespaces": [SHOP]},
        "webhooks": webhooks,
        "policies": {"reservedMetadata": {"enabled": true, "resources": resources, "otherHosts": [other]}},
    })
}

/// Installs a plugin for the host of a release, which selects it by its label.
async fn install(bench: &Bench, name: &str) {
    let options = ["--namespaces", SHOP, "--host-in-namespaces"];
    bench.install_configured(name, &options).await;
    let mut labelled = plugin(name);
    labelled["metadata"]["labels"] = json!({"team": bench.namespace});
    bench.apply(&labelled).await;
}

fn app(name: &str) -> Value {
    let mut app = app_service(name);
    app["metadata"]["namespace"] = json!(SHOP);
    app
}

/// Makes a gate: the words with which it is refused, or none.
async fn make_gate(bench: &Bench, name: &str, size: i64) -> String {
    let mut gate = named("gate.test.dev/v1", "Gate", Some(SHOP), name);
    gate["spec"] = json!({"size": size});
    let object: DynamicObject = serde_json::from_value(gate.clone()).unwrap();
    let made = bench.api(&gate).create(&PostParams::default(), &object).await;
    made.err().map(|error| error.to_string()).unwrap_or_default()
}

/// The release with the gates refuses a bad one, and makes the child of a good one.
async fn gates_work(bench: &Bench, running: &Running, name: &str) {
    let mut tries = 0;
    let is_refused = async || {
        tries += 1;
        make_gate(bench, &format!("{name}-bad-{tries}"), -1)
            .await
            .contains("must be 0 to 1000")
    };
    until("a bad gate is refused", is_refused, || running.process.log()).await;
    assert_eq!(make_gate(bench, name, 1).await, "");
    let child = named("v1", "ConfigMap", Some(SHOP), name);
    let is_made = async || bench.find(&child).await.is_some();
    until("a good gate has its child", is_made, || running.process.log()).await;
}

/// Returns the objects of a release outside of its namespace, by helm's own annotation.
async fn of_release(bench: &Bench, namespace: &str) -> Vec<String> {
    let (rbac, admission) = ("rbac.authorization.k8s.io/v1", "admissionregistration.k8s.io/v1");
    let mut found = Vec::new();
    for (api_version, kind) in [
        (rbac, "ClusterRole"),
        (rbac, "ClusterRoleBinding"),
        (rbac, "Role"),
        (rbac, "RoleBinding"),
        (admission, "ValidatingAdmissionPolicy"),
        (admission, "ValidatingAdmissionPolicyBinding"),
    ] {
        let all = bench.api(&named(api_version, kind, None, ""));
        for object in all.list(&ListParams::default()).await.unwrap() {
            let metadata = object.metadata;
            let annotations = metadata.annotations.unwrap_or_default();
            let release = annotations.get("meta.helm.sh/release-namespace");
            if release.is_some_and(|it| it == namespace) && metadata.namespace.as_deref() != Some(namespace) {
                found.push(format!("{kind} {}", metadata.name.unwrap()));
            }
        }
    }
    found
}

fn denied(bench: &Bench, mark: pilothouse_testkit::controlplane::AuditMark) -> Vec<String> {
    let asked = requests(bench, mark).into_iter();
    let denied = asked.filter(|request| request.code == 403 || request.code == 422 && request.is_write());
    denied.map(|request| request.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_releases_of_one_name_coexist_and_uninstall_alone() {
    let first = Bench::new().await.beside("team-a").await;
    let second = first.beside("team-b").await;
    first.apply(&named("v1", "Namespace", None, SHOP)).await;
    let webhooks = json!({"enabled": true, "plugins": ["gate"], "convertedCrds": ["gates.gate.test.dev"]});
    let none = json!({"enabled": false});
    first
        .helm()
        .install(&values("team-a", "team-b", "chart", &none))
        .unwrap();
    second
        .helm()
        .install(&values("team-b", "team-a", "nobody", &webhooks))
        .unwrap();
    install(&first, "app-service").await;
    install(&second, "gate").await;
    let mark = first.control_plane.mark().unwrap();
    let apps = first.started().await;
    let gates = second.started().await;
    first.apply(&app("web")).await;
    first.is_reconciled(&app("web"), &apps).await;
    gates_work(&second, &gates, "front").await;
    for (bench, running) in [(&first, &apps), (&second, &gates)] {
        assert_eq!(denied(bench, mark), Vec::<String>::new(), "{}", running.process.log());
    }
    let lines = |running: &Running, plugin: &str| running.process.lines(&["plugin ready", plugin]).len();
    assert_eq!((lines(&apps, "gate"), lines(&gates, "app-service")), (0, 0));

    // The first one goes, and the CRD of Plugin that it has installed stays.
    first.pilothouse(&["uninstall", "app-service", "--yes"]).await;
    apps.stop().await;
    let before = of_release(&second, "team-b").await;
    first.helm().uninstall().unwrap();
    assert_eq!(of_release(&first, "team-a").await, Vec::<String>::new());
    assert_eq!(of_release(&second, "team-b").await, before);
    let mark = second.control_plane.mark().unwrap();
    gates_work(&second, &gates, "back").await;
    gates.stop().await;
    let gates = second.started().await;
    gates_work(&second, &gates, "side").await;
    assert_eq!(denied(&second, mark), Vec::<String>::new(), "{}", gates.process.log());

    // It comes again beside what is there, and finds the CRD.
    first
        .helm()
        .install(&values("team-a", "team-b", "chart", &none))
        .unwrap();
    gates.stop().await;
}
