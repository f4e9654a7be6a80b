//! The first plugin on a host: `install` finds out the host's account, waits until the plugin runs, and says what is missing.

use pilothouse_end_to_end::program::{Folder, Process, component};
use serde_json::{Value, json};

use super::host::{rights_of_an_acting_host, rights_to_plugins};
use super::{control_plane, named, plugin_kind};
use crate::support::{Bench, command, until};

/// The rules of an installed host that has no plugins.
fn rules() -> Value {
    let mut rules = rights_of_an_acting_host();
    rules.as_array_mut().unwrap().extend(rights_to_plugins());
    rules
}

/// Returns the objects that the chart publishes about such a host.
fn published(system: &str) -> Value {
    let mut published = named("ConfigMap", Some(system), "pilothouse-host");
    published["metadata"]["labels"] =
        json!({"app.kubernetes.io/name": "pilothouse", "app.kubernetes.io/component": "published-host"});
    published["data"] = json!({"account": "host", "identity": "impersonate", "namespaces": "", "selector": ""});
    published
}

/// A host that runs the Plugin of this name, with the component in this folder.
fn host(kubeconfig: &str, directory: &str, system: &str, plugin: &str) -> Process {
    let selector = format!("pilothouse.dev/plugin={plugin}");
    // --identity is left out: a host of Plugin resources acts as their accounts.
    let arguments = [
        ["run", "--kubeconfig", kubeconfig, "--plugin-dir", directory],
        [
            "--plugin-selector",
            &selector,
            "--namespace",
            system,
            "--api-address=off",
        ],
    ];
    Process::start(&arguments.concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_finds_the_host_and_ends_when_the_plugin_runs() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    let system = "first-system";
    let kubeconfig = bench.account(system, "host", &rules()).await;
    // No namespace is said: the bindings of a host lead to it, because its installation has labelled them.
    let mut binding = named("ClusterRoleBinding", None, "first-system-host");
    binding["metadata"]["labels"] = json!({"app.kubernetes.io/name": "pilothouse"});
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "first-system-host"});
    binding["subjects"] = json!([{"kind": "ServiceAccount", "name": "host", "namespace": system}]);
    bench.apply(&[published(system), binding.clone()]).await;
    let directory = Folder::new();
    let file = directory.file("app.wasm", std::fs::read(component("app-service")).unwrap());
    let plugin = format!("first={file}");
    let running = host(&kubeconfig, &directory.path(""), system, "first");
    let (code, printed, said) = command(&["install", &plugin, "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}{printed}{}", running.log());
    assert!(
        printed.contains("The host's ServiceAccount first-system/host may impersonate"),
        "{printed}"
    );
    assert!(printed.ends_with("Plugin first runs: app-service 0.1.0\n"), "{printed}");
    let live = bench.find(&named("Plugin", None, "first")).await.unwrap();
    assert_eq!(live["status"]["runningGeneration"], live["metadata"]["generation"]);
    assert!(bench.has_true(&named("Plugin", None, "first"), "Ready").await);

    // A component that the host does not have.
    std::fs::remove_file(&file).unwrap();
    let elsewhere = Folder::new();
    let other = format!(
        "first={}",
        elsewhere.file("other.wasm", std::fs::read(component("app-service")).unwrap())
    );
    let (code, _, said) = command(&["install", &other, "--yes", "--wait", "30"], &bench.admin).await;
    assert_eq!(code, 1);
    assert!(
        said.contains("the host refuses this version of Plugin first: ") && said.contains("other.wasm"),
        "{said}"
    );
    let (code, _, said) = command(&["uninstall", "first", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    for object in [binding, named("ConfigMap", Some(system), "pilothouse-host")] {
        let name = object["metadata"]["name"].as_str().unwrap();
        assert!(
            bench
                .api(&object)
                .delete(name, &kube::api::DeleteParams::default())
                .await
                .is_ok()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_installation_names_missing_host_rights_and_the_grant() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    let system = "lacking-system";
    let kubeconfig = bench.account(system, "host", &rules()).await;
    let directory = Folder::new();
    let file = directory.file("app.wasm", std::fs::read(component("app-service")).unwrap());
    let plugin = format!("lacking={file}");
    let running = host(&kubeconfig, &directory.path(""), system, "lacking");
    // Nobody publishes an account, and nobody says one.
    let install = ["install", &plugin, "--yes", "--host-namespace", system, "--wait", "20"];
    let (code, printed, said) = command(&install, &bench.admin).await;
    assert_eq!(code, 1, "{printed}");
    assert!(
        printed.contains("The host's own ServiceAccount is granted nothing"),
        "{printed}"
    );
    let user = format!("system:serviceaccount:{system}:host");
    let told = format!(
        "pilothouse upgrade lacking=app.wasm --host-namespace {system} --host-account host --identity impersonate"
    );
    for words in [
        "Plugin lacking does not run after 20 s: ",
        &user,
        "list, watch deployments.apps in all namespaces",
        "impersonate serviceaccounts named pilothouse-plugin-lacking",
        &told,
    ] {
        assert!(said.contains(words), "{words}: {said}{}", running.log());
    }
    let live = bench.find(&named("Plugin", None, "lacking")).await.unwrap();
    let conditions = live["status"]["conditions"].as_array().unwrap();
    let established = conditions.iter().find(|it| it["type"] == "Established").unwrap();
    assert_eq!(
        (&established["status"], &established["reason"]),
        (&json!("False"), &json!("NotGranted")),
        "{established}"
    );
    assert!(
        established["message"].as_str().unwrap().contains(&told),
        "{established}"
    );

    // What is said is done, in the host's directory.
    let told = told.replace("app.wasm", &file);
    let upgrade: Vec<&str> = told.split(' ').skip(1).chain(["--yes", "--no-objects"]).collect();
    let (code, printed, said) = command(&upgrade, &bench.admin).await;
    assert_eq!(code, 0, "{said}{printed}{}", running.log());
    assert!(
        printed.ends_with("Plugin lacking runs: app-service 0.1.0\n"),
        "{printed}"
    );
    let is_over = async || {
        let live = bench.find(&named("Plugin", None, "lacking")).await.unwrap();
        live["status"]["warnings"].as_array().is_none_or(Vec::is_empty)
    };
    until("the warning goes", is_over, || running.log()).await;
    let (code, _, said) = command(&["uninstall", "lacking", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
}
