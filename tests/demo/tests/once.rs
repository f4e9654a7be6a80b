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

    fn plugins() -> PathBuf {
        let path = root().join("target/plugins");
        assert!(path.exists(), "`cargo xtask plugins` builds the plugins");
        path
    }

    fn demo(folder: &TempDir, plugins: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse-demo"));
        command.arg("--plugins").arg(plugins);
        // The drawing has the path as a user of the demo sees it.
        command.current_dir(root()).args(["--samples", "deploy/samples"]);
        command.arg("--folder").arg(folder.path());
        command
    }

    fn once(folder: &TempDir, plugins: &Path) -> Output {
        demo(folder, plugins).arg("--once").output().expect("the demo runs")
    }

    /// The lines of the drawing in README.md, without times: deeds, and what was created and deleted. How often the status
    /// changes depends on the machine.
    fn recorded() -> Vec<String> {
        let drawing = fs::read_to_string(root().join("docs/images/demo.svg")).expect("the drawing is kept");
        let texts = drawing.lines().filter(|line| line.starts_with("<text "));
        let lines = texts.map(|text| {
            let parts = text
                .split('<')
                .filter_map(|part| part.split_once('>').map(|(_, words)| words));
            parts
                .collect::<String>()
                .replace("&gt;", ">")
                .replace("&lt;", "<")
                .replace("&amp;", "&")
        });
        let is_kept = |line: &String| [" > ", " created ", " deleted "].iter().any(|word| line.contains(word));
        let lines: Vec<_> = lines
            .filter(is_kept)
            .map(|line| {
                line.trim_start_matches(|letter: char| " .0123456789".contains(letter))
                    .to_owned()
            })
            .collect();
        assert!(lines.len() > 5, "the drawing has no lines: {drawing}");
        lines
    }

    #[test]
    fn the_demo_runs_in_order_and_ends_by_itself() {
        let folder = tempfile::tempdir().unwrap();
        let Output { status, stdout, stderr } = once(&folder, &plugins());
        let (story, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert!(status.success(), "{status}\n{story}{said}");
        let mut rest = story.as_str();
        for part in [
            "kubectl get appservices,deployments,services,ingresses\n",
            "created CRD             appservices.kosmos.io",
            "created AppService      example-appservice       by demo",
            "created Deployment      example-appservice       by pilothouse/app-service",
            "> delete Deployment",
            "deleted Deployment      example-appservice",
            "created Deployment      example-appservice       by pilothouse/app-service",
            "reverse-proxy: ",
            "Reconciled=False",
            "> delete TCPReverseProxy example-database",
            "deleted TCPReverseProxy example-database",
            "service-ingress: ",
            "created Ingress         example-service          by pilothouse/service-ingress",
            "> take the annotation from Service example-service",
            "deleted Ingress         example-service",
            "created Ingress         example-service          by pilothouse/service-ingress",
            "stream-ingress: ",
            "changed ConfigMap       ingress-nginx/tcp-services",
            "> delete Service postgres",
            "Accepted=False UpstreamNotFound",
            "> make Service postgres again",
            "Accepted=True",
            "ecs-binding: ",
            "Bound=False AddressMismatch",
            "> give Node node-1 the address",
            "Bound=True",
            "RESOURCE ",
            "AppService example-appservice ",
            "Deployment example-appservice ",
            "nginx:1.29, 2 of 2 ready",
            "Service example-appservice ",
            "NodePort 80:3",
            "ReverseProxy example-whoami ",
            "TCPReverseProxy example-database ",
            "Service example-service ",
            "Ingress example-service ",
            "StreamIngress example-streamingress ",
            "entry 5432 of ConfigMap ingress-nginx/tcp-services",
            "EcsBinding example-ecs ",
            "label hopegi.com/cluster of itself",
            "the host sent no request.",
        ] {
            let found = rest.find(part);
            let at = found.unwrap_or_else(|| panic!("{part:?} does not follow where it should:\n{story}"));
            rest = &rest[at + part.len()..];
        }
        for line in recorded() {
            assert!(
                story.contains(&line),
                "{line:?} of docs/images/demo.svg is no more: draw it anew with `cargo xtask demo --record`"
            );
        }
        assert!(!story.contains('\x1b'), "there is no colour where there is no terminal");
        assert!(!folder.path().join("kubeconfig").exists(), "it would point at nothing");
    }

    #[test]
    fn a_plugin_that_cannot_be_used_fails_with_its_name() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("app-service.wasm"), "not wasm").unwrap();
        let Output {
            status,
            stdout: _,
            stderr,
        } = once(&folder, folder.path());
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(
            said.starts_with("demo: FAILED: ") && said.contains("app-service.wasm"),
            "{said}"
        );
    }

    #[test]
    fn another_plugin_than_the_samples_fails_with_what_was_missing() {
        let folder = tempfile::tempdir().unwrap();
        let mixed = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(plugins()).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, mixed.path().join(path.file_name().unwrap())).unwrap();
        }
        fs::copy(plugins().join("hostile.wasm"), mixed.path().join("app-service.wasm")).unwrap();
        let Output {
            status,
            stdout: _,
            stderr,
        } = demo(&folder, mixed.path())
            .args(["--once", "--patience", "1"])
            .output()
            .unwrap();
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(1), "{said}");
        assert!(said.contains("no CRD of AppService is established"), "{said}");
        assert!(said.contains("host.log"), "{said}");
    }

    #[test]
    fn an_interrupt_after_the_demo_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mut demo = demo(&folder, &plugins()).stdout(Stdio::piped()).spawn().unwrap();
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
