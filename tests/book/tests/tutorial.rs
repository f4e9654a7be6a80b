//! The quick start and the tutorials, as their readers do them: in an empty folder, every file is written and every command run, in
//! order, and the output is what the page shows. Consoles that are left out say so in the page.
//!
//! The quick start runs on a real control plane. In place of its reader's machine, the test has the program of this build, the
//! checkout as a link, and an API server without nodes in place of kind, so no pod runs.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use std::{env, fs};

use pilothouse_book::console::{Step, has_shown, of_language, steps};
use pilothouse_book::root;
use pilothouse_end_to_end::components::program;

/// Time limit for `pilothouse dev` to run the plugin; it builds before.
const STARTS_WITHIN: Duration = Duration::from_mins(15);

/// Output of `pilothouse dev` when all children of the sample are there.
const DEV_SAYS: [&str; 2] = [
    "ConfigMap default/sample is Current",
    "Deployment default/sample is Current",
];

/// Output of `pilothouse run` when it reconciles.
const HOST_SAYS: [&str; 1] = ["plugin ready"];

/// A reader: where they are, what is on their search path, which cluster they use, and how long each command took.
struct Reader {
    folder: PathBuf,
    path: String,
    kubeconfig: Option<PathBuf>,
    /// The host that runs in another terminal.
    host: Option<Child>,
    took: Vec<(String, Duration)>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(host) = self.host.take() {
            interrupt(host);
        }
    }
}

/// Presses Ctrl-C in the terminal of a process.
fn interrupt(mut process: Child) -> bool {
    let id = process.id().to_string();
    let interrupted = Command::new("kill").args(["-INT", &id]).status().expect("kill runs");
    interrupted.success() && process.wait().expect("it can be waited for").success()
}

impl Reader {
    /// A reader in this folder, which has what they have cloned.
    fn new(folder: &Path) -> Self {
        let programs = program()
            .parent()
            .map(Path::to_path_buf)
            .expect("a program is in a folder");
        let checkout = root().canonicalize().expect("the checkout is there");
        symlink(checkout, folder.join("pilothouse")).expect("the folder is empty");
        Self {
            folder: folder.canonicalize().expect("the folder is there"),
            path: format!(
                "{}:{}",
                programs.display(),
                env::var("PATH").expect("programs are found by it")
            ),
            kubeconfig: None,
            host: None,
            took: Vec::new(),
        }
    }

    fn does(&mut self, step: &Step) {
        match step {
            Step::Write { file, text } => {
                let file = self.folder.join(file);
                fs::create_dir_all(file.parent().expect("it is in the folder")).expect("the folder can be made");
                fs::write(file, text).expect("the file can be written");
            }
            Step::Run { command, .. } if command.starts_with("cd ") => {
                self.folder = self.folder.join(&command["cd ".len()..]);
            }
            Step::Run { command, shown } => {
                let started = Instant::now();
                if command.starts_with("pilothouse dev") {
                    let dev = self.starts(&format!("{command} --plain"), &DEV_SAYS);
                    assert!(interrupt(dev), "$ {command}\nends well");
                } else if command.starts_with("pilothouse run") {
                    self.host = Some(self.starts(command, &HOST_SAYS));
                } else {
                    self.runs(command, shown);
                }
                self.took.push((command.clone(), started.elapsed()));
            }
        }
    }

    /// The shell that runs a command.
    fn shell(&self, command: &str) -> Command {
        let root = root().canonicalize().expect("the repository is there");
        let mut shell = Command::new("sh");
        shell
            .args(["-euc", command])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .env("PATH", &self.path)
            .env("XDG_CACHE_HOME", root.join("target/test-code"))
            // What is compiled once is there for the next run of this test.
            .env("CARGO_BUILD_BUILD_DIR", root.join("target/tutorial"));
        match &self.kubeconfig {
            Some(file) => shell.env("KUBECONFIG", file),
            None => shell.env_remove("KUBECONFIG"),
        };
        shell
    }

    fn runs(&self, command: &str, shown: &[String]) {
        let output = self.shell(command).output().expect("sh runs");
        let printed = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "$ {command}\n{printed}{said}{}", output.status);
        assert!(
            has_shown(&printed, shown),
            "$ {command}\nprints\n{printed}{said}\nand the page shows\n{}",
            shown.join("\n")
        );
    }

    /// Starts a command that goes on, and waits until it has said this.
    fn starts(&self, command: &str, says: &[&str]) -> Child {
        let started = Instant::now();
        // In place of the shell, so that it is the process that is interrupted. Lines of its log are part of what it says.
        let mut process = self
            .shell(&format!("exec {command} 2>&1"))
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let output = BufReader::new(process.stdout.take().expect("it is piped"));
        let (sender, printed) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).for_each(|line| {
                // Nobody listens any more once it has said enough, and it goes on.
                let _ = sender.send(line);
            });
        });
        let mut said = String::new();
        while !says.iter().all(|line| said.contains(line)) {
            let Ok(line) = printed.recv_timeout(STARTS_WITHIN.saturating_sub(started.elapsed())) else {
                let _ = process.kill();
                panic!("$ {command}\nsays\n{said}\nand not {says:?}");
            };
            said.push_str(&line);
            said.push('\n');
        }
        process
    }

    /// Prints how long the commands took, and all of them together.
    fn sums_up(&self, page: &str) {
        println!("{page}, seconds of each command:");
        for (command, took) in &self.took {
            println!("{:>8.1}  {command}", took.as_secs_f64());
        }
        let all: Duration = self.took.iter().map(|(_, took)| *took).sum();
        println!("{page}: {:.1} minutes", all.as_secs_f64() / 60.0);
    }
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join("docs").join(name)).expect("the page can be read")
}

/// The languages of the second tutorial.
const LANGUAGES: [&str; 2] = ["JavaScript", "Python"];

/// Returns the steps of a reader of this language.
fn steps_in(language: &str) -> Vec<Step> {
    let others: Vec<_> = LANGUAGES.into_iter().filter(|it| *it != language).collect();
    steps(&of_language(&page("tutorial-other-languages.md"), language, &others))
}

fn assert_all_steps(steps: Vec<Step>, needed: &[&str]) {
    let commands: Vec<_> = steps
        .into_iter()
        .filter_map(|step| match step {
            Step::Run { command, .. } => Some(command),
            Step::Write { .. } => None,
        })
        .collect();
    let always = [
        "pilothouse new ",
        "pilothouse test",
        "pilothouse render",
        "pilothouse check",
        "pilothouse dev",
    ];
    for command in always.iter().chain(needed) {
        assert!(
            commands.iter().any(|it| it.starts_with(command)),
            "{command}: {commands:#?}"
        );
    }
}

#[test]
fn the_tutorials_have_all_steps_of_an_author() {
    assert_all_steps(steps(&page("tutorial.md")), &["cargo test", "pilothouse build"]);
    assert_all_steps(steps_in("JavaScript"), &["npm install", "npm test", "npm run build"]);
    assert_all_steps(steps_in("Python"), &["make test", "make build"]);
}

mod external {
    use super::*;

    fn follow(page: &str, steps: &[Step]) {
        let folder = tempfile::tempdir().expect("folders can be made");
        follow_as(Reader::new(folder.path()), page, steps);
    }

    fn follow_as(mut reader: Reader, page: &str, steps: &[Step]) {
        for step in steps {
            reader.does(step);
        }
        reader.sums_up(page);
    }

    #[test]
    fn the_tutorial_works_from_an_empty_folder() {
        follow("docs/tutorial.md", &steps(&page("tutorial.md")));
    }

    mod javascript {
        #[test]
        fn the_tutorial_works_from_an_empty_folder() {
            super::follow("the tutorial in JavaScript", &super::steps_in("JavaScript"));
        }
    }

    mod python {
        #[test]
        fn the_tutorial_works_from_an_empty_folder() {
            super::follow("the tutorial in Python", &super::steps_in("Python"));
        }
    }

    mod kubectl {
        use pilothouse_external::programs::Program;
        use pilothouse_testkit::controlplane::{ControlPlane, Options};
        use pilothouse_testkit::host::free_address;
        use pilothouse_testkit::requests::TEST_ACCOUNT;
        use serde_json::json;
        use tempfile::TempDir;

        use super::*;

        /// A reader with a cluster and kubectl, in an empty folder.
        async fn reader_with_a_cluster() -> (Reader, ControlPlane, TempDir) {
            let control_plane = ControlPlane::start(Options::default()).await.expect("it starts");
            let folder = tempfile::tempdir().expect("folders can be made");
            let mut reader = Reader::new(folder.path());
            reader.kubeconfig = Some(control_plane.kubeconfig_file(TEST_ACCOUNT).expect("it can be written"));
            let kubectl = Program::Kubectl.path();
            let programs = kubectl.parent().expect("a program is in a folder");
            reader.path = format!("{}:{}", reader.path, programs.display());
            (reader, control_plane, folder)
        }

        #[tokio::test]
        async fn the_quick_start_works_from_an_empty_folder() {
            let (reader, _control_plane, _folder) = reader_with_a_cluster().await;
            follow_as(reader, "docs/quick-start.md", &steps(&page("quick-start.md")));
        }

        /// The section of a page with this heading.
        fn section(page: &str, heading: &str) -> String {
            let (_, rest) = page.split_once(heading).expect("the page has the section");
            rest.split("\n## ").next().unwrap_or_default().to_owned()
        }

        const ACCOUNT: &str = "--namespace pilothouse-system";

        /// The host of the Deployment that was applied, as a process with a token of its ServiceAccount.
        fn host_of_the_deployment(reader: &Reader, cluster: &ControlPlane, api: &str) -> Child {
            let printed = |command: &str| {
                let output = reader.shell(command).output().expect("sh runs");
                assert!(
                    output.status.success(),
                    "$ {command}\n{}",
                    String::from_utf8_lossy(&output.stderr)
                );
                String::from_utf8(output.stdout).expect("it is text")
            };
            let arguments = "-o jsonpath='{.spec.template.spec.containers[0].args}'";
            let arguments = printed(&format!("kubectl get deployment pilothouse {ACCOUNT} {arguments}"));
            let arguments: Vec<String> = serde_json::from_str(&arguments).expect("they are a list");
            let token = printed(&format!("kubectl create token pilothouse {ACCOUNT}"));
            let file = |name: &str, text: &str| {
                let file = reader.folder.join(name);
                fs::write(&file, text).expect("the folder is ours");
                file.display().to_string()
            };
            let authority = file("ca.crt", cluster.certificate_authority());
            let kubeconfig = json!({
                "apiVersion": "v1", "kind": "Config", "current-context": "it",
                "clusters": [{"name": "it", "cluster": {"server": cluster.url(), "certificate-authority": authority}}],
                "users": [{"name": "pod", "user": {"token": token.trim()}}],
                "contexts": [{"name": "it", "context": {"cluster": "it", "user": "pod"}}],
            });
            let kubeconfig = file("host.yaml", &kubeconfig.to_string());
            let mut command = format!("pilothouse-host --kubeconfig={kubeconfig} --namespace=pilothouse-system");
            for argument in arguments {
                let here = match argument.split_once('=').map_or(&*argument, |(option, _)| option) {
                    "--plugin-dir" => "--plugin-dir=../website/target/plugins".to_owned(),
                    "--cache-dir" => "--cache-dir=cache".to_owned(),
                    "--metrics-address" => "--metrics-address=off".to_owned(),
                    "--api-address" => format!("--api-address={api} --api-key-file=api.key"),
                    _ => argument,
                };
                command = format!("{command} {here}");
            }
            reader.starts(&command, &["this replica leads"])
        }

        /// Replaces the page's containers and Helm: an image is not built, kubectl applies the rendered chart with its
        /// defaults, and the host is a process, so the Service leads nowhere.
        #[tokio::test]
        async fn the_host_is_installed_and_runs_a_plugin_as_the_page_says() {
            let (mut reader, cluster, folder) = reader_with_a_cluster().await;
            for step in steps(&section(&page("quick-start.md"), "## 2. Make a plugin")) {
                reader.does(&step);
            }
            reader.folder = folder.path().join("checkout");
            fs::create_dir(&reader.folder).expect("the folder is ours");
            symlink(
                root().canonicalize().expect("it is there").join("deploy"),
                reader.folder.join("deploy"),
            )
            .expect("the folder is empty");
            let api = free_address().expect("there is one").to_string();
            for step in steps(&section(&page("installation.md"), "## On a throw-away cluster")) {
                let Step::Run { command, shown } = step else { continue };
                let program = command.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
                let command = match &*program {
                    "cargo xtask" | "docker build" | "kind load" | "kind delete" => continue,
                    "helm install" => "kubectl apply --server-side --kustomize deploy/kustomize".to_owned(),
                    "kubectl rollout" => {
                        reader.host = Some(host_of_the_deployment(&reader, &cluster, &api));
                        continue;
                    }
                    "pilothouse install" | "pilothouse uninstall" => format!("{command} --yes"),
                    "pilothouse why" => format!("{command} --host http://{api} --api-key-file api.key"),
                    _ => command,
                };
                reader.does(&Step::Run { command, shown });
            }
            reader.sums_up("docs/installation.md");
        }
    }
}
