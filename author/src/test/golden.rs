//! Owns golden cases: a folder with an object and what is around it, and what the plugin must answer. The plugin runs under
//! the host's sandbox and limits, without a cluster. Leaves the call to the kit's isolation.
//!
//! | file | has |
//! |---|---|
//! | `input.yaml` | the object that is reconciled; with `metadata.deletionTimestamp` it is finalized |
//! | `cluster.yaml` | the other objects that the plugin may read, as several documents; may be absent |
//! | `config.yaml` | the plugin's configuration; may be absent |
//! | `expected.yaml` | the answer: `objects`, `status`, `conditions` and `events`, or `failure`; `--update` writes it |

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail, ensure};
use pilothouse_core::{Failure, Kind};
use pilothouse_testkit::isolation::{Failed, FinalizerAnswer, Isolated, LogLine, Reconciled, Run, read_in_words};
use serde_json::{Value, json};
use similar::TextDiff;

use super::{FinishedTest, TestFailure, TestKind, TestResult, shown};
use crate::components::ComponentFiles;

/// The files of a case.
pub(super) const INPUT: &str = "input.yaml";
const CLUSTER: &str = "cluster.yaml";
const CONFIG: &str = "config.yaml";
const EXPECTED: &str = "expected.yaml";

/// The plugins that cases are run against.
pub(super) struct Plugins(Vec<(PathBuf, Isolated)>);

impl Plugins {
    /// Loads all of them.
    pub(super) fn load(components: &ComponentFiles) -> anyhow::Result<Self> {
        let load = |file: &Path| anyhow::Ok((file.to_owned(), Isolated::load(file)?));
        components.files().map(load).collect::<anyhow::Result<_>>().map(Self)
    }

    /// The plugin that reconciles a kind.
    fn of(&self, kind: &Kind, case: &Path) -> anyhow::Result<&Isolated> {
        let kinds = |plugin: &Isolated| -> Vec<Kind> {
            let controllers = plugin.manifest().manifest.controllers.iter();
            controllers.map(|controller| controller.kind.clone()).collect()
        };
        let mut meant = self.0.iter().filter(|(_, plugin)| kinds(plugin).contains(kind));
        match (meant.next(), meant.next()) {
            (Some((_, plugin)), None) => Ok(plugin),
            (Some((one, _)), Some((other, _))) => bail!(
                "{}: {} and {} both reconcile {kind}; name one of them on the command line",
                shown(case),
                one.display(),
                other.display()
            ),
            (None, _) => {
                let all: Vec<String> = self
                    .0
                    .iter()
                    .flat_map(|(_, plugin)| kinds(plugin))
                    .map(|it| it.to_string())
                    .collect();
                bail!(
                    "{} is a {kind}, for which the plugin has no controller; it has them for {}",
                    shown(&case.join(INPUT)),
                    all.join(", ")
                )
            }
        }
    }
}

/// What a call answered, and what it did on the way.
struct Answered {
    /// In the form of `expected.yaml`.
    answer: String,
    reads: Vec<String>,
    log: Vec<LogLine>,
}

/// Runs a case. A file of it that cannot be read is an error, and no failure of the plugin.
pub(super) fn run(case: &Path, plugins: &Plugins, update: bool) -> anyhow::Result<FinishedTest> {
    let begun = Instant::now();
    let mut input = one_object(&case.join(INPUT))?;
    let kind = Kind::from_api_version(
        input["apiVersion"].as_str().unwrap_or_default(),
        input["kind"].as_str().unwrap_or_default(),
    );
    let cluster = optional(&case.join(CLUSTER))?.unwrap_or_default();
    let mut plugin = plugins.of(&kind, case)?.clone();
    plugin.place(&mut input, "default");
    if let Some(documents) = optional(&case.join(CONFIG))? {
        let configuration = documents.into_iter().next().unwrap_or_else(|| json!({}));
        plugin = plugin
            .configured(configuration)
            .with_context(|| shown(&case.join(CONFIG)))?;
    }
    for object in &cluster {
        plugin = plugin
            .with(object.clone())
            .with_context(|| shown(&case.join(CLUSTER)))?;
    }
    let answered = answer(&plugin, &input);
    let expected_file = case.join(EXPECTED);
    let expected = optional(&expected_file)?;
    let is_expected = match &expected {
        Some(documents) => documents.first() == Some(&parse(&answered.answer, &expected_file)?.remove(0)),
        None => false,
    };
    let result = if is_expected {
        TestResult::Passed
    } else if update {
        fs::write(&expected_file, &answered.answer)
            .with_context(|| format!("cannot write {}", expected_file.display()))?;
        TestResult::Updated
    } else {
        TestResult::Failed(failure(case, &input, &cluster, expected.as_deref(), &answered))
    };
    Ok(FinishedTest {
        file: case.to_owned(),
        name: case.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        kind: TestKind::Golden,
        took: begun.elapsed(),
        result,
    })
}

/// Calls the plugin as the host does: defaulter, validator, then reconciler or finalizer.
fn answer(plugin: &Isolated, input: &Value) -> Answered {
    match call(plugin, input) {
        Ok(answered) => answered,
        Err(failed) => {
            let Failed {
                failure,
                log,
                reads,
                is_impure: _,
            } = *failed;
            let Failure {
                blame, reason, message, ..
            } = &failure;
            let answer =
                json!({"failure": {"reason": reason.as_str(), "blame": blame.to_string(), "message": message}});
            Answered {
                answer: yaml(&answer),
                reads: reads.iter().map(read_in_words).collect(),
                log,
            }
        }
    }
}

fn call(plugin: &Isolated, input: &Value) -> Result<Answered, Box<Failed>> {
    let Run {
        reconciled,
        finalizer,
        defaulted: _,
        warnings: _,
    } = plugin.run(input)?;
    let answer = match finalizer {
        Some(FinalizerAnswer::Done) => yaml(&json!({"finalized": true})),
        Some(FinalizerAnswer::Pending) | None => reconciled.snapshot(),
    };
    let Reconciled { reads, log, .. } = reconciled;
    let reads = reads.iter().map(read_in_words).collect();
    Ok(Answered { answer, reads, log })
}

fn failure(
    case: &Path,
    input: &Value,
    cluster: &[Value],
    expected: Option<&[Value]>,
    answered: &Answered,
) -> TestFailure {
    let Answered { answer, reads, log } = answered;
    let (message, mut details) = match expected.and_then(<[Value]>::first) {
        Some(expected) => {
            let expected = yaml(expected);
            let drawn = TextDiff::from_lines(answer.as_str(), expected.as_str())
                .unified_diff()
                .context_radius(3)
                .header("found", "expected")
                .to_string();
            ("the plugin's answer differs".to_owned(), drawn)
        }
        None => (
            format!("there is no {EXPECTED}; `pilothouse test --update` writes it, with what the plugin answers"),
            answer.clone(),
        ),
    };
    let list = |head: &str, lines: Vec<String>| {
        let lines: Vec<String> = lines.into_iter().map(|line| format!("  {line}\n")).collect();
        if lines.is_empty() {
            format!("{head} nothing\n")
        } else {
            format!("{head}\n{}", lines.concat())
        }
    };
    details.push('\n');
    let _ = writeln!(
        details,
        "The reconcile that answered this: {} of {}",
        title(input),
        shown(&case.join(INPUT))
    );
    details += &list("In the cluster:", cluster.iter().map(title).collect());
    details += &list("It read:", reads.clone());
    details += &list("It logged:", log.iter().map(line_in_words).collect());
    TestFailure { message, details }
}

fn title(object: &Value) -> String {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str);
    let place = text("/metadata/namespace")
        .map(|namespace| format!("{namespace}/"))
        .unwrap_or_default();
    let (kind, name) = (text("/kind").unwrap_or("?"), text("/metadata/name").unwrap_or("?"));
    format!("{kind} {place}{name}")
}

fn line_in_words(line: &LogLine) -> String {
    let LogLine { level, message, fields } = line;
    let fields: Vec<String> = fields.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{level:?}: {message}{}", fields.concat())
}

fn yaml(value: &Value) -> String {
    serde_saphyr::to_string(value).unwrap_or_else(|_| value.to_string())
}

fn one_object(file: &Path) -> anyhow::Result<Value> {
    let mut documents = optional(file)?.with_context(|| format!("there is no {}", shown(file)))?;
    ensure!(
        documents.len() == 1,
        "{} has {} objects; write one, and those around it to {CLUSTER}",
        shown(file),
        documents.len()
    );
    let object = documents.remove(0);
    for member in ["apiVersion", "kind"] {
        ensure!(
            object[member].is_string(),
            "the object in {} has no {member}",
            shown(file)
        );
    }
    ensure!(
        object["metadata"]["name"].is_string(),
        "the object in {} has no metadata.name",
        shown(file)
    );
    Ok(object)
}

/// The documents of a file that may be absent.
fn optional(file: &Path) -> anyhow::Result<Option<Vec<Value>>> {
    match fs::read_to_string(file) {
        Ok(text) => parse(&text, file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

fn parse(text: &str, file: &Path) -> anyhow::Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error
            .location()
            .map(|at| format!(":{}:{}", at.line(), at.column()))
            .unwrap_or_default();
        anyhow::anyhow!("{}{place} is not YAML: {}", shown(file), error.without_snippet())
    })?;
    let documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    ensure!(!documents.is_empty(), "{} is empty", shown(file));
    Ok(documents)
}
