//! What an upgrade leaves to a host that acts as the plugin's account: all that it had.

use kube::api::{DeleteParams, Patch, PatchParams};
use pilothouse_core::rights::objects::account_name;
use pilothouse_end_to_end::program::{Folder, Process, component};
use serde_json::{Value, json};

use super::host::{rights_of_an_acting_host, rights_to_plugins};
use super::{control_plane, named, plugin_kind};
use crate::support::{Bench, command, until};

const SYSTEM: &str = "upgraded-system";

fn app_service(size: u32) -> Value {
    json!({
        "apiVersion": "kosmos.io/v1", "kind": "AppService", "metadata": {"name": "web", "namespace": "upgraded-shop"},
        "spec": {"size": size, "image": "nginx:1"},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_impersonates_goes_on_after_an_upgrade_that_does_not_name_it() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    bench.namespace("upgraded-shop").await;
    let mut rules = rights_of_an_acting_host();
    rules.as_array_mut().unwrap().extend(rights_to_plugins());
    let kubeconfig = bench.account(SYSTEM, "host", &rules).await;
    let (folder, bytes) = (Folder::new(), std::fs::read(component("app-service")).unwrap());
    let plugin = format!("upgraded={}", folder.file("app.wasm", &bytes));
    let host_options = [
        "--host-namespace",
        SYSTEM,
        "--host-account",
        "host",
        "--identity",
        "impersonate",
    ];
    let (code, _, said) = command(
        &[&["install", &plugin, "--yes"][..], &host_options].concat(),
        &bench.admin,
    )
    .await;
    assert_eq!(code, 0, "{said}");
    let directory = folder.path("");
    let arguments = [
        ["run", "--kubeconfig", &kubeconfig, "--plugin-dir", &directory].as_slice(),
        &["--plugin-selector", "pilothouse.dev/plugin=upgraded"],
        &["--identity", "impersonate", "--namespace", SYSTEM],
    ]
    .concat();
    let host = Process::start(&arguments);
    let deployment = named("Deployment", Some("upgraded-shop"), "web");
    let has = async |size: u32| {
        let found = bench.find(&deployment).await;
        found.is_some_and(|found| found["spec"]["replicas"] == size)
    };
    bench.apply(&[app_service(1)]).await;
    until("the Deployment is made", async || has(1).await, || host.log()).await;

    // Another version: a custom section, which changes nothing but the digest.
    let _ = folder.file("app.wasm", [&bytes[..], &[0, 3, 1, b'm', 1]].concat());
    let mark = control_plane.mark().unwrap();
    let (code, printed, said) = command(&["upgrade", &plugin, "--no-objects", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains("Plugin upgraded changed"), "{printed}");
    assert!(!printed.contains(" deleted\n"), "{printed}");
    let own = named("Plugin", None, "upgraded");
    let has_taken_over = async || {
        let found = bench.find(&own).await.unwrap();
        found["status"]["digest"] == found["spec"]["source"]["digest"]
    };
    until("the new version runs", has_taken_over, || host.log()).await;
    bench.apply(&[app_service(2)]).await;
    until("it writes", async || has(2).await, || host.log()).await;
    // One that starts lists everything anew.
    drop(host);
    let host = Process::start(&arguments);
    bench.apply(&[app_service(3)]).await;
    until("a host that starts writes, too", async || has(3).await, || host.log()).await;

    let user = format!("system:serviceaccount:{SYSTEM}:{}", account_name("upgraded"));
    let mut requests = control_plane.requests_since(mark).unwrap();
    requests.retain(|request| request.account == format!("system:serviceaccount:{SYSTEM}:host"));
    let writes = requests.iter().filter(|request| {
        request.resource == "deployments" && request.namespace == "upgraded-shop" && request.is_write()
    });
    let writers: Vec<_> = writes.map(|request| request.impersonated.as_deref()).collect();
    assert_eq!(writers, [Some(&*user); 2], "{}", host.log());
    let denied: Vec<String> = requests
        .iter()
        .filter(|request| request.code == 403)
        .map(ToString::to_string)
        .collect();
    assert_eq!(denied, Vec::<String>::new(), "{}", host.log());

    let app = app_service(3);
    let deleted = bench.api(&app).delete("web", &DeleteParams::default()).await;
    assert!(deleted.is_ok());
    until("it is gone", async || bench.find(&app).await.is_none(), || host.log()).await;
    let (code, _, said) = command(&["uninstall", "upgraded", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_version_keeps_its_rights_until_the_new_one_runs() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    plugin_kind(&bench).await;
    bench.namespace("upgraded-shop").await;
    let mut rules = rights_of_an_acting_host();
    rules.as_array_mut().unwrap().extend(rights_to_plugins());
    let kubeconfig = bench.account("staying-system", "host", &rules).await;
    let (folder, bytes) = (Folder::new(), std::fs::read(component("app-service")).unwrap());
    let plugin = format!("staying={}", folder.file("app.wasm", &bytes));
    let options = [
        "--host-namespace",
        "staying-system",
        "--host-account",
        "host",
        "--identity",
        "impersonate",
    ];
    let (code, _, said) = command(&[&["install", &plugin, "--yes"][..], &options].concat(), &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    let directory = folder.path("");
    let host = Process::start(
        &[
            ["run", "--kubeconfig", &kubeconfig, "--plugin-dir", &directory].as_slice(),
            &["--plugin-selector", "pilothouse.dev/plugin=staying"],
            &["--identity", "impersonate", "--namespace", "staying-system"],
        ]
        .concat(),
    );
    let deployment = named("Deployment", Some("upgraded-shop"), "web");
    let has = async |size: u32| {
        let found = bench.find(&deployment).await;
        found.is_some_and(|found| found["spec"]["replicas"] == size)
    };
    bench.apply(&[app_service(1)]).await;
    until("the Deployment is made", async || has(1).await, || host.log()).await;

    // As if the version that runs needed ConfigMaps.
    let role = named("ClusterRole", None, &account_name("staying"));
    let extra = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]});
    let mut rules = bench.find(&role).await.unwrap()["rules"].clone();
    rules.as_array_mut().unwrap().push(extra.clone());
    let patch = Patch::Merge(json!({"rules": rules}));
    let name = account_name("staying");
    let patched = bench.api(&role).patch(&name, &PatchParams::default(), &patch).await;
    assert!(patched.is_ok(), "{patched:?}");
    let is_granted = async || {
        let role = bench.find(&role).await.unwrap();
        role["rules"].as_array().unwrap().contains(&extra)
    };

    // A version that the host does not find in its directory.
    let (elsewhere, newer) = (Folder::new(), [&bytes[..], &[0, 3, 1, b'm', 2]].concat());
    let missing = format!("staying={}", elsewhere.file("app.wasm", &newer));
    let upgrade = ["upgrade", &missing, "--no-objects", "--yes", "--wait", "5"];
    let (code, printed, said) = command(&upgrade, &bench.admin).await;
    assert_eq!(code, 1, "{printed}");
    assert!(
        said.contains(
            "this version does not run after 5 s, so the earlier one keeps its rights, beside those of this version: "
        ),
        "{said}"
    );
    assert!(is_granted().await, "{printed}");
    bench.apply(&[app_service(2)]).await;
    until("the earlier version goes on", async || has(2).await, || host.log()).await;

    let _ = folder.file("app.wasm", &newer);
    let upgrade = ["upgrade", &missing, "--no-objects", "--yes"];
    let (code, printed, said) = command(&upgrade, &bench.admin).await;
    assert_eq!(code, 0, "{printed}{said}{}", host.log());
    assert!(
        printed.contains("until then the rights of both are granted"),
        "{printed}"
    );
    assert!(!is_granted().await, "{printed}");
    let own = bench.find(&named("Plugin", None, "staying")).await.unwrap();
    assert_eq!(own["status"]["digest"], own["spec"]["source"]["digest"]);

    let app = app_service(2);
    let deleted = bench.api(&app).delete("web", &DeleteParams::default()).await;
    assert!(deleted.is_ok());
    until("it is gone", async || bench.find(&app).await.is_none(), || host.log()).await;
    let (code, _, said) = command(&["uninstall", "staying", "--yes"], &bench.admin).await;
    assert_eq!(code, 0, "{said}");
}
