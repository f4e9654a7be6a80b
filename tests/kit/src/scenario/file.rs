//! Owns the form of a scenario file: what is in it besides its steps' actions, and what is said about a file that can't
//! be read. Leaves the actions to `form`, and doing them to `run`.
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
use serde_saphyr::Spanned;
use thiserror::Error;

use super::form::{Action, Apply, Create, Delete, Expect, ExpectWrites, HostAction, Patch, Remember, Wait};
use crate::host::SteeredPlugin;

/// A story that both clusters must agree on.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// The file's name without its extension; namespaces are named after it.
    pub name: String,
    /// Where it was read.
    pub file: PathBuf,
    /// One sentence.
    pub about: String,
    /// The plugins that the host must be running; variables in their configurations are not put in yet.
    pub plugins: Vec<SteeredPlugin>,
    /// Whether the host serves webhooks from its first start on.
    pub webhooks: bool,
    /// Whether the host runs what Plugin resources say, with `NAME.wasm` as the file of each built plugin. The scenario makes
    /// them itself.
    pub resources: bool,
    /// What is done, in order.
    pub steps: Vec<Step>,
}

/// One step. It is kept as it was written, because variables are put in when it is taken; reading the file has proved
/// that it has the right form.
#[derive(Debug, Clone)]
pub struct Step {
    /// Counted from one.
    pub number: usize,
    /// Where it begins in the file.
    pub line: u64,
    /// What it is about.
    pub name: Option<String>,
    /// How often it is taken; once when absent.
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

/// Why a file is no scenario.
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
    /// The file is not YAML, or is not a scenario at its outermost level.
    #[error("parse scenario {}: {reason}", .file.display())]
    Parse {
        /// The file.
        file: PathBuf,
        /// The parser's words, with the line.
        reason: String,
    },
    /// A step says something that can't be done.
    #[error("{}:{line}: step {number}: {reason}", .file.display())]
    Step {
        /// The file.
        file: PathBuf,
        /// Where the step begins.
        line: u64,
        /// Counted from one.
        number: usize,
        /// What is wrong, and what would be right.
        reason: String,
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

    /// Whether the host serves webhooks at some time.
    pub fn serves_webhooks(&self) -> bool {
        self.webhooks || self.steps.iter().any(|step| step.raw["host"] == "serveWebhooks")
    }

    /// Reads a text as if it were in that file.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ScenarioFileError> {
        let failed = |reason: String| ScenarioFileError::Parse {
            file: file.to_owned(),
            reason,
        };
        let document: Document = serde_saphyr::from_str(text).map_err(|error| failed(error.to_string()))?;
        let name = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or("scenario")
            .to_owned();
        if document.steps.is_empty() {
            return Err(failed("there are no steps".to_owned()));
        }
        if document.plugins.is_none() != document.resources {
            let problem = "the host runs either the plugins of `plugins`, or with `resources: true` those of Plugin resources; \
                           give one of the two";
            return Err(failed(problem.to_owned()));
        }
        let mut steps = Vec::with_capacity(document.steps.len());
        for (index, step) in document.steps.into_iter().enumerate() {
            let (number, line, raw) = (index + 1, step.referenced.line(), step.value);
            let form = parse_step(&raw).map_err(|reason| ScenarioFileError::Step {
                file: file.to_owned(),
                line,
                number,
                reason,
            })?;
            let StepForm {
                name,
                for_each,
                action: _,
            } = form;
            steps.push(Step {
                number,
                line,
                name,
                for_each,
                raw,
            });
        }
        Ok(Self {
            name,
            file: file.to_owned(),
            about: document.about,
            plugins: document.plugins.unwrap_or_default(),
            webhooks: document.webhooks,
            resources: document.resources,
            steps,
        })
    }
}

/// What a step says.
pub(super) struct StepForm {
    name: Option<String>,
    for_each: Option<ForEach>,
    pub(super) action: Action,
}

/// Reads a step; for its action to be taken, its variables must have been put in.
pub(super) fn parse_step(raw: &Value) -> Result<StepForm, String> {
    let step: StepDocument = serde_json::from_value(raw.clone()).map_err(|error| error.to_string())?;
    step.form()
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
    steps: Vec<Spanned<Value>>,
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
            note.map(Action::Note),
        ]
        .into_iter()
        .flatten();
        let action = actions.next().ok_or(
            "it has no action: give one of apply, create, patch, delete, wait, expect, remember, host, expectWrites, note",
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
    fn an_unknown_member_is_named_with_file_line_and_step() {
        let error = parse("  - note: hello\n  - name: second\n    aply: {}\n").unwrap_err();
        assert!(
            error.starts_with("a/story.yaml:5: step 2: unknown field `aply`, expected one of"),
            "{error}"
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
            Scenario::parse(Path::new("a/story.yaml"), &text).map(|scenario| scenario.plugins)
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
        assert!(refused.contains("its `name` and `configuration`"), "{refused}");
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
    }
}
