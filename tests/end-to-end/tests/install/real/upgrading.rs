//! Tests that a host that acts as the plugin's service account keeps all its rights over an upgrade.

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

/// A Plugin of app-service, installed for a host that acts as the plugin's account, and that host with a Deployment of one replica.
struct Installed<'a> {
    bench: &'a Bench<'a>,
    /// `NAME=FILE`, the file being in the host's directory.
    plugin: String,
    directory: Folder,
    component: Vec<u8>,
    arguments: Vec<String>,
    host: Process,
}

impl<'a> Installed<'a> {
    async fn new(bench: &'a Bench<'a>, name: &str, system: &str) -> Self {
        plugin_kind(bench).await;
        bench.namespace("upgraded-shop").await;
        let mut rules = rights_of_an_acting_host();
        rules
            .as_array_mut()
            .expect("rules are a list")
            .extend(rights_to_plugins());
        let kubeconfig = bench.account(system, "host", &rules).await;
        let component = std::fs::read(component("app-service")).expect("the component is built");
        let directory = Folder::new();
        let plugin = format!("{name}={}", directory.file("app.wasm", &component));
        let host = ["--host-namespace", system, "--host-account", "host"];
        let options = [&host[..], &["--identity", "impersonate"]].concat();
        let (code, _, said) = command(
            &[&["install", &plugin, "--yes", "--wait=false"][..], &options].concat(),
            &bench.admin,
        )
        .await;
        assert_eq!(code, 0, "{said}");
        let (path, selector) = (directory.path(""), format!("pilothouse.dev/plugin={name}"));
        let arguments = [
            ["run", "--kubeconfig", &kubeconfig, "--plugin-dir", &path],
            [
                "--plugin-selector",
                &selector,
                "--identity",
                "impersonate",
                "--namespace",
            ],
        ];
        let mut arguments: Vec<String> = arguments.concat().into_iter().map(str::to_owned).collect();
        arguments.push(system.to_owned());
        let host = Self::start(&arguments);
        let installed = Self {
            bench,
            plugin,
            directory,
            component,
            arguments,
            host,
        };
        installed.writes(1, "the Deployment is made").await;
        installed
    }

    fn start(arguments: &[String]) -> Process {
        Process::start(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Another host starts when the one that runs has ended.
    fn restarted(self) -> Self {
        drop(self.host);
        let host = Self::start(&self.arguments);
        Self { host, ..self }
    }

    /// Another version: a custom section, which changes nothing but the digest.
    fn version(&self, number: u8) -> Vec<u8> {
        [&self.component[..], &[0, 3, 1, b'm', number]].concat()
    }

    /// Waits until the Deployment follows its AppService.
    async fn writes(&self, size: u32, what: &str) {
        self.bench.apply(&[app_service(size)]).await;
        let deployment = named("Deployment", Some("upgraded-shop"), "web");
        let has = async || {
            let found = self.bench.find(&deployment).await;
            found.is_some_and(|found| found["spec"]["replicas"] == size)
        };
        until(what, has, || self.host.log()).await;
    }

    async fn uninstall(self, name: &str) {
        let (bench, app) = (self.bench, app_service(1));
        let deleted = bench.api(&app).delete("web", &DeleteParams::default()).await;
        assert!(deleted.is_ok(), "{deleted:?}");
        until(
            "it is gone",
            async || bench.find(&app).await.is_none(),
            || self.host.log(),
        )
        .await;
        let (code, _, said) = command(&["uninstall", name, "--yes"], &bench.admin).await;
        assert_eq!(code, 0, "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_impersonating_host_survives_an_upgrade_without_its_name() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    let installed = Installed::new(&bench, "upgraded", SYSTEM).await;

    let _ = installed.directory.file("app.wasm", installed.version(1));
    let mark = control_plane.mark().unwrap();
    let upgrade = ["upgrade", &installed.plugin, "--no-objects", "--yes"];
    let (code, printed, said) = command(&upgrade, &bench.admin).await;
    assert_eq!(code, 0, "{said}");
    assert!(printed.contains("Plugin upgraded changed"), "{printed}");
    assert!(!printed.contains(" deleted\n"), "{printed}");
    let own = named("Plugin", None, "upgraded");
    let has_taken_over = async || {
        let found = bench.find(&own).await.unwrap();
        found["status"]["digest"] == found["spec"]["source"]["digest"]
    };
    until("the new version runs", has_taken_over, || installed.host.log()).await;
    installed.writes(2, "it writes").await;
    // One that starts lists everything anew.
    let installed = installed.restarted();
    installed.writes(3, "a host that starts writes, too").await;

    let user = format!("system:serviceaccount:{SYSTEM}:{}", account_name("upgraded"));
    let mut requests = control_plane.requests_since(mark).unwrap();
    requests.retain(|request| request.account == format!("system:serviceaccount:{SYSTEM}:host"));
    let writes = requests.iter().filter(|request| {
        request.resource == "deployments" && request.namespace == "upgraded-shop" && request.is_write()
    });
    let writers: Vec<_> = writes.map(|request| request.impersonated.as_deref()).collect();
    assert_eq!(writers, [Some(&*user); 2], "{}", installed.host.log());
    let denied: Vec<String> = requests
        .iter()
        .filter(|request| request.code == 403)
        .map(ToString::to_string)
        .collect();
    assert_eq!(denied, Vec::<String>::new(), "{}", installed.host.log());

    installed.uninstall("upgraded").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_earlier_version_keeps_its_rights_until_the_new_one_runs() {
    let control_plane = control_plane().await;
    let _turn = control_plane.host_turn().await;
    let bench = Bench::new(control_plane).await;
    let installed = Installed::new(&bench, "staying", "staying-system").await;

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
    let (elsewhere, newer) = (Folder::new(), installed.version(2));
    let missing = format!("staying={}", elsewhere.file("app.wasm", &newer));
    let upgrade = ["upgrade", &missing, "--no-objects", "--yes", "--wait", "30"];
    let (code, printed, said) = command(&upgrade, &bench.admin).await;
    assert_eq!(code, 1, "{printed}");
    assert!(
        said.contains(
            "the host refuses this version, so the earlier one keeps its rights, beside those of this version: "
        ),
        "{said}"
    );
    assert!(is_granted().await, "{printed}");
    installed.writes(2, "the earlier version goes on").await;

    let _ = installed.directory.file("app.wasm", &newer);
    let upgrade = ["upgrade", &missing, "--no-objects", "--yes"];
    let (code, printed, said) = command(&upgrade, &bench.admin).await;
    assert_eq!(code, 0, "{printed}{said}{}", installed.host.log());
    assert!(
        printed.contains("until then the rights of both are granted"),
        "{printed}"
    );
    assert!(!is_granted().await, "{printed}");
    let own = bench.find(&named("Plugin", None, "staying")).await.unwrap();
    assert_eq!(own["status"]["digest"], own["spec"]["source"]["digest"]);

    installed.uninstall("staying").await;
}
