//! Form of a scenario file, except for its steps' actions (`form`), and the errors about a file that can't be read.
//!
//! A scenario is a story in steps that are taken one after the other, on a namespace of its own:
//!
//! ```yaml
//! about: The Deployment follows the size.
//! plugins: [app-service]
//! steps:
//!   - name: an AppService is made
//!     apply:
//!       objects:
//!         - apiVersion: kosmos.io/v1
//!           kind: AppService
//!           metadata: {name: web}
//!           spec: {size: 2, image: "web:1"}
//!   - name: its Deployment appears
//!     wait:
//!       until:
//!         - object: {apiVersion: apps/v1, kind: Deployment, name: web}
//!           matches: {spec: {replicas: 2}}
//! ```
//!
//! Each step has one action and, where it helps, a name, and may be taken for each of several numbers (`forEach`). `$NAMESPACE` stands for the scenario's namespace, and `$NAME`
//! for what a `remember` step has called `NAME`; `$$` is a dollar sign. Objects without a namespace are in `$NAMESPACE`
//! (or in none, where their kind has no namespaces). How `matches` compares is told in [`super::matching`].

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::form::{
    Action, Apply, Create, Delete, Expect, ExpectWrites, HostAction, Patch, Remember, Wait, WorkloadStep,
};
use super::located::{Located, Node, Place};
use super::mistake::{self, Mistake};
use crate::host::SteeredPlugin;
use crate::workloads::Workloads;

/// A story that both clusters must agree on.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name without its extension; namespaces are named after it.
    pub name: String,
    /// Path of the file.
    pub file: PathBuf,
    /// One sentence.
    pub about: String,
    /// Plugins that the host must be running; variables in their configurations are not replaced yet. None: the caller
    /// decides, see [`Scenario::run_by_default`].
    pub plugins: Option<Vec<SteeredPlugin>>,
    /// Set if the host serves webhooks from its first start on.
    pub webhooks: bool,
    /// Set if the host runs the plugins of Plugin resources, with `NAME.wasm` as the file of each built plugin. The
    /// scenario makes the resources itself.
    pub resources: bool,
    /// Handling of Pods: they become ready by themselves, or not.
    pub workloads: Workloads,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

/// One step. It is kept as it was written, because variables are put in when it is taken; reading the file has proved
/// that it has the right form.
#[derive(Debug, Clone)]
pub struct Step {
    /// Counted from one.
    pub number: usize,
    /// Its first line in the file.
    pub line: u64,
    /// Its name.
    pub name: Option<String>,
    /// Numbers for which it is repeated; once when absent.
    pub(super) for_each: Option<ForEach>,
    pub(super) raw: Value,
}

/// `forEach`: the step is taken once for each whole number, in order.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ForEach {
    /// `$NAME` is the number.
    #[serde(rename = "as")]
    pub(super) name: String,
    /// The first.
    pub(super) from: u64,
    /// The last.
    pub(super) to: u64,
}

/// Errors of a file that is no scenario.
#[derive(Debug, Error)]
pub enum ScenarioFileError {
    /// The file or folder can't be read.
    #[error("read {}: {source}", .path.display())]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is not YAML.
    #[error("{}:{}:{}: {reason}", .file.display(), .place.line, .place.column)]
    Parse {
        /// The file.
        file: PathBuf,
        /// Position where the parser stopped.
        place: Place,
        /// The parser's words.
        reason: String,
    },
    /// The file says something that makes no sense.
    #[error("{}", lines(.file, .mistakes))]
    Mistakes {
        /// The file.
        file: PathBuf,
        /// Mistakes: at least one, and at most one of each step.
        mistakes: Vec<Mistake>,
    },
    /// A folder without scenarios, which would be a suite that can't fail.
    #[error("find scenarios in {}: there is no .yaml file", .folder.display())]
    None {
        /// The folder.
        folder: PathBuf,
    },
}

impl Scenario {
    /// Reads one file.
    pub fn read(file: &Path) -> Result<Self, ScenarioFileError> {
        let text = fs::read_to_string(file).map_err(|source| ScenarioFileError::Read {
            path: file.to_owned(),
            source,
        })?;
        Self::parse(file, &text)
    }

    /// Reads every `.yaml` file of a folder, in the order of their names.
    pub fn read_folder(folder: &Path) -> Result<Vec<Self>, ScenarioFileError> {
        let failed = |source| ScenarioFileError::Read {
            path: folder.to_owned(),
            source,
        };
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push(path);
            }
        }
        if files.is_empty() {
            return Err(ScenarioFileError::None {
                folder: folder.to_owned(),
            });
        }
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }

    /// Returns `true` if the host serves webhooks at some time.
    pub fn serves_webhooks(&self) -> bool {
        self.webhooks || self.steps.iter().any(|step| step.raw["host"] == "serveWebhooks")
    }

    /// Returns `true` if the scenario needs simulated nodes.
    pub(super) fn needs_nodes(&self) -> bool {
        self.workloads == Workloads::Ready || self.steps.iter().any(|step| step.raw["workload"].is_object())
    }

    /// Reads a text as if it were in that file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ScenarioFileError> {
        let root: Located = serde_saphyr::from_str(text).map_err(|error| ScenarioFileError::Parse {
            file: file.to_owned(),
            place: error.location().map_or(Place { line: 1, column: 1 }, Place::from),
            reason: without_place(&error.without_snippet().to_string()),
        })?;
        let failed = |mistakes| ScenarioFileError::Mistakes {
            file: file.to_owned(),
            mistakes,
        };
        let document = read_document(&root).map_err(|mistake| failed(vec![mistake]))?;
        let (mut steps, mut mistakes) = (Vec::new(), Vec::new());
        for (index, step) in root.member(STEPS).map_or(&[][..], Located::items).iter().enumerate() {
            let number = index + 1;
            match read_step(step, number) {
                Ok((name, for_each)) => steps.push(Step {
                    number,
                    line: step.place.line,
                    name,
                    for_each,
                    raw: step.value(),
                }),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        if !mistakes.is_empty() {
            return Err(failed(mistakes));
        }
        let name = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or("scenario")
            .to_owned();
        let Document {
            about,
            plugins,
            webhooks,
            resources,
            workloads,
            steps: _,
        } = document;
        Ok(Self {
            name,
            file: file.to_owned(),
            about,
            plugins: plugins.or_else(|| resources.then(Vec::new)),
            webhooks,
            resources,
            workloads,
            steps,
        })
    }

    /// Sets the plugin that the host runs where the file names none: in a project there is one.
    pub fn run_by_default(&mut self, plugin: &str) {
        self.plugins.get_or_insert_with(|| vec![SteeredPlugin::from(plugin)]);
    }
}

/// The member with the steps.
const STEPS: &str = "steps";

/// Maximum count of mistakes that are reported of one file.
const MAX_TOLD: usize = 20;

/// All that a file says besides its steps, which are read one by one.
fn read_document(root: &Located) -> Result<Document, Mistake> {
    let at = |place, problem: &str| Mistake {
        place,
        step: None,
        problem: problem.to_owned(),
    };
    if matches!(root.node, Node::Scalar(Value::Null)) {
        return Err(at(
            root.place,
            "the file is empty; write a scenario, a mapping with `about` and `steps`",
        ));
    }
    if !matches!(root.node, Node::Map(_)) {
        return Err(at(root.place, "a scenario is a mapping with `about` and `steps`"));
    }
    let document: Document = mistake::read(root, None)?;
    if document.steps.is_empty() {
        return Err(at(
            root.member(STEPS).map_or(root.place, |steps| steps.place),
            "there are no steps",
        ));
    }
    if let (Some(_), Some((resources, _))) = (&document.plugins, root.entry("resources"))
        && document.resources
    {
        let problem = "the host runs either the plugins of `plugins`, or with `resources: true` those of Plugin resources; \
                       give one of the two";
        return Err(at(resources.place, problem));
    }
    Ok(document)
}

/// Reads the name of a step and its repetition.
fn read_step(step: &Located, number: usize) -> Result<(Option<String>, Option<ForEach>), Mistake> {
    let document: StepDocument = mistake::read(step, Some(number))?;
    let form = document.form().map_err(|problem| Mistake {
        place: step.place,
        step: Some(number),
        problem,
    })?;
    let StepForm {
        name,
        for_each,
        action: _,
    } = form;
    Ok((name, for_each))
}

/// One line for each mistake, each with its file.
fn lines(file: &Path, mistakes: &[Mistake]) -> String {
    let told = mistakes.iter().take(MAX_TOLD);
    let mut lines: Vec<String> = told.map(|mistake| format!("{}:{mistake}", file.display())).collect();
    let more = mistakes.len().saturating_sub(MAX_TOLD);
    if more > 0 {
        lines.push(format!("{}: {more} more steps have mistakes", file.display()));
    }
    lines.join("\n")
}

/// The parser's words without the place, which is said before them.
fn without_place(words: &str) -> String {
    let words = words.lines().next().unwrap_or_default();
    let place = words
        .find(" at line ")
        .or_else(|| words.find(" (line "))
        .unwrap_or(words.len());
    let rest = words[..place].trim_end_matches([',', ':', ' ']);
    match rest.strip_prefix("error: ").unwrap_or(rest) {
        "" => words.to_owned(),
        rest => rest.to_owned(),
    }
}

/// Members of a step.
pub(super) struct StepForm {
    name: Option<String>,
    for_each: Option<ForEach>,
    pub(super) action: Action,
}

/// Reads a step; for its action to be taken, its variables must have been put in.
pub(super) fn parse_step(raw: &Value) -> Result<StepForm, String> {
    mistake::read_bare::<StepDocument>(raw)?.form()
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "step {}", self.number)?;
        self.name.as_ref().map_or(Ok(()), |name| write!(formatter, " ({name})"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    about: String,
    plugins: Option<Vec<SteeredPlugin>>,
    #[serde(default)]
    webhooks: bool,
    #[serde(default)]
    resources: bool,
    #[serde(default)]
    workloads: Workloads,
    steps: Vec<Value>,
}

/// All actions side by side rather than an enum: an unknown one is then named together with those that there are.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StepDocument {
    name: Option<String>,
    for_each: Option<ForEach>,
    apply: Option<Apply>,
    create: Option<Create>,
    patch: Option<Patch>,
    delete: Option<Delete>,
    wait: Option<Wait>,
    expect: Option<Expect>,
    remember: Option<Remember>,
    host: Option<HostAction>,
    expect_writes: Option<ExpectWrites>,
    workload: Option<WorkloadStep>,
    note: Option<String>,
}

impl StepDocument {
    fn form(self) -> Result<StepForm, String> {
        let Self {
            name,
            for_each,
            apply,
            create,
            patch,
            delete,
            wait,
            expect,
            remember,
            host,
            expect_writes,
            workload,
            note,
        } = self;
        let mut actions = [
            apply.map(Action::Apply),
            create.map(Action::Create),
            patch.map(Action::Patch),
            delete.map(Action::Delete),
            wait.map(Action::Wait),
            expect.map(Action::Expect),
            remember.map(Action::Remember),
            host.map(Action::Host),
            expect_writes.map(Action::ExpectWrites),
            workload.map(Action::Workload),
            note.map(Action::Note),
        ]
        .into_iter()
        .flatten();
        let action = actions.next().ok_or(
            "it has no action: give one of apply, create, patch, delete, wait, expect, remember, host, expectWrites, workload, \
             note",
        )?;
        if actions.next().is_some() {
            return Err("it has more than one action: make a step of each".to_owned());
        }
        if for_each.as_ref().is_some_and(|numbers| numbers.from > numbers.to) {
            return Err("its forEach has no numbers, so nothing would be done".to_owned());
        }
        action.validate()?;
        Ok(StepForm { name, for_each, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(steps: &str) -> Result<Scenario, String> {
        let text = format!("about: a test\nplugins: [x]\nsteps:\n{steps}");
        Scenario::parse(Path::new("a/story.yaml"), &text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_step_knows_its_number_line_and_name() {
        let scenario = parse("  - note: hello\n  - name: second\n    host: settle\n").unwrap();
        assert_eq!(scenario.name, "story");
        let second = &scenario.steps[1];
        assert_eq!(
            (second.number, second.line, second.to_string().as_str()),
            (2, 5, "step 2 (second)")
        );
    }

    #[test]
    fn an_unknown_member_is_named_with_place_and_likely_word() {
        let error = parse("  - note: hello\n  - name: second\n    aply: {}\n").unwrap_err();
        assert_eq!(
            error,
            "a/story.yaml:6:5: step 2: unknown member `aply`; did you mean `apply`? (allowed: `name`, `forEach`, `apply`, \
             `create`, `patch`, `delete`, `wait`, `expect`, `remember`, `host`, `expectWrites`, `workload`, `note`)"
        );
    }

    #[test]
    fn a_step_has_exactly_one_action() {
        assert!(
            parse("  - name: none\n")
                .unwrap_err()
                .contains("no action: give one of apply")
        );
        assert!(
            parse("  - {note: a, host: settle}\n")
                .unwrap_err()
                .contains("more than one action")
        );
    }

    #[test]
    fn a_plugin_is_a_name_or_a_name_and_a_configuration() {
        let plugins = |list: &str| {
            let text = format!("about: a test\nplugins: {list}\nsteps: [{{note: a}}]");
            Scenario::parse(Path::new("a/story.yaml"), &text).map(|scenario| scenario.plugins.unwrap())
        };
        let configured = SteeredPlugin {
            name: "other".to_owned(),
            configuration: Some(serde_json::json!({"namespace": "$NAMESPACE"})),
            limits: None,
        };
        assert_eq!(
            plugins("[x, {name: other, configuration: {namespace: $NAMESPACE}}]").unwrap(),
            [SteeredPlugin::from("x"), configured]
        );
        let refused = plugins("[{name: other, config: {}}]").unwrap_err().to_string();
        assert!(
            refused.starts_with("a/story.yaml:2:25: unknown member `config`; did you mean `configuration`?"),
            "{refused}"
        );
        let refused = plugins("[{configuration: {}}]").unwrap_err().to_string();
        assert!(refused.contains("2:11: the member `name` is missing"), "{refused}");
        let refused = plugins("[5]").unwrap_err().to_string();
        assert!(
            refused.contains("2:11: expected the plugin's name, or its `name`"),
            "{refused}"
        );
    }

    #[test]
    fn workloads_are_ready_unless_the_file_says_never() {
        let parse_whole = |text: &str| Scenario::parse(Path::new("a.yaml"), text);
        let scenario = |line: &str| parse_whole(&format!("about: a\n{line}\nsteps: [{{note: a}}]"));
        assert!(scenario("plugins: []").unwrap().needs_nodes());
        assert!(!scenario("workloads: never").unwrap().needs_nodes());
        let refused = scenario("workloads: soon").unwrap_err().to_string();
        assert!(
            refused.contains("unknown value `soon`") && refused.contains("`ready`, `never`"),
            "{refused}"
        );
        let step = |kind: &str, fate: &str| {
            let object = format!("{{apiVersion: apps/v1, kind: {kind}, name: a}}");
            parse(&format!("  - workload: {{object: {object}, becomes: {fate}}}\n"))
        };
        assert!(step("Deployment", "failed").is_ok() && step("Job", "completed").is_ok());
        let refused = step("Deployment", "completed").unwrap_err();
        assert!(refused.contains("the pods of a Deployment restart always"), "{refused}");
        let refused = step("Job", "complete").unwrap_err();
        assert!(refused.contains("did you mean `completed`?"), "{refused}");
    }

    #[test]
    fn what_could_never_fail_is_refused() {
        assert!(
            parse("  - {note: a, forEach: {as: PORT, from: 2, to: 1}}\n")
                .unwrap_err()
                .contains("nothing would be done")
        );
        assert!(
            parse("  - wait: {until: []}\n")
                .unwrap_err()
                .contains("would always hold")
        );
        assert!(parse("").is_err());
        let folder = tempfile::tempdir().unwrap();
        assert!(
            Scenario::read_folder(folder.path())
                .unwrap_err()
                .to_string()
                .contains("there is no .yaml file")
        );
    }

    #[test]
    fn contradictions_in_a_check_are_refused() {
        let check = |rest: &str| {
            parse(&format!(
                "  - expect: {{that: [{{object: {{apiVersion: v1, kind: Pod, name: a}}, {rest}}}]}}\n"
            ))
        };
        assert!(
            check("absent: true, matches: {}")
                .unwrap_err()
                .contains("wants it absent and something in it")
        );
        assert!(check("equals: 1").unwrap_err().contains("without a path"));
        assert!(check("path: spec").unwrap_err().contains("begins with a dot"));
        assert!(check("path: .spec, equals: 1").is_ok());
    }

    #[test]
    fn durations_have_a_unit() {
        let wait = |within: &str| {
            parse(&format!(
                "  - wait: {{until: [{{object: {{apiVersion: v1, kind: Pod, name: a}}}}], within: {within}}}\n"
            ))
        };
        assert!(wait("500ms").is_ok() && wait("2m").is_ok());
        assert!(wait("\"5\"").unwrap_err().contains("is no duration"));
        assert!(wait("18446744073709551615h").unwrap_err().contains("is no duration"));
        assert!(wait("8761h").unwrap_err().contains("is longer than a year"));
    }

    #[test]
    fn each_kind_of_mistake_has_its_place_and_says_what_is_right() {
        let check = "object: {apiVersion: v1, kind: Pod, name: a}";
        for (step, expected) in [
            (
                "host: setle",
                "4:11: step 1: unknown value `setle`; did you mean `settle`? (allowed: `restart`,",
            ),
            (
                "expectWrites: {atmost: 3}",
                "4:20: step 1: unknown member `atmost`; did you mean `atMost`? (allowed: `atMost`, `after`,",
            ),
            (
                "expectWrites: {atMost: many}",
                "4:28: step 1: expected a whole number, found the string \"many\"",
            ),
            (
                &format!("wait: {{until: [{{{check}, mathces: {{}}}}]}}"),
                "4:67: step 1: unknown member `mathces`; did you mean `matches`?",
            ),
            (
                &format!("wait: {{until: [{{{check}, absent: maybe}}]}}"),
                "4:75: step 1: expected true or false, found the string \"maybe\"",
            ),
            (
                "expect: {that: [{absent: true}]}",
                "4:21: step 1: the member `object` is missing",
            ),
            (
                &format!("wait: {{until: {{{check}}}}}"),
                "4:19: step 1: expected a list, found a mapping",
            ),
            (
                &format!("wait: {{until: [{{{check}}}], within: 30}}"),
                "4:77: step 1: expected a string, found the integer 30",
            ),
            (
                &format!("wait: {{until: [{{{check}}}], within: 30 seconds}}"),
                "4:77: step 1: \"30 seconds\" is no duration: give a whole number with ms, s, m or h",
            ),
            (
                &format!("patch: {{{check}, type: mrge, body: {{}}}}"),
                "4:65: step 1: unknown value `mrge`; did you mean `merge`? (allowed: `json`, `merge`, `strategic`)",
            ),
            (
                "apply: a",
                "4:12: step 1: expected a mapping with members, found the string \"a\"",
            ),
        ] {
            let error = parse(&format!("  - {step}\n")).unwrap_err();
            assert!(
                error.starts_with(&format!("a/story.yaml:{expected}")),
                "{step}\n{error}\nin place of\n{expected}"
            );
        }
    }

    #[test]
    fn mistakes_at_the_outermost_level_have_their_places() {
        for (text, expected) in [
            (
                "about: a\nplugin: [x]\nsteps: [{note: a}]",
                "2:1: unknown member `plugin`; did you mean `plugins`?",
            ),
            ("plugins: [x]\nsteps: [{note: a}]", "1:1: the member `about` is missing"),
            (
                "about: a\nplugins: x\nsteps: [{note: a}]",
                "2:10: expected a list, found the string \"x\"",
            ),
            ("about: a\nsteps: []", "2:8: there are no steps"),
            ("- a", "1:1: a scenario is a mapping with `about` and `steps`"),
            (
                "about: a\nplugins: []\nresources: true\nsteps: [{note: a}]",
                "3:1: the host runs either",
            ),
            ("about: a\nsteps:\n  - note: [a", "3:11: unclosed bracket"),
        ] {
            let error = Scenario::parse(Path::new("a.yaml"), text).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("a.yaml:{expected}")),
                "{text}\n{error}\nin place of\n{expected}"
            );
        }
    }

    #[test]
    fn the_mistakes_of_all_steps_are_told_at_once() {
        let error = parse("  - aply: {}\n  - note: fine\n  - host: setle\n").unwrap_err();
        let places: Vec<&str> = error.lines().map(|line| &line[.."a/story.yaml:4:5".len()]).collect();
        assert_eq!(places, ["a/story.yaml:4:5", "a/story.yaml:6:1"], "{error}");
    }

    #[test]
    fn whoever_tells_a_scenario_may_say_what_the_host_runs() {
        let parse = |text: &str| Scenario::parse(Path::new("a.yaml"), text).unwrap();
        let mut scenario = parse("about: a\nsteps: [{note: a}]");
        assert_eq!(scenario.plugins, None);
        scenario.run_by_default("web");
        assert_eq!(scenario.plugins, Some(vec![SteeredPlugin::from("web")]));
        scenario.run_by_default("other");
        assert_eq!(scenario.plugins, Some(vec![SteeredPlugin::from("web")]));
    }
}
