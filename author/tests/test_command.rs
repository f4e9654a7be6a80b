//! `pilothouse test` as an author runs it: in a project's folder, with a component, scenarios and golden cases.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

#[path = "../../tests/end-to-end/tests/lifecycle/dice.rs"]
mod dice;

/// A project with a built component, a scenario and a golden case.
struct Project(TempDir);

const SCENARIO: &str = "\
about: The Deployment follows the size.
steps:
  - name: an AppService is made
    apply:
      objects:
        - apiVersion: kosmos.io/v1
          kind: AppService
          metadata: {name: web}
          spec: {size: 2, image: \"web:1\"}
  - name: its Deployment appears
    wait:
      until:
        - object: {apiVersion: apps/v1, kind: Deployment, name: web}
          matches: {spec: {replicas: 2}}
      within: 5s
";

const INPUT: &str = "\
apiVersion: kosmos.io/v1
kind: AppService
metadata: {name: web, namespace: shop, uid: \"1\"}
spec: {size: 2, image: \"web:1\"}
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn component(name: &str) -> PathBuf {
    root().join("target/plugins").join(format!("{name}.wasm"))
}

impl Project {
    /// Creates a project without a component, which takes a moment to copy.
    fn without_component() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        project.write("scenarios/created.yaml", SCENARIO);
        project.write("tests/golden/smallest/input.yaml", INPUT);
        project
    }

    fn new() -> Self {
        let project = Self::without_component();
        let built = project.at("target/pilothouse");
        fs::create_dir_all(&built).unwrap();
        fs::copy(component("app-service"), built.join("app-service.wasm"))
            .expect("`cargo xtask plugins` builds the plugins");
        project
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    /// Runs the command: the exit code and all that it printed.
    fn test(&self, arguments: &[&str]) -> (Option<i32>, String) {
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
            .arg("test")
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap();
        let text = [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat();
        (status.code(), text)
    }
}

#[track_caller]
fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn a_scenario_mistake_is_reported_with_place_before_any_run() {
    let project = Project::without_component();
    project.write("target/pilothouse/web.wasm", "no component");
    project.write("scenarios/created.yaml", &SCENARIO.replace("    wait:", "    wiat:"));
    project.write("scenarios/other.yaml", &SCENARIO.replace("within: 5s", "within: 5"));
    let (code, text) = project.test(&[]);
    assert_eq!(code, Some(1), "{text}");
    has(
        &text,
        &[
            "created.yaml:11:5: step 2: unknown member `wiat`; did you mean `wait`? (allowed: `name`,",
            "other.yaml:15:15: step 2: expected a string, found the integer 5",
        ],
    );
}

#[test]
fn what_is_missing_is_named_with_the_next_step() {
    let project = Project::without_component();
    let (code, text) = project.test(&[]);
    assert_eq!(code, Some(1), "{text}");
    has(&text, &["there is no component in", "pilothouse build"]);
    let (code, text) = project.test(&["/nope.wasm"]);
    assert_eq!(code, Some(1), "{text}");
    has(&text, &["there is no component /nope.wasm"]);
    let (code, text) = project.test(&["nope.yaml"]);
    assert_eq!(code, Some(1), "{text}");
    has(&text, &["there is no nope.yaml"]);
    project.write("target/pilothouse/web.wasm", "no component");
    let (code, text) = project.test(&["--filter", "nothing is called so"]);
    assert_eq!(code, Some(1), "{text}");
    has(&text, &["no test is selected"]);
    let (code, text) = project.test(&[]);
    assert_eq!(code, Some(1), "{text}");
    has(&text, &["web.wasm"]);
    let (code, _) = project.test(&["--real", "--isolated"]);
    assert_eq!(code, Some(2));
}

#[test]
fn an_empty_file_and_one_with_two_objects_are_refused() {
    let project = Project::without_component();
    fs::write(project.at("web.wasm"), dice::component()).unwrap();
    let arguments = |path: &'static str| ["web.wasm", path, "--wasi", "inert"];
    let two = format!("{INPUT}---\n{}", INPUT.replace("name: web", "name: other"));
    let empty = "# Nothing yet.\n";
    for (file, text, words) in [
        (
            "scenarios/created.yaml",
            empty,
            &["created.yaml:", "the file is empty", "`about` and `steps`"][..],
        ),
        ("scenarios/created.yaml", "", &["the file is empty"]),
        (
            "tests/golden/smallest/input.yaml",
            empty,
            &["input.yaml is empty", "write at least one object"],
        ),
        (
            "tests/golden/smallest/input.yaml",
            &two,
            &["input.yaml has 2 objects; write one, and those around it to cluster.yaml"],
        ),
    ] {
        project.write(file, text);
        let folder = if file.starts_with("scenarios") {
            "scenarios"
        } else {
            "tests/golden"
        };
        let (code, text) = project.test(&arguments(folder));
        assert_eq!(code, Some(1), "{file}: {text}");
        has(&text, words);
    }
}

mod isolated {
    use super::*;

    /// Checks that the plugin's clock has the time of `case.yaml` in a golden case.
    #[test]
    fn a_golden_case_has_a_time() {
        let project = Project::without_component();
        fs::remove_dir_all(project.at("scenarios")).unwrap();
        fs::remove_dir_all(project.at("tests/golden/smallest")).unwrap();
        project.write(
            "tests/golden/late/input.yaml",
            "apiVersion: hostile.test.dev/v1\nkind: Hostile\nmetadata: {name: h}\nspec: {behaviour: differs-by-clock}\n",
        );
        let hostile = component("hostile");
        let seen = || {
            let (code, said) = project.test(&[hostile.to_str().unwrap(), "tests/golden", "--update"]);
            assert_eq!(code, Some(0), "{said}");
            project.read("tests/golden/late/expected.yaml")
        };
        has(&seen(), &["text: \"0\""]);
        project.write("tests/golden/late/case.yaml", "now: 2026-01-01T00:35:00Z\n");
        has(&seen(), &["1767227700000"]);
        project.write("tests/golden/late/case.yaml", "now: 2026-01-01T00:35:00.999+01:00\n");
        has(&seen(), &["1767224100000"]);
        project.write("tests/golden/late/case.yaml", "");
        has(&seen(), &["text: \"0\""]);
        for (text, words) in [
            ("now: noon", "case.yaml: now is \"noon\"; give a time since 1970"),
            ("now: 5", "case.yaml: now is 5; give a time since 1970"),
            ("now: 1969-12-31T23:59:59Z", "give a time since 1970"),
            (
                "time: 2026-01-01T00:00:00Z",
                "case.yaml: a case can have `now` and nothing else",
            ),
            ("- now", "case.yaml: a case can have `now` and nothing else"),
        ] {
            project.write("tests/golden/late/case.yaml", text);
            let (code, said) = project.test(&[hostile.to_str().unwrap(), "tests/golden"]);
            assert_eq!(code, Some(1), "{said}");
            has(&said, &[words]);
        }
    }

    #[test]
    fn bad_golden_files_are_named_and_an_empty_answer_is_written() {
        let project = Project::new();
        let golden = |name: &str| format!("tests/golden/smallest/{name}.yaml");
        for (name, text, words) in [
            ("cluster", "", "cluster.yaml is empty"),
            (
                "config",
                "---\n",
                "config.yaml is empty; write the plugin's configuration, or remove the file",
            ),
            ("config", "{}\n---\n{}\n", "config.yaml has 2 documents; write one"),
            ("expected", "{}\n---\n{}\n", "expected.yaml has 2 documents; write one"),
        ] {
            project.write(&golden(name), text);
            let (code, text) = project.test(&["--isolated"]);
            assert_eq!(code, Some(1), "{name}: {text}");
            has(&text, &[words]);
            fs::remove_file(project.at(&golden(name))).unwrap();
        }
        project.write(&golden("expected"), "");
        let (code, text) = project.test(&["--isolated"]);
        assert_eq!(code, Some(3), "{text}");
        has(&text, &["expected.yaml is empty; `pilothouse test --update` writes it"]);
        let (code, text) = project.test(&["--isolated", "--update"]);
        assert_eq!(code, Some(0), "{text}");
        has(&project.read(&golden("expected")), &["replicas: 2"]);
    }

    #[test]
    fn a_broken_golden_case_is_reported_and_the_others_run() {
        let project = Project::new();
        project.test(&["--isolated", "--update"]);
        project.write("tests/golden/broken/input.yaml", "");
        project.write("tests/golden/larger/input.yaml", &INPUT.replace("size: 2", "size: 3"));
        project.write("tests/golden/larger/expected.yaml", "{}\n");
        let (code, text) = project.test(&["--isolated", "--junit", "report.xml"]);
        assert_eq!(code, Some(1), "{text}");
        has(
            &text,
            &[
                "ERROR   golden    tests/golden/broken",
                "tests/golden/broken/input.yaml is empty",
                "FAILED  golden    tests/golden/larger",
                "ok      golden    tests/golden/smallest",
                "1 passed, 1 failed, 1 could not be run",
                "1 of 3 tests could not be run",
            ],
        );
        let report = project.read("report.xml");
        let report = roxmltree::Document::parse(&report).unwrap();
        let root = report.root_element();
        assert_eq!(
            ["tests", "failures", "errors"].map(|name| root.attribute(name)),
            [Some("3"), Some("1"), Some("1")]
        );
        let error = report.descendants().find(|node| node.has_tag_name("error")).unwrap();
        assert!(error.attribute("message").unwrap().contains("input.yaml is empty"));
        let (_, text) = project.test(&["--isolated", "-o", "json"]);
        has(&text, &["\"errors\": 1", "\"result\": \"error\""]);
    }

    #[test]
    fn a_golden_case_is_written_then_holds_or_fails_with_a_diff() {
        let project = Project::new();
        let (code, text) = project.test(&["--isolated"]);
        assert_eq!(code, Some(3), "{text}");
        has(&text, &["FAILED", "there is no expected.yaml", "--update"]);
        let (code, text) = project.test(&["--isolated", "--update"]);
        assert_eq!(code, Some(0), "{text}");
        has(
            &text,
            &[
                "updated golden    tests/golden/smallest",
                "0 passed, 0 failed, 1 updated",
            ],
        );
        has(
            &project.read("tests/golden/smallest/expected.yaml"),
            &["replicas: 2", "conditions:"],
        );
        let (code, text) = project.test(&["--isolated"]);
        assert_eq!(code, Some(0), "{text}");

        project.write("tests/golden/smallest/input.yaml", &INPUT.replace("size: 2", "size: 3"));
        let (code, text) = project.test(&["--isolated"]);
        assert_eq!(code, Some(3), "{text}");
        has(
            &text,
            &[
                "the plugin's answer differs",
                "--- expected (expected.yaml)",
                "+++ found (the plugin's answer)",
                "-     replicas: 2",
                "+     replicas: 3",
                "The reconcile that answered this: AppService shop/web",
                "It read:",
                "Deployment shop/web",
                "1 of 1 tests failed",
            ],
        );
        assert!(!text.contains('\u{1b}'), "colours are for terminals: {text}");
    }

    #[test]
    fn a_manifest_that_lists_no_fields_is_tested_with_a_warning() {
        let project = Project::without_component();
        let crd = r#"{"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "appservices.kosmos.io"}, "spec": {"group": "kosmos.io", "scope": "Namespaced",
            "names": {"kind": "AppService", "plural": "appservices"}, "versions": [{"name": "v1", "served": true,
            "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "properties": {
            "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
            "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}}}]}}"#;
        let kind = r#"{"group": "kosmos.io", "version": "v1", "kind": "AppService"}"#;
        for (fields, is_warned) in [("[]", true), (r#"[".spec"]"#, false)] {
            let manifest = format!(
                r#"{{"name": "app", "version": "1.0.0", "crds": [{crd:?}],
                    "controllers": [{{"name": "app", "kind": {kind}, "fields": {fields}}}]}}"#,
            );
            fs::write(project.at("app.wasm"), dice::component_saying(&manifest)).unwrap();
            let arguments = ["app.wasm", "tests/golden", "--wasi", "inert", "--update"];
            let (code, text) = project.test(&arguments);
            assert_eq!(code, Some(0), "{text}");
            let warning = "): controller app lists no fields of kosmos.io/v1 AppService but its metadata";
            assert_eq!(text.contains(warning), is_warned, "{text}");
        }
    }

    #[test]
    fn a_component_older_than_its_source_is_tested_with_a_warning() {
        let project = Project::new();
        let component = File::open(project.at("target/pilothouse/app-service.wasm")).unwrap();
        let built = SystemTime::now() - Duration::from_hours(1);
        component.set_modified(built).unwrap();
        let (_, text) = project.test(&["--isolated", "--update"]);
        assert!(!text.contains("warning"), "this is no project: {text}");
        project.write("pilothouse.py", "");
        project.write("controller.py", "");
        File::open(project.at("pilothouse.py"))
            .unwrap()
            .set_modified(built)
            .unwrap();
        let (code, text) = project.test(&["--isolated"]);
        assert_eq!(code, Some(0), "{text}");
        let warning =
            "warning: target/pilothouse/app-service.wasm is older than controller.py; build it with `make build`";
        has(&text, &[warning]);
        let (_, text) = project.test(&["--isolated", "target/pilothouse/app-service.wasm"]);
        assert!(!text.contains("warning"), "it was named: {text}");
        component
            .set_modified(SystemTime::now() + Duration::from_mins(1))
            .unwrap();
        let (_, text) = project.test(&["--isolated"]);
        assert!(!text.contains("warning"), "it is newer: {text}");
    }

    /// Returns the files below a folder; a rewritten one differs.
    fn files_below(folder: &Path) -> BTreeSet<(PathBuf, u64)> {
        let mut files = BTreeSet::new();
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                files.extend(files_below(&path));
            } else {
                files.insert((path, entry.metadata().unwrap().ino()));
            }
        }
        files
    }

    #[test]
    fn what_render_has_compiled_is_not_compiled_again() {
        let project = Project::new();
        let cache = tempfile::tempdir().unwrap();
        let run = |arguments: &[&str]| {
            let output = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
                .args(arguments)
                .current_dir(project.0.path())
                .env("XDG_CACHE_HOME", cache.path())
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            files_below(cache.path())
        };
        let input = "tests/golden/smallest/input.yaml";
        let compiled = run(&["render", "target/pilothouse/app-service.wasm", "-f", input]);
        assert!(!compiled.is_empty());
        assert_eq!(run(&["test", "--isolated", "--update"]), compiled);
    }

    #[test]
    fn what_is_in_the_cluster_is_read_and_a_refusal_is_an_answer() {
        let project = Project::new();
        project.write(
            "tests/golden/smallest/cluster.yaml",
            "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  ownerReferences: [{apiVersion: kosmos.io/v1, kind: AppService, name: web, uid: \"1\", controller: true}]
status: {replicas: 7}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other, namespace: shop}
",
        );
        project.write("tests/golden/wrong/input.yaml", &INPUT.replace("size: 2, ", ""));
        let (code, text) = project.test(&["--isolated", "--update"]);
        assert_eq!(code, Some(0), "{text}");
        has(&project.read("tests/golden/smallest/expected.yaml"), &["replicas: 7"]);
        has(
            &project.read("tests/golden/wrong/expected.yaml"),
            &["failure:", "missing field", "blame: "],
        );
        project.write("tests/golden/wrong/input.yaml", &INPUT.replace("AppService", "Website"));
        let (code, text) = project.test(&["--isolated", "tests/golden/wrong"]);
        assert_eq!(code, Some(1), "{text}");
        has(&text, &["has no controller", "kosmos.io/v1 AppService"]);
    }

    #[test]
    fn objects_around_a_case_are_in_the_default_namespace() {
        let project = Project::new();
        let input = INPUT.replace(", namespace: shop", "");
        project.write("tests/golden/smallest/input.yaml", &input);
        project.write(
            "tests/golden/smallest/cluster.yaml",
            "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  ownerReferences: [{apiVersion: kosmos.io/v1, kind: AppService, name: web, uid: \"1\", controller: true}]
status: {replicas: 7}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: zones.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Zone}}
---
apiVersion: example.com/v1
kind: Zone
metadata: {name: north}
",
        );
        let (code, text) = project.test(&["--isolated"]);
        assert_eq!(code, Some(3), "{text}");
        has(&text, &["  Deployment default/web\n", "  Zone north\n", "replicas: 7"]);
    }

    #[test]
    fn a_differing_case_is_rewritten_only_on_request() {
        let project = Project::new();
        project.test(&["--isolated", "--update"]);
        let expected = "tests/golden/smallest/expected.yaml";
        let edited = project.read(expected).replace("replicas: 2", "replicas: 9");
        project.write(expected, &edited);
        let (code, text) = project.test(&["--isolated", "--junit", "report.xml", "-o", "json"]);
        assert_eq!(code, Some(3), "{text}");
        assert_eq!(project.read(expected), edited);
        let (document, _) = text.split_once("\n1 of 1 tests failed").unwrap();
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        assert_eq!((&document["passed"], &document["failed"]), (&0.into(), &1.into()));
        assert_eq!(document["tests"][0]["result"], "failed");
        has(
            &project.read("report.xml"),
            &["failures=\"1\"", "replicas: 9", "replicas: 2"],
        );
        // One that holds is not written anew, however it is formatted.
        let same = format!("# A comment.\n{}", edited.replace("replicas: 9", "replicas: 2"));
        project.write(expected, &same);
        let (code, text) = project.test(&["--isolated", "--update"]);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(project.read(expected), same);
        has(&text, &["1 passed, 0 failed in"]);
    }

    #[test]
    fn a_deleted_object_is_finalized() {
        let project = Project::without_component();
        let input = "\
apiVersion: gate.test.dev/v1
kind: Gate
metadata:
  name: g
  uid: \"1\"
  deletionTimestamp: 2026-01-02T03:04:05Z
  finalizers: [gate.test.dev/gate]
spec: {size: 1}
";
        project.write("tests/golden/deleted/input.yaml", input);
        project.write("tests/golden/deleted/config.yaml", "finalizer: true\n");
        let gate = component("gate");
        let (code, text) = project.test(&[gate.to_str().unwrap(), "tests/golden/deleted", "--update"]);
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(project.read("tests/golden/deleted/expected.yaml"), "finalized: true\n");
    }

    #[test]
    fn a_case_takes_its_configuration_alone_or_from_a_plugin() {
        let project = Project::without_component();
        let sample = fs::read_to_string(root().join("deploy/samples/reverse-proxy.yaml")).unwrap();
        project.write("tests/golden/proxy/input.yaml", &sample);
        let plugin = component("reverse-proxy");
        let arguments = [plugin.to_str().unwrap(), "tests/golden/proxy", "--update"];
        for (configuration, image) in [
            ("defaultImage: nginx:alone\n", "nginx:alone"),
            (
                "apiVersion: pilothouse.dev/v1alpha1\nkind: Plugin\nspec: {configuration: {defaultImage: \"nginx:resource\"}}\n",
                "nginx:resource",
            ),
        ] {
            project.write("tests/golden/proxy/config.yaml", configuration);
            let (code, text) = project.test(&arguments);
            assert_eq!(code, Some(0), "{text}");
            has(&project.read("tests/golden/proxy/expected.yaml"), &[image]);
        }
        project.write("tests/golden/proxy/config.yaml", "defaultPicture: nginx\n");
        let (code, text) = project.test(&arguments);
        assert_eq!(code, Some(1), "{text}");
        has(&text, &["tests/golden/proxy/config.yaml", "defaultPicture"]);
    }
}

mod simulated {
    use super::*;

    /// A plugin that waits for a moment which is an hour away is called when that hour has passed in the simulation.
    #[test]
    fn a_plugins_clock_follows_the_simulated_time() {
        let project = Project::without_component();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        let moment = now.as_millis() + 3_600_000;
        project.write(
            "scenarios/created.yaml",
            &format!(
                r#"about: An hour passes.
plugins: [{{name: reader, configuration: {{objects: reads=things, touches: []}}}}]
steps:
  - apply:
      objects:
        - apiVersion: v1
          kind: ServiceAccount
          metadata: {{name: looker, labels: {{reads: things}}, annotations: {{reader.test.dev/reads: '[{{"reached": {moment}}}]'}}}}
  - wait: {{until: [{{object: {{apiVersion: v1, kind: ConfigMap, name: looker}}, matches: {{data: {{seen: "[false]"}}}}}}]}}
  - wait: {{until: [{{object: {{apiVersion: v1, kind: ConfigMap, name: looker}}, matches: {{data: {{seen: "[true]"}}}}}}], within: 2h}}
"#
            ),
        );
        let reader = component("reader");
        let (code, said) = project.test(&[reader.to_str().unwrap(), "scenarios"]);
        assert_eq!(code, Some(0), "{said}");
    }

    #[test]
    fn a_project_needs_no_arguments_and_a_report_has_each_file() {
        let project = Project::new();
        project.test(&["--isolated", "--update"]);
        let (code, text) = project.test(&["--junit", "report.xml", "-o", "json"]);
        assert_eq!(code, Some(0), "{text}");
        let document: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&document["passed"], &document["failed"]), (&2.into(), &0.into()));
        let kinds: Vec<_> = document["tests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|test| &test["kind"])
            .collect();
        assert_eq!(kinds, ["golden", "simulated"]);
        let report = project.read("report.xml");
        let report = roxmltree::Document::parse(&report).unwrap();
        let suites = report.descendants().filter(|node| node.has_tag_name("testsuite"));
        let names: Vec<_> = suites.filter_map(|suite| suite.attribute("name")).collect();
        assert_eq!(names, ["tests/golden/smallest", "scenarios/created.yaml"]);
        let (code, text) = project.test(&["--filter", "creat"]);
        assert_eq!(code, Some(0), "{text}");
        has(
            &text,
            &["ok      simulated scenarios/created.yaml", "1 passed, 0 failed"],
        );
    }

    #[test]
    fn a_failed_expectation_shows_the_diff_and_the_objects_runs() {
        let project = Project::new();
        project.write(
            "scenarios/created.yaml",
            &SCENARIO.replace("{replicas: 2}", "{replicas: 5}"),
        );
        let (code, text) = project.test(&["scenarios", "--junit", "report.xml"]);
        assert_eq!(code, Some(3), "{text}");
        has(
            &text,
            &[
                "FAILED  simulated scenarios/created.yaml",
                "scenarios/created.yaml:10: step 2 (its Deployment appears): after 5 s this does not hold",
                ".spec.replicas: expected 5, found 2",
                "What the host knows of it: AppService",
                "Reconciled by app-service/",
                "Depends on",
                "Last runs",
                "a dependency changed: Deployment",
                "The last lines of the host and the plugin:",
            ],
        );
        has(&project.read("report.xml"), &["failures=\"1\"", "expected 5, found 2"]);
    }

    #[test]
    fn scenarios_of_a_folder_run_against_their_named_component() {
        let project = Project::without_component();
        let (app, created) = (
            component("app-service"),
            root().join("tests/scenarios/app-service/created.yaml"),
        );
        let arguments = [app.to_str().unwrap(), created.to_str().unwrap()];
        let (code, text) = project.test(&arguments);
        assert_eq!(code, Some(0), "{text}");
        let other = component("ecs-binding");
        let (code, text) = project.test(&[other.to_str().unwrap(), created.to_str().unwrap()]);
        assert_eq!(code, Some(3), "{text}");
        has(
            &text,
            &[
                "the scenario runs the plugin app-service",
                "name the file app-service.wasm",
            ],
        );
    }

    #[test]
    fn a_component_with_wasi_needs_a_grant_by_option_or_plugin() {
        let project = Project(tempfile::tempdir().unwrap());
        fs::write(project.at("dice.wasm"), dice::component()).unwrap();
        project.write(
            "tests/golden/dice/input.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n",
        );
        let scenario = "\
about: The plugin wants nothing.
steps:
  - name: a ConfigMap is made
    apply: {objects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: c}}]}
  - name: nothing is written
    expectWrites: {after: resync}
";
        project.write("scenarios/dice.yaml", scenario);
        for tests in [
            &["tests/golden"][..],
            &["scenarios"],
            &["tests/golden", "--wasi", "none"],
        ] {
            let (code, text) = project.test(&[&["dice.wasm", "--update"], tests].concat());
            assert_eq!(code, Some(1), "{tests:?}: {text}");
            has(&text, &["imports wasi:random/random@0.2.3", "--wasi inert"]);
        }
        let (code, text) = project.test(&["dice.wasm", "tests/golden", "scenarios", "--wasi", "inert", "--update"]);
        assert_eq!(code, Some(0), "{text}");
        has(
            &text,
            &[
                "updated golden    tests/golden/dice",
                "ok      simulated scenarios/dice.yaml",
            ],
        );
        let plugin = "apiVersion: pilothouse.dev/v1alpha1\nkind: Plugin\nspec: {wasi: Inert}\n";
        project.write("tests/golden/dice/config.yaml", plugin);
        let (code, text) = project.test(&["dice.wasm", "tests/golden"]);
        assert_eq!(code, Some(0), "{text}");
        let (code, text) = project.test(&["dice.wasm", "tests/golden", "--wasi", "none"]);
        assert_eq!(code, Some(1), "{text}");
    }
}

mod real {
    use super::*;

    #[test]
    fn a_scenario_holds_on_a_real_control_plane() {
        let project = Project::new();
        let (code, text) = project.test(&["--real", "scenarios"]);
        assert_eq!(code, Some(0), "{text}");
        has(&text, &["ok      real      scenarios/created.yaml"]);
    }
}
