//! `pilothouse install` and `upgrade` with artifacts, by an administrator, and the host of the chart that fetches them with the
//! rights of the chart: from Debian's registry, which wants a password, and from a layout on the volume with components.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use pilothouse_end_to_end::components::{program, root};
use pilothouse_end_to_end::program::component;
use pilothouse_external::registry::Registry;
use serde_json::{Value, json};

use super::bench::{Bench, Running, app_service, named, plugin, requests, until};

/// The name of the Secret with the registry's credentials.
const SECRET: &str = "registry";

/// The commands of somebody who is logged in to the registry, in a folder.
struct Desk<'a> {
    bench: &'a Bench,
    folder: String,
}

impl<'a> Desk<'a> {
    fn new(bench: &'a Bench, folder: &str) -> Self {
        fs::create_dir_all(folder).unwrap();
        Self {
            bench,
            folder: folder.to_owned(),
        }
    }

    /// Runs a command to its end: returns its success, its output, and its standard error.
    async fn run(&self, arguments: &[&str]) -> (bool, String, String) {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .args(["--cache-dir", &root().join("target/test-code").display().to_string()])
            .current_dir(&self.folder)
            .env("DOCKER_CONFIG", self.bench.folder.path("docker"))
            .env("XDG_CONFIG_HOME", self.bench.folder.path(""))
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap();
        let output = output.unwrap();
        let [printed, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), printed, said)
    }

    async fn prints(&self, arguments: &[&str]) -> String {
        let (succeeded, printed, said) = self.run(arguments).await;
        assert!(succeeded, "{arguments:?}: {said}{printed}");
        printed
    }

    /// Pushes a version of app-service; another mark makes another one. Its digest.
    async fn push(&self, mark: u8, to: &str) -> String {
        let mut bytes = fs::read(component("app-service")).unwrap();
        bytes.extend([0, 3, 1, b'm', mark]);
        let file = self.bench.folder.file(&format!("{mark}.wasm"), bytes);
        let crate_directory = root().join("plugins/app-service").display().to_string();
        let pushed = self.prints(&["push", &file, to, "--crate", &crate_directory]).await;
        pushed.trim_end().split_once('@').unwrap().1.to_owned()
    }

    /// `install` or `upgrade` as an administrator.
    fn arguments<'b>(&'b self, command: &'b str, plugin: &'b str, more: &[&'b str]) -> Vec<&'b str> {
        let rest = ["--yes", "--kubeconfig", &self.bench.admin];
        [&[command, plugin], &rest[..], more].concat()
    }
}

/// Waits until an artifact runs, and an object is reconciled by it.
async fn runs(bench: &Bench, running: &Running, digest: &str, object: &str) {
    let is_ready = async || {
        let found = bench.find(&plugin("app-service")).await.unwrap_or_default();
        let conditions = found["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let is_true = |kind: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == "True");
        found["status"]["artifact"]["digest"] == digest && is_true("Ready") && is_true("Fetched")
    };
    until(&format!("{digest} runs"), is_ready, || running.process.log()).await;
    bench.apply(&app_service(object)).await;
    bench.is_reconciled(&app_service(object), running).await;
}

fn denied(bench: &Bench, mark: pilothouse_testkit::controlplane::AuditMark) -> Vec<String> {
    let denied = requests(bench, mark).into_iter().filter(|request| request.code == 403);
    denied.map(|request| request.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_upgraded_from_a_registry_with_a_password() {
    let bench = Bench::new().await;
    let registry = tokio::task::spawn_blocking(Registry::docker).await.unwrap().unwrap();
    let authority = registry.ca().unwrap();
    let registries = json!({"registries": [{"host": registry.address(), "certificateAuthorities": ["authority.pem"]}]});
    let artifacts = json!({"registries": registries, "files": {"authority.pem": authority}, "pullSecrets": [SECRET]});
    bench
        .helm()
        .install(&json!({"host": {"logFormat": "text"}, "artifacts": artifacts}))
        .unwrap();
    // What `docker login` writes, and where the commands look for registries.
    for folder in ["docker", "pilothouse"] {
        fs::create_dir_all(bench.folder.path(folder)).unwrap();
    }
    let _ = bench
        .folder
        .file("docker/config.json", registry.docker_config().to_string());
    let _ = bench.folder.file("pilothouse/registries.yaml", registries.to_string());
    let _ = bench.folder.file("pilothouse/authority.pem", authority);
    let desk = Desk::new(&bench, &bench.folder.path("desk"));
    let reference = |tag: &str| registry.reference(&format!("plugins/app-service:{tag}"));
    let first = desk.push(1, &reference("0.1.0")).await;
    let second = desk.push(2, &reference("0.2.0")).await;

    let mut secret = named("v1", "Secret", Some(bench.namespace), SECRET);
    secret["type"] = json!("kubernetes.io/dockerconfigjson");
    secret["data"] = json!({".dockerconfigjson": STANDARD.encode(registry.docker_config().to_string())});
    bench.apply(&secret).await;
    let mark = bench.control_plane.mark().unwrap();
    let running = bench.started().await;
    let plugin_at = |tag: &str| format!("oci://{}", reference(tag));
    // The host's account is found out.
    let options = ["--pull-secret", SECRET];
    let from = plugin_at("0.1.0");
    let said = desk.prints(&desk.arguments("install", &from, &options)).await;
    assert!(said.contains("Plugin app-service created"), "{said}");
    runs(&bench, &running, &first, "one").await;

    let to = format!("app-service={}", plugin_at("0.2.0"));
    let said = desk.prints(&desk.arguments("upgrade", &to, &[])).await;
    assert!(said.contains("Plugin app-service changed"), "{said}");
    runs(&bench, &running, &second, "two").await;
    let spec = bench.find(&plugin("app-service")).await.unwrap()["spec"]["source"]["oci"].clone();
    let pinned = format!("{}@{second}", registry.reference("plugins/app-service"));
    assert_eq!(
        (&spec["reference"], &spec["pullSecret"]),
        (&json!(pinned), &json!(SECRET))
    );
    assert_eq!(denied(&bench, mark), Vec::<String>::new(), "{}", running.process.log());
    bench.pilothouse(&["uninstall", "app-service", "--yes"]).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_is_upgraded_from_a_layout_on_the_volume() {
    let mut bench = Bench::new().await;
    bench.plugins = bench.folder.path("volume");
    bench.helm().install(&json!({"host": {"logFormat": "text"}})).unwrap();
    // A copy of the volume, from which the commands are run.
    let desk = Desk::new(&bench, &bench.plugins);
    let first = desk.push(1, "oci-layout:internal:0.1.0").await;
    let second = desk.push(2, "oci-layout:internal:0.2.0").await;
    let mark = bench.control_plane.mark().unwrap();
    let running = bench.started().await;

    let elsewhere = format!(
        "oci-layout:{}:0.1.0",
        Path::new(&bench.plugins).join("internal").display()
    );
    let (succeeded, _, said) = desk.run(&desk.arguments("install", &elsewhere, &[])).await;
    assert!(
        !succeeded && said.contains("leads out of the host's --plugin-dir"),
        "{said}"
    );
    assert_eq!(bench.find(&plugin("app-service")).await, None::<Value>);
    let (succeeded, _, said) = desk
        .run(&desk.arguments("install", "oci-layout:internal:0.1.0", &["--pull-secret", SECRET]))
        .await;
    assert!(
        !succeeded && said.contains("--pull-secret has no use without a registry"),
        "{said}"
    );

    desk.prints(&desk.arguments("install", "oci-layout:internal:0.1.0", &[]))
        .await;
    runs(&bench, &running, &first, "one").await;
    desk.prints(&desk.arguments("upgrade", "app-service=oci-layout:internal:0.2.0", &[]))
        .await;
    runs(&bench, &running, &second, "two").await;
    assert_eq!(denied(&bench, mark), Vec::<String>::new(), "{}", running.process.log());
    bench.pilothouse(&["uninstall", "app-service", "--yes"]).await;
    running.stop().await;
}
