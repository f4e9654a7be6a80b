//! The demo as a program: how it ends, and what it leaves behind.

mod simulated {
    use std::fs;
    use std::io::{BufRead as _, BufReader, Read as _};
    use std::path::{Path, PathBuf};
    use std::process::{Command, Output, Stdio};

    use tempfile::TempDir;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    fn component() -> PathBuf {
        let path = root().join("target/plugins/app-service.wasm");
        assert!(path.exists(), "`cargo xtask plugins` builds the plugins");
        path
    }

    fn demo(folder: &TempDir, component: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse-demo"));
        command.arg("--component").arg(component);
        command
            .arg("--sample")
            .arg(root().join("deploy/samples/app-service.yaml"));
        command.arg("--folder").arg(folder.path());
        command
    }

    fn once(folder: &TempDir, component: &Path) -> Output {
        demo(folder, component).arg("--once").output().expect("the demo runs")
    }

    #[test]
    fn the_story_is_told_in_order_and_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let Output { status, stdout, stderr } = once(&folder, &component());
        let (story, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success(), "{status}\n{story}{said}");
        let mut rest = story.as_str();
        for part in [
            "kubectl get appservices,deployments,services\n",
            "created CRD        appservices.kosmos.io",
            "created AppService example-appservice     by demo",
            "created Deployment example-appservice     by pilothouse/app-service",
            "> delete Deployment",
            "deleted Deployment example-appservice",
            "created Deployment example-appservice     by pilothouse/app-service",
            "STATUS of AppService example-appservice",
            "condition Reconciled                      True",
            "RESOURCE ",
            "Deployment example-appservice   nginx:1.7.9, 2 of 2 ready",
            "Service example-appservice      NodePort 80:30002/TCP",
            "the host sent no request.",
        ] {
            let found = rest.find(part);
            let at = found.unwrap_or_else(|| panic!("{part:?} does not follow where it should:\n{story}"));
            rest = &rest[at + part.len()..];
        }
        assert!(!story.contains('\x1b'), "there is no colour where there is no terminal");
        assert!(!folder.path().join("kubeconfig").exists(), "it would point at nothing");
    }

    #[test]
    fn a_plugin_that_cannot_be_used_fails_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let broken = folder.path().join("broken.wasm");
        fs::write(&broken, "not wasm").unwrap();
        let Output {
            status,
            stdout: _,
            stderr,
        } = once(&folder, &broken);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("demo: FAILED: ") && said.contains("broken.wasm"),
            "{said}"
        );
    }

    #[test]
    fn another_plugin_than_the_samples_fails_with_what_was_missing() {
        let folder = tempfile::tempdir().unwrap();
        let hostile = root().join("target/plugins/hostile.wasm");
        let Output {
            status,
            stdout: _,
            stderr,
        } = demo(&folder, &hostile)
            .args(["--once", "--patience", "1"])
            .output()
            .unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("no CRD of AppService is established"), "{said}");
        assert!(said.contains("host.log"), "{said}");
    }

    #[test]
    fn an_interrupt_after_the_story_ends_it_well_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = demo(&folder, &component()).stdout(Stdio::piped()).spawn().unwrap();
        let mut story = BufReader::new(demo.stdout.take().unwrap());
        let mut line = String::new();
        while !line.contains("stays until Ctrl-C") {
            line.clear();
            assert_ne!(story.read_line(&mut line).unwrap(), 0, "it ended before");
        }
        assert!(folder.path().join("kubeconfig").exists(), "kubectl needs it");
        let killed = Command::new("kill").args(["-INT", &demo.id().to_string()]).status();
        assert!(killed.unwrap().success());
        // The end of the output is the end of all that could write to it.
        story.read_to_string(&mut line).unwrap();
        assert_eq!(demo.wait().unwrap().code(), Some(0));
        assert!(!folder.path().join("kubeconfig").exists(), "it would point at nothing");
    }
}
