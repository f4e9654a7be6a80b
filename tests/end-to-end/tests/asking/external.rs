//! A host that is asked by way of kubectl.

mod kubectl {
    use std::env;
    use std::os::unix::fs::symlink;
    use std::path::Path;
    use std::process::Command;

    use pilothouse_end_to_end::components::program;
    use pilothouse_end_to_end::stage::app_service;
    use pilothouse_external::programs::Program;
    use serde_json::{Value, json};

    use crate::simulated::{AskedHost, create_when_served};

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
}
