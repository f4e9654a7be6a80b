//! `pilothouse test` as an author runs it: in a project's folder, with a component, scenarios and golden cases.
#![allow(clippy::unwrap_used, reason = "all of it is for tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

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
    /// Without a component, which takes a moment to copy.
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
fn a_mistake_in_a_scenario_is_an_error_with_its_place_before_anything_runs() {
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

mod isolated {
    use super::*;

    #[test]
    fn a_golden_case_is_written_holds_and_fails_with_the_difference_and_the_reconcile() {
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
                "--- found",
                "-    replicas: 3",
                "+    replicas: 2",
                "The reconcile that answered this: AppService shop/web",
                "It read:",
                "Deployment shop/web",
                "1 of 1 tests failed",
            ],
        );
        assert!(!text.contains('\u{1b}'), "colours are for terminals: {text}");
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
}

mod simulated {
    use super::*;

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
    }

    #[test]
    fn a_failed_expectation_shows_the_difference_and_the_runs_of_the_object() {
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
    fn scenarios_of_a_folder_run_against_the_component_that_they_name() {
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
