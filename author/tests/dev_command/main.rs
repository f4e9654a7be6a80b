//! `pilothouse dev` as an author runs it, as a process of its own.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

#[path = "../../../tests/end-to-end/tests/lifecycle/dice.rs"]
mod dice;
#[path = "../commands/program.rs"]
mod program;
mod real;
mod terminal;

use program::{Ended, Lines, WITHIN};

fn component(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../target/plugins")
        .join(format!("{name}.wasm"))
}

fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = program::program(folder);
    command.arg("dev").args(arguments);
    command
}

/// Runs the command to its end: returns the exit code and the output.
fn ended(arguments: &[&str], folder: &Path) -> (i32, String) {
    let Ended { code, out, err } = program::ended(&mut command(arguments, folder));
    (code, out + &err)
}

#[test]
fn what_cannot_be_run_is_named_with_the_next_step() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    fs::write(folder.path().join("web.wasm"), "no component").unwrap();
    fs::write(folder.path().join("sample.yaml"), "kind: Website\n").unwrap();
    fs::write(folder.path().join("empty.yaml"), "# Nothing yet.\n").unwrap();
    let plugin = "apiVersion: pilothouse.dev/v1alpha1\nkind: Plugin\nspec: {wasi: All}\n";
    fs::write(folder.path().join("plugin.yaml"), plugin).unwrap();
    for (arguments, parts) in [
        (&["--plain"][..], &["there is no Cargo.toml in .", "pilothouse new"][..]),
        (&["nope.wasm"], &["there is no component nope.wasm"]),
        (
            &["web.wasm", "--port", &port],
            &["cannot serve the simulated cluster", "--port"],
        ),
        (
            &["web.wasm", "--kubeconfig", "/nope/config"],
            &["/nope/config", "--kubeconfig"],
        ),
        (&["web.wasm", "-f", "nope.yaml"], &["cannot read the sample nope.yaml"]),
        (
            &["web.wasm", "-f", "empty.yaml"],
            &["the sample empty.yaml is empty; write at least one object"],
        ),
        (
            &["web.wasm", "--config", "plugin.yaml"],
            &["plugin.yaml", "spec.wasi", "None or Inert"],
        ),
        (
            &["web.wasm", "-f", "sample.yaml"],
            &["an object in sample.yaml has no apiVersion"],
        ),
    ] {
        let (code, text) = ended(arguments, folder.path());
        assert_eq!(code, 1, "{arguments:?}: {text}");
        for part in parts {
            assert!(text.contains(part), "{arguments:?}: {part:?} is not in\n{text}");
        }
    }
}

/// The command while it runs.
fn start(arguments: &[&str], folder: &Path) -> Lines {
    Lines::of(&mut command(arguments, folder))
}

/// Writes a component atomically; with another mark it is another version.
fn put(name: &str, path: &Path, mark: u8) {
    let mut bytes = fs::read(component(name)).expect("`cargo xtask plugins` builds the plugins");
    // A custom section, which changes nothing but the digest.
    bytes.extend([0, 3, 1, b'm', mark]);
    let new = path.with_extension("new");
    fs::write(&new, bytes).unwrap();
    fs::rename(new, path).unwrap();
}

const OBJECT: &str = "\
apiVersion: kosmos.io/v1
kind: AppService
metadata: {name: NAME, namespace: shop}
spec: {size: 1, image: \"web:1\"}
";

mod simulated {
    use pilothouse_cluster::connect::{ClusterTarget, connect};
    use pilothouse_testkit::scenario::Objects;

    use super::terminal::PseudoTerminal;
    use super::*;

    /// Applies an object as kubectl would, with the kubeconfig alone.
    fn apply(kubeconfig: &str, name: &str) {
        apply_object(kubeconfig, &OBJECT.replace("NAME", name)).unwrap();
    }

    fn apply_object(kubeconfig: &str, object: &str) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let target = ClusterTarget {
                kubeconfig: Some(kubeconfig.into()),
                context: None,
            };
            let client = connect(&target, "kubectl").await.unwrap();
            let object = serde_saphyr::from_str(object).unwrap();
            let stored = Objects::new(client, "default").apply("kubectl", &object).await;
            stored.map(drop)
        })
    }

    #[test]
    fn a_saved_component_takes_over_while_the_host_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("web.wasm");
        put("app-service", &file, 0);
        fs::write(folder.path().join("sample.yaml"), OBJECT.replace("NAME", "sample")).unwrap();
        let mut dev = start(&["web.wasm", "--plain", "-f", "sample.yaml"], folder.path());
        let about = dev.wait_for(&["export KUBECONFIG="]);
        let kubeconfig = about.split("KUBECONFIG=").nth(1).unwrap().to_owned();
        dev.wait_for(&["build", "runs,"]);
        dev.wait_for(&["applied sample.yaml"]);
        dev.wait_for(&["Deployment shop/sample was made for AppService shop/sample"]);

        apply(&kubeconfig, "web");
        dev.wait_for(&["run", "AppService shop/web: the object changed; wrote"]);
        dev.wait_for(&["Deployment shop/web is Current"]);

        put("app-service", &file, 1);
        let swapped = dev.wait_for(&["runs,", "ms after it was saved"]);
        dev.wait_for(&["AppService shop/web: a new version of the plugin; nothing to change"]);
        println!("{swapped}");

        let sample = OBJECT.replace("NAME", "sample").replace("size: 1", "size: 2");
        fs::write(folder.path().join("sample.yaml"), sample).unwrap();
        dev.wait_for(&["applied sample.yaml"]);
        dev.wait_for(&["AppService shop/sample changed by pilothouse-dev: .spec.size: 1 becomes 2"]);
        dev.wait_for(&["AppService shop/sample: the object changed; wrote"]);
        dev.wait_for(&["Deployment shop/sample changed by ", ".spec.replicas: 1 becomes 2"]);

        fs::write(&file, "broken").unwrap();
        dev.wait_for(&["build", "the version before goes on"]);
        apply(&kubeconfig, "later");
        dev.wait_for(&["Deployment shop/later was made for AppService shop/later"]);
        assert_eq!(dev.interrupt(), Some(0));
    }

    #[test]
    fn what_the_validator_refuses_is_not_stored() {
        let folder = tempfile::tempdir().unwrap();
        put("gate", &folder.path().join("gate.wasm"), 0);
        let gate = |size: u16| {
            format!(
                "{{apiVersion: gate.test.dev/v1, kind: Gate, metadata: {{name: it, namespace: shop}}, spec: {{size: {size}}}}}"
            )
        };
        fs::write(folder.path().join("sample.yaml"), gate(1)).unwrap();
        let mut dev = start(&["gate.wasm", "--plain", "-f", "sample.yaml"], folder.path());
        let about = dev.wait_for(&["export KUBECONFIG="]);
        let kubeconfig = about.split("KUBECONFIG=").nth(1).unwrap().to_owned();
        dev.wait_for(&["ConfigMap shop/it was made for Gate shop/it"]);
        let refused = apply_object(&kubeconfig, &gate(2000)).unwrap_err();
        assert!(
            refused.contains("spec.size: Invalid value: 2000: must be 0 to 1000"),
            "{refused}"
        );
        apply_object(&kubeconfig, &gate(3)).unwrap();
        dev.wait_for(&["Gate shop/it changed by ", ".spec.size: 1 becomes 3"]);
        fs::write(folder.path().join("sample.yaml"), gate(3000)).unwrap();
        dev.wait_for(&["sample.yaml: cannot apply Gate it:", "must be 0 to 1000"]);
        assert_eq!(dev.interrupt(), Some(0));
    }

    /// A kind may come later, so it is tried for half a minute; neither a new component nor the end waits for that.
    #[test]
    fn a_refused_sample_is_reported_at_once_and_blocks_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (file, sample) = (folder.path().join("web.wasm"), folder.path().join("sample.yaml"));
        let good = OBJECT.replace("NAME", "sample");
        put("app-service", &file, 0);
        fs::write(&sample, good.replace("size: 1", "sise: 1")).unwrap();
        let mut dev = start(&["web.wasm", "--plain", "-f", "sample.yaml"], folder.path());
        let refused = dev.wait_for(&["sample.yaml: cannot apply AppService sample:"]);
        assert!(
            refused.ends_with(".spec.sise: field not declared in schema (500)"),
            "{refused}"
        );
        fs::write(&sample, good.replace("kind: AppService", "kind: AppServise")).unwrap();
        let refused = dev.wait_for(&["cannot apply AppServise sample:"]);
        assert!(
            refused.ends_with(
                "the cluster serves no kind AppServise in kosmos.io/v1; did you mean AppService?; trying again for 30 s"
            ),
            "{refused}"
        );
        put("app-service", &file, 1);
        let swapped = dev.wait_for(&["runs,", "ms after it was saved"]);
        let milliseconds = swapped.split_whitespace().find_map(|word| word.parse::<u32>().ok());
        assert!(milliseconds.is_some_and(|it| it < 20_000), "{swapped}");
        fs::write(&sample, good).unwrap();
        dev.wait_for(&["applied sample.yaml"]);
        assert_eq!(dev.interrupt(), Some(0));
    }

    #[test]
    fn what_the_plugin_logs_is_shown_with_its_level() {
        let folder = tempfile::tempdir().unwrap();
        put("hostile", &folder.path().join("hostile.wasm"), 0);
        let object = "apiVersion: hostile.test.dev/v1\nkind: Hostile\nmetadata: {name: it}\n\
                      spec: {behaviour: log-each-level, text: what the guest says}\n";
        fs::write(folder.path().join("sample.yaml"), object).unwrap();
        let mut dev = start(&["hostile.wasm", "--plain", "-f", "sample.yaml"], folder.path());
        for level in ["INFO", "WARN", "ERROR"] {
            dev.wait_for(&[" log ", level, "what the guest says"]);
        }
        assert_eq!(dev.interrupt(), Some(0));
    }

    #[test]
    fn a_build_that_fails_is_shown_and_the_next_one_swaps() {
        let folder = tempfile::tempdir().unwrap();
        let at = |path: &str| folder.path().join(path);
        fs::create_dir_all(at("src")).unwrap();
        fs::create_dir_all(at("target/pilothouse")).unwrap();
        put("app-service", &at("src/made"), 0);
        fs::write(at("src/lib.rs"), "good").unwrap();
        let build = "echo compiling; grep -q good src/lib.rs || { echo 'error: mismatched types' >&2; exit 1; }; \
                     cp src/made target/pilothouse/web.wasm";
        let mut dev = start(&["--plain", "--build", build], folder.path());
        dev.wait_for(&["build", "compiling"]);
        dev.wait_for(&["build", "built in"]);
        dev.wait_for(&["build", "runs,", "ms after it was built"]);
        assert!(
            at("target/pilothouse/kubeconfig.yaml").is_file(),
            "kubectl finds it at the same place each time"
        );
        fs::write(at("src/lib.rs"), "bad").unwrap();
        dev.wait_for(&["error: mismatched types"]);
        dev.wait_for(&["build", "failed (exit status: 1)"]);
        put("app-service", &at("src/made"), 1);
        fs::write(at("src/lib.rs"), "good again").unwrap();
        dev.wait_for(&["build", "runs,"]);
        assert_eq!(dev.interrupt(), Some(0));
        assert!(
            !at("target/pilothouse/kubeconfig.yaml").exists(),
            "it goes with its cluster"
        );
    }

    #[test]
    fn a_project_without_its_tools_names_what_installs_them() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("pilothouse.js"), "").unwrap();
        let programs = folder.path().join("programs");
        fs::create_dir(&programs).unwrap();
        let start_without_tools = || Lines::of(command(&["--plain"], folder.path()).env("PATH", &programs));
        let mut dev = start_without_tools();
        dev.wait_for(&["node is not installed; install it: on Debian `apt-get install nodejs npm`"]);
        assert_eq!(dev.interrupt(), Some(0));
        // With a shell, which says that it finds no npm, and with node.
        for (name, target) in [("sh", "/bin/sh"), ("node", "/bin/true")] {
            std::os::unix::fs::symlink(target, programs.join(name)).unwrap();
        }
        let mut dev = start_without_tools();
        dev.wait_for(&["`npm run build` failed (exit status: 127): npm is not installed; install it: "]);
        assert_eq!(dev.interrupt(), Some(0));
    }

    #[test]
    fn sources_that_change_during_a_build_are_built_after_it() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |path: &str| folder.path().join(path);
        let go = other.path().join("go");
        fs::create_dir_all(at("src")).unwrap();
        fs::create_dir_all(at("target/pilothouse")).unwrap();
        put("app-service", &at("target/made"), 0);
        fs::write(at("src/lib.rs"), "first").unwrap();
        let build = format!(
            "echo it builds $(cat src/lib.rs); while ! [ -e {} ]; do sleep 0.05; done; cp target/made target/pilothouse/web.wasm",
            go.display()
        );
        let mut dev = start(&["--plain", "--build", &build], folder.path());
        dev.wait_for(&["it builds first"]);
        fs::write(at("src/lib.rs"), "second").unwrap();
        dev.wait_for(&["changed again"]);
        fs::write(&go, "").unwrap();
        dev.wait_for(&["it builds second"]);
        dev.wait_for(&["built in"]);
        assert_eq!(dev.interrupt(), Some(0));
    }

    #[test]
    fn a_component_with_wasi_runs_with_a_grant_or_names_next_step() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("dice.wasm"), dice::component()).unwrap();
        let mut dev = start(&["dice.wasm", "--plain"], folder.path());
        let refused = dev.wait_for(&["wasi:random/random@0.2.3"]);
        assert!(refused.contains("--wasi inert"), "{refused}");
        assert_eq!(dev.interrupt(), Some(0));
        let mut dev = start(&["dice.wasm", "--plain", "--wasi", "inert"], folder.path());
        dev.wait_for(&["build", "dice 0.1.0", "runs,"]);
        assert_eq!(dev.interrupt(), Some(0));
        let plugin = "apiVersion: pilothouse.dev/v1alpha1\nkind: Plugin\nspec: {wasi: Inert}\n";
        fs::write(folder.path().join("plugin.yaml"), plugin).unwrap();
        let mut dev = start(&["dice.wasm", "--plain", "--config", "plugin.yaml"], folder.path());
        dev.wait_for(&["build", "dice 0.1.0", "runs,"]);
        assert_eq!(dev.interrupt(), Some(0));
    }

    /// Runs the command in a terminal, with a project whose build goes through these lines.
    fn in_terminal(folder: &Path, build: &str) -> (PseudoTerminal, Child) {
        fs::create_dir_all(folder.join("target/pilothouse")).unwrap();
        put("app-service", &folder.join("made"), 0);
        fs::write(folder.join("sample.yaml"), OBJECT.replace("NAME", "sample")).unwrap();
        let terminal = PseudoTerminal::open();
        let process = terminal.run(&mut command(&["--build", build], folder));
        terminal.wait_for("the view", |shown| shown.contains("q quit"));
        assert!(terminal.is_raw() && terminal.is_alternate() && !terminal.is_cursor_shown());
        (terminal, process)
    }

    /// Asserts that the terminal is as it was before the command.
    fn assert_restored(terminal: &PseudoTerminal) {
        assert!(!terminal.is_raw(), "keys are lines again, and shown");
        assert!(!terminal.is_alternate(), "what was on the screen is there again");
        assert!(terminal.is_cursor_shown());
    }

    #[test]
    fn the_live_view_obeys_keys_and_restores_the_terminal() {
        let folder = tempfile::tempdir().unwrap();
        let build = "cp made target/pilothouse/web.wasm";
        let (mut terminal, mut process) = in_terminal(folder.path(), build);
        terminal.wait_for("the plugin", |shown| shown.contains("ready"));
        terminal.wait_for("the object", |shown| shown.contains("Deployment shop/sample  Current"));
        terminal.press("r");
        terminal.wait_for("what the key does", |shown| {
            shown.contains("resync: every object is reconciled again")
        });
        terminal.press("q");
        assert_eq!(terminal.end_of(&mut process).code(), Some(0));
        assert_restored(&terminal);
        assert!(!terminal.shown().contains("q quit"), "{}", terminal.shown());
    }

    #[test]
    fn the_live_view_shows_build_progress_and_quitting_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let build = "echo Compiling a; printf 'Building 1/2\\rBuilding 2/2\\r'; echo $$ > pid; exec sleep 600";
        let (mut terminal, mut process) = in_terminal(folder.path(), build);
        terminal.wait_for("the progress", |shown| shown.contains("building ... Building 2/2"));
        assert!(
            !terminal.shown().contains("Compiling"),
            "the last line alone is shown: {}",
            terminal.shown()
        );
        let build = fs::read_to_string(folder.path().join("pid")).unwrap();
        terminal.press("q");
        assert_eq!(terminal.end_of(&mut process).code(), Some(0));
        assert_restored(&terminal);
        let begun = Instant::now();
        let state = || fs::read_to_string(format!("/proc/{}/stat", build.trim()));
        while state().is_ok_and(|state| !state.contains(") Z")) {
            assert!(begun.elapsed() < WITHIN, "the build goes on");
            thread::sleep(Duration::from_millis(20));
        }
    }

    #[test]
    fn a_failed_build_is_shown_in_the_live_view_with_what_it_said() {
        let folder = tempfile::tempdir().unwrap();
        let (mut terminal, mut process) = in_terminal(folder.path(), "echo 'error: no such type'; exit 1");
        terminal.wait_for("the failure", |shown| {
            shown.contains("The build failed") && shown.contains("error: no such type")
        });
        // Ctrl-C is a key while the view is shown.
        terminal.press("\u{3}");
        assert_eq!(terminal.end_of(&mut process).code(), Some(0));
        assert_restored(&terminal);
    }
}
