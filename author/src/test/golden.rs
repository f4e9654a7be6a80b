//! Golden cases: a folder with an object, its surroundings, and the plugin's expected answer. The plugin runs under the
//! host's sandbox and limits, without a cluster. The call is left to the kit's isolation.
//!
//! | file | has |
//! |---|---|
//! | `input.yaml` | the object that is reconciled; with `metadata.deletionTimestamp` it is finalized |
//! | `cluster.yaml` | the other objects that the plugin may read, as several documents; may be absent |
//! | `config.yaml` | the plugin's configuration, or its Plugin resource, of which `spec.wasi` counts as well; may be absent |
//! | `case.yaml` | `now`, the plugin's time, 1970-01-01T00:00:00Z unless given; may be absent |
//! | `expected.yaml` | the answer: `objects`, `status`, `conditions` and `events`, or `failure`, `finalized: true` or `reconciled: false`; `--update` writes it |

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail, ensure};
use jiff::Timestamp;
use pilothouse_core::plugin::wasi::Wasi;
use pilothouse_core::{Failure, Kind};
use pilothouse_testkit::diff::{diff_lines, hidden, hidden_apart};
use pilothouse_testkit::documents::{self, Document};
use pilothouse_testkit::isolation::{Failed, FinalizerAnswer, Isolated, LogLine, Reconciled, Run};
use serde_json::{Value, json};

use crate::components::ComponentLoader;
use crate::plugin::{DEFAULT_NAMESPACE, Settings, WasiArguments, placed, tell_findings};
use crate::test::result::{FinishedTest, TestFailure, TestKind, TestResult, shown};

/// The files of a case.
pub(super) const INPUT: &str = "input.yaml";
const CLUSTER: &str = "cluster.yaml";
const CONFIG: &str = "config.yaml";
const CASE: &str = "case.yaml";
const EXPECTED: &str = "expected.yaml";

/// First lines of a difference: they explain its two sides.
pub(super) const DIFFERENCE: [&str; 2] = ["--- expected (expected.yaml)", "+++ found (the plugin's answer)"];

/// Returns the plugin's time in a case, in milliseconds since 1970.
fn now(case: &Path) -> anyhow::Result<u64> {
    let file = case.join(CASE);
    let now = match optional(&file)? {
        None | Some(Value::Null) => return Ok(0),
        Some(Value::Object(members)) if members.keys().eq(["now"]) => members["now"].clone(),
        Some(_) => bail!("{}: a case can have `now` and nothing else", shown(&file)),
    };
    let time: Option<Timestamp> = now.as_str().and_then(|now| now.parse().ok());
    let milliseconds = time.and_then(|time| u64::try_from(time.as_millisecond()).ok());
    milliseconds.ok_or_else(|| {
        anyhow!(
            "{}: now is {now}; give a time since 1970, such as 2026-01-01T12:30:00Z",
            shown(&file)
        )
    })
}

/// Plugins that cases are run against.
pub(super) struct Plugins(Vec<(PathBuf, Isolated)>);

impl Plugins {
    /// Loads all of them, for scenarios with this grant. The grant of a case is read when the case is run. Only cases
    /// need a plugin that describes itself without a configuration: a scenario has its own.
    pub(super) fn load(
        components: &ComponentLoader,
        has_cases: bool,
        for_scenarios: Option<Wasi>,
    ) -> anyhow::Result<Self> {
        let mut plugins = Vec::new();
        for file in components.files.files() {
            let component = components.load_inert(file)?;
            if let Some(granted) = for_scenarios {
                component.check_wasi(granted)?;
            }
            match Isolated::of(file.to_owned(), component, None) {
                Ok(plugin) => {
                    tell_findings(&plugin, file)?;
                    plugins.push((file.to_owned(), plugin));
                }
                Err(error) if has_cases => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(Self(plugins))
    }

    /// Returns the plugin that reconciles a kind.
    fn of(&self, kind: &Kind, case: &Path) -> anyhow::Result<&Isolated> {
        let mut meant = self.0.iter().filter(|(_, plugin)| plugin.reconciles(kind));
        match (meant.next(), meant.next()) {
            (Some((_, plugin)), None) => Ok(plugin),
            (Some((one, _)), Some((other, _))) => bail!(
                "{}: {} and {} both reconcile {kind}; name one of them on the command line",
                shown(case),
                one.display(),
                other.display()
            ),
            (None, _) => {
                let all: Vec<String> = self.0.iter().map(|(_, plugin)| plugin.kind_names()).collect();
                bail!(
                    "{} is a {kind}, for which the plugin has no controller; it has them for {}",
                    shown(&case.join(INPUT)),
                    all.join(", ")
                )
            }
        }
    }
}

/// Answer of a call, and its side effects.
struct Answered {
    /// The content for `expected.yaml`.
    answer: Value,
    reads: Vec<String>,
    log: Vec<LogLine>,
}

/// Runs a case. An unreadable file is an error, and no failure of the plugin.
pub(super) fn run(case: &Path, plugins: &Plugins, wasi: WasiArguments, update: bool) -> anyhow::Result<FinishedTest> {
    let begun = Instant::now();
    let Document {
        object: mut input,
        kind,
        ..
    } = one_object(&case.join(INPUT))?;
    let cluster_file = case.join(CLUSTER);
    let mut cluster = if cluster_file.exists() {
        documents::read(&[cluster_file])?
    } else {
        Vec::new()
    };
    let mut plugin = plugins.of(&kind, case)?.clone();
    let config_file = case.join(CONFIG);
    let settings = match optional(&config_file)? {
        Some(Value::Null) => bail!(
            "{} is empty; write the plugin's configuration, or remove the file",
            shown(&config_file)
        ),
        Some(config) => Settings::of(config).map(Some),
        None => Ok(None),
    };
    let settings = settings.with_context(|| shown(&case.join(CONFIG)))?.unwrap_or_default();
    plugin.plugin().check_wasi(wasi.or(settings.wasi))?;
    if let Some(configuration) = settings.configuration {
        plugin = plugin
            .configured(configuration)
            .with_context(|| shown(&case.join(CONFIG)))?;
    }
    plugin = placed(plugin, &mut cluster, DEFAULT_NAMESPACE)
        .with_documents(&cluster)
        .at(now(case)?);
    plugin.place(&mut input, DEFAULT_NAMESPACE);
    let answered = answer(&plugin, &input);
    let expected_file = case.join(EXPECTED);
    let expected = optional(&expected_file)?;
    let is_expected = match &expected {
        Some(expected) => *expected == parse(&yaml(&answered.answer), &expected_file)?,
        None => false,
    };
    let result = if is_expected {
        TestResult::Passed
    } else if update {
        fs::write(&expected_file, yaml(&answered.answer))
            .with_context(|| format!("cannot write {}", expected_file.display()))?;
        TestResult::Updated
    } else {
        TestResult::Failed(failure(case, &input, &cluster, expected, &answered))
    };
    Ok(FinishedTest {
        file: case.to_owned(),
        name: case.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        kind: TestKind::Golden,
        took: begun.elapsed(),
        result,
    })
}

/// Calls the plugin like the host: defaulter, validator, then reconciler or finalizer.
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
                answer,
                reads: reads.in_words().collect(),
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
        unselected,
    } = plugin.run(input)?;
    let answer = match finalizer {
        _ if unselected.is_some() => json!({"reconciled": false}),
        Some(FinalizerAnswer::Done) => json!({"finalized": true}),
        Some(FinalizerAnswer::Pending) | None => reconciled.to_value(),
    };
    let Reconciled { reads, log, .. } = reconciled;
    let reads = reads.in_words().collect();
    Ok(Answered { answer, reads, log })
}

fn failure(
    case: &Path,
    input: &Value,
    cluster: &[Document],
    expected: Option<Value>,
    answered: &Answered,
) -> TestFailure {
    let Answered { answer, reads, log } = answered;
    let (message, mut details) = match expected {
        Some(expected) if !expected.is_null() => {
            let [old, new] = DIFFERENCE;
            let (expected, found) = without_secrets(&expected, answer);
            let drawn = diff_lines(&yaml(&expected), &yaml(&found));
            (
                "the plugin's answer differs".to_owned(),
                format!("{old}\n{new}\n{drawn}"),
            )
        }
        none_or_empty => (
            format!(
                "{}; `pilothouse test --update` writes it, with what the plugin answers",
                if none_or_empty.is_some() {
                    format!("{EXPECTED} is empty")
                } else {
                    format!("there is no {EXPECTED}")
                }
            ),
            yaml(&without_secrets(&Value::Null, answer).1),
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
    details += &list("In the cluster:", cluster.iter().map(|it| title(&it.object)).collect());
    details += &list("It read:", reads.clone());
    details += &list("It logged:", log.iter().map(line_in_words).collect());
    TestFailure { message, details }
}

/// Returns two answers with the values of Secrets hidden, so that it can be seen which differ.
fn without_secrets(expected: &Value, found: &Value) -> (Value, Value) {
    let (mut expected, mut found) = (expected.clone(), found.clone());
    for member in ["objects", "contributed"] {
        let wanted = objects_of(&mut expected, member);
        let given = objects_of(&mut found, member);
        for object in &mut *given {
            match wanted.iter_mut().find(|other| title(other) == title(object)) {
                Some(other) => (*other, *object) = hidden_apart(other, object),
                None => *object = hidden(object),
            }
        }
        // Values that are already hidden stay so.
        let is_given = |object: &Value| given.iter().any(|other| title(other) == title(object));
        for object in wanted.iter_mut().filter(|object| !is_given(object)) {
            *object = hidden(object);
        }
    }
    (expected, found)
}

/// Returns the objects of an answer in a member, which may be absent.
fn objects_of<'a>(answer: &'a mut Value, member: &str) -> &'a mut [Value] {
    let objects = answer.get_mut(member).and_then(Value::as_array_mut);
    objects.map_or(&mut [], Vec::as_mut_slice)
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

fn one_object(file: &Path) -> anyhow::Result<Document> {
    ensure!(file.exists(), "there is no {}", shown(file));
    let mut documents = documents::read(&[file])?;
    ensure!(
        documents.len() == 1,
        "{} has {} objects; write one, and those around it to {CLUSTER}",
        shown(file),
        documents.len()
    );
    Ok(documents.remove(0))
}

/// Returns the document of a file that may be absent; null if the file is empty.
fn optional(file: &Path) -> anyhow::Result<Option<Value>> {
    match fs::read_to_string(file) {
        Ok(text) => parse(&text, file).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", file.display())),
    }
}

/// Returns the document of a file; null if it is empty.
fn parse(text: &str, file: &Path) -> anyhow::Result<Value> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let place = error
            .location()
            .map(|at| format!(":{}:{}", at.line(), at.column()))
            .unwrap_or_default();
        anyhow::anyhow!("{}{place} is not YAML: {}", shown(file), error.without_snippet())
    })?;
    let mut documents: Vec<Value> = documents.into_iter().filter(|document| !document.is_null()).collect();
    ensure!(
        documents.len() < 2,
        "{} has {} documents; write one",
        shown(file),
        documents.len()
    );
    Ok(documents.pop().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_secrets_are_in_no_difference() {
        let secret = |name: &str, value: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"key": value, "user": "cm9vdA=="}});
        let answer = |objects: Vec<Value>| json!({"objects": objects});
        let expected = answer(vec![secret("a", "aHVzaA=="), secret("gone", "b2xkZXI=")]);
        let found = answer(vec![secret("new", "bmV3ZXI="), secret("a", "c2VjcmV0")]);
        let (one, other) = without_secrets(&expected, &found);
        let shown = diff_lines(&yaml(&one), &yaml(&other));
        for value in ["aHVzaA", "c2VjcmV0", "cm9vdA", "b2xkZXI", "bmV3ZXI"] {
            assert!(!format!("{one}{other}").contains(value), "{value} in {shown}");
        }
        assert_eq!(
            one["objects"][0]["data"]["key"], "*** (expected)",
            "it differs, as can be seen"
        );
        assert_eq!(other["objects"][1]["data"]["key"], "*** (another value)");
        assert_eq!(other["objects"][1]["data"]["user"], "***", "this one is the same");
        let (_, alone) = without_secrets(&Value::Null, &found);
        assert!(!alone.to_string().contains("c2VjcmV0"), "{alone}");
    }
}
