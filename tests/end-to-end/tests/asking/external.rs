//! A host that is asked by way of kubectl.

mod kubectl {
    use std::net::Ipv4Addr;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;
    use std::{env, fs};

    use kube::Client;
    use kube::api::{ListParams, Patch, PatchParams};
    use pilothouse_end_to_end::components::{program, root};
    use pilothouse_end_to_end::fleet::{self, plugin};
    use pilothouse_end_to_end::program::{Folder, Process, component, ended};
    use pilothouse_end_to_end::stage::{app_service, create};
    use pilothouse_external::programs::Program;
    use pilothouse_simulator::{Options, Simulator};
    use serde_json::{Value, json};

    use crate::simulated::{AskedHost, create_when_served};
    use crate::support::until;

    /// Runs a plugin of kubectl, which finds it in `PATH`: returns its success, its output and its standard error.
    fn kubectl(folder: &Path, arguments: &[&str]) -> (bool, String, String) {
        let path = env::var_os("PATH").unwrap_or_default();
        let folders = [folder.to_owned()].into_iter().chain(env::split_paths(&path));
        let output = Command::new(Program::Kubectl.path())
            .arg("pilothouse")
            .args(arguments)
            .env("PATH", env::join_paths(folders).unwrap())
            .output()
            .unwrap();
        let [printed, said] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.success(), printed, said)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn kubectl_pilothouse_asks_a_host_and_passes_on_how_it_ended() {
        let folder = tempfile::tempdir().unwrap();
        symlink(program(), folder.path().join("kubectl-pilothouse")).unwrap();
        let mut host = AskedHost::start(&["app-service"]).await;
        create_when_served(&mut host, &app_service("web")).await;
        let is_there = |document: &Value| document["plugins"][0]["controllers"][0]["objects"] == 1;
        host.until("the object is counted", &["status"], is_there).await;
        let (url, key) = (format!("http://{}", host.address), host.folder.path("api.key"));
        let ask = |arguments: &[&str]| {
            kubectl(
                folder.path(),
                &[arguments, &["--host", &url, "--api-key-file", &key]].concat(),
            )
        };
        let (succeeded, printed, said) = ask(&["status", "-o", "json"]);
        assert!(succeeded, "{said}");
        let document: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(document["plugins"][0]["name"], "app-service");
        assert_eq!(document["plugins"][0]["controllers"][0]["objects"], json!(1));
        let (succeeded, printed, said) = ask(&["why", "appservice/web"]);
        assert!(succeeded && printed.contains("Deployment"), "{printed}{said}");
        let (succeeded, _, said) = ask(&["why", "nothing/web"]);
        assert!(
            !succeeded && said.contains("no plugin of this host reconciles"),
            "{said}"
        );
        let (_, help, _) = kubectl(folder.path(), &["status", "--help"]);
        assert!(help.contains("Usage: kubectl pilothouse status [OPTIONS]"), "{help}");
    }

    /// Waits with kubectl until a Plugin has a condition; returns whether it had in time.
    fn waits(kubeconfig: &str, condition: &str, timeout: &str) -> bool {
        let output = Command::new(Program::Kubectl.path())
            .args(["--kubeconfig", kubeconfig, "wait", "plugin/it", "--timeout", timeout])
            .arg(format!("--for=condition={condition}"))
            .output()
            .unwrap();
        println!("{condition}: {output:?}");
        output.status.success()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn kubectl_waits_for_the_wanted_version_and_not_for_the_one_before() {
        let (folder, plugins) = (Folder::new(), Folder::new());
        let simulator = Simulator::new(Options::default());
        let serving = simulator.serve((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let kubeconfig = folder.kubeconfig(&format!("http://{}", serving.address()), "there");
        plugins.file("it.wasm", fs::read(component("app-service")).unwrap());
        let directory = plugins.path("");
        let arguments = [
            "run",
            "--kubeconfig",
            &kubeconfig,
            "--install-crds",
            "--plugin-dir",
            &directory,
        ];
        let host = Process::start(&[&arguments[..], &["--identity", "none", "--namespace", "default"]].concat());
        let client = Client::new(simulator.service(), "default");
        let is_served = async || {
            fleet::plugins(client.clone())
                .list(&ListParams::default())
                .await
                .is_ok()
        };
        until("Plugins are served", is_served, || host.log()).await;
        create(client.clone(), &plugin("it", json!({"source": {"file": "it.wasm"}}))).await;
        assert!(waits(&kubeconfig, "Ready", "60s"), "{}", host.log());
        let change = async |spec: Value| {
            let patch = Patch::Merge(json!({ "spec": spec }));
            let plugins = fleet::plugins(client.clone());
            plugins.patch("it", &PatchParams::default(), &patch).await.unwrap();
        };
        change(json!({"source": {"file": "none.wasm"}})).await;
        assert!(
            !waits(&kubeconfig, "Ready", "5s"),
            "the version before is not what is wanted"
        );
        assert!(waits(&kubeconfig, "Stalled", "60s"), "{}", host.log());
        assert!(!waits(&kubeconfig, "Ready", "1s"));
        change(json!({"source": {"file": "it.wasm"}})).await;
        assert!(waits(&kubeconfig, "Ready", "60s"), "{}", host.log());
        assert!(!waits(&kubeconfig, "UpToDate", "1s"), "a file is not followed");

        let layout = plugins.path("layout");
        let (file, crate_directory) = (plugins.path("it.wasm"), root().join("plugins/app-service"));
        let to = format!("oci-layout:{layout}:stable");
        let (code, _, said) = ended(&["push", &file, &to, "--crate", &crate_directory.display().to_string()]);
        assert_eq!(code, 0, "{said}");
        let followed = json!({"reference": "oci-layout:layout:stable", "updatePolicy": "Tag", "interval": "10s"});
        change(json!({"source": {"file": null, "oci": followed}})).await;
        assert!(waits(&kubeconfig, "UpToDate", "60s"), "{}", host.log());
        assert!(waits(&kubeconfig, "Ready", "5s"), "{}", host.log());
        fs::rename(&layout, plugins.path("elsewhere")).unwrap();
        assert!(waits(&kubeconfig, "UpToDate=Unknown", "60s"), "{}", host.log());
        assert!(!waits(&kubeconfig, "UpToDate", "1s"), "nobody knows what the tag names");
    }
}
