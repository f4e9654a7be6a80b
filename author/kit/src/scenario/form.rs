//! Actions that a step of a scenario file may have, and the check that they make sense. `run` carries them out.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::{matching, path::Path};
use crate::fate::Fate;
use crate::kstatus;

/// The field manager of writes that name none.
pub(super) const MANAGER: &str = "scenario";

/// Action of a step.
#[derive(Debug, Clone)]
pub enum Action {
    /// Applies objects on the server's side.
    Apply(Apply),
    /// Creates objects, which must not exist.
    Create(Create),
    /// Patches one object.
    Patch(Patch),
    /// Deletes one object.
    Delete(Delete),
    /// Waits until all checks hold at the same time.
    Wait(Wait),
    /// Demands that all checks hold now, and keep holding.
    Expect(Expect),
    /// Names a value of an object.
    Remember(Remember),
    /// Steers the host.
    Host(HostAction),
    /// Counts the host's writes.
    ExpectWrites(ExpectWrites),
    /// Decides the fate of an object's pods.
    Workload(WorkloadStep),
    /// Note for the reader.
    Note(String),
}

/// `apply`: server-side apply.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Apply {
    /// Whole manifests.
    pub objects: Vec<Value>,
    /// The field manager; `scenario` when absent.
    #[serde(default = "scenario_manager")]
    pub manager: String,
    /// Takes fields from other managers.
    #[serde(default)]
    pub force: bool,
    /// `status`, or absent for the object itself.
    pub subresource: Option<String>,
    /// Stores nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Part of the server's words, when it must refuse.
    pub refused: Option<String>,
    /// Part of one of the server's warnings, when it must warn.
    pub warned: Option<String>,
    /// Partial object that the server's answer contains.
    pub answered: Option<Value>,
    /// Time limit of retries until the outcome is the expected one; absent: no retry.
    #[serde(default, deserialize_with = "duration")]
    pub within: Duration,
}

/// `create`: a POST for each object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Create {
    /// Whole manifests.
    pub objects: Vec<Value>,
    /// The field manager; `scenario` when absent.
    #[serde(default = "scenario_manager")]
    pub manager: String,
    /// Stores nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Part of the server's words, when it must refuse.
    pub refused: Option<String>,
    /// Part of one of the server's warnings, when it must warn.
    pub warned: Option<String>,
    /// Partial object that the server's answer contains.
    pub answered: Option<Value>,
    /// Time limit of retries until the outcome is the expected one; absent: no retry.
    #[serde(default, deserialize_with = "duration")]
    pub within: Duration,
}

/// `patch`: a change of one object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Patch {
    /// The patched object.
    pub object: Reference,
    /// Format of the body.
    #[serde(rename = "type")]
    pub kind: PatchKind,
    /// The patch.
    pub body: Value,
    /// The field manager; `scenario` when absent.
    #[serde(default = "scenario_manager")]
    pub manager: String,
    /// `status`, `scale`, or absent for the object itself.
    pub subresource: Option<String>,
    /// Stores nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Part of the server's words, when it must refuse.
    pub refused: Option<String>,
    /// Part of one of the server's warnings, when it must warn.
    pub warned: Option<String>,
    /// Partial object that the server's answer contains.
    pub answered: Option<Value>,
    /// Time limit of retries until the outcome is the expected one; absent: no retry.
    #[serde(default, deserialize_with = "duration")]
    pub within: Duration,
}

/// The kinds of patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PatchKind {
    /// A list of operations, RFC 6902.
    Json,
    /// A partial object, RFC 7386.
    Merge,
    /// A partial object whose lists are merged by key; built-in kinds only.
    Strategic,
}

/// `delete`: one object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Delete {
    /// The deleted object.
    pub object: Reference,
    /// Handling of the objects that it owns.
    #[serde(default)]
    pub propagation: Propagation,
}

/// Handling of the objects that a deleted one owns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub enum Propagation {
    /// Collected afterwards.
    #[default]
    Background,
    /// Deleted first.
    Foreground,
    /// Kept.
    Orphan,
}

/// `wait`: until all checks hold at the same time.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Wait {
    /// Checks that must hold.
    pub until: Vec<Check>,
    /// Time limit; absent: 30 s, or 60 s for what is to be absent from a real control plane.
    #[serde(default, deserialize_with = "some_duration")]
    pub within: Option<Duration>,
}

/// `expect`: all checks hold at once, and at every look until the time is over.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Expect {
    /// Checks that must hold.
    pub that: Vec<Check>,
    /// Time for which they must keep holding; absent: checked once.
    #[serde(default, deserialize_with = "duration")]
    pub during: Duration,
}

/// Check of an object. Without any other member: the object exists.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Check {
    /// The checked object.
    pub object: Reference,
    /// The object does not exist; excludes all that follows but `event`.
    #[serde(default)]
    pub absent: bool,
    /// The object contains this partial object.
    pub matches: Option<Value>,
    /// The object has a condition in `.status.conditions`.
    pub condition: Option<ConditionCheck>,
    /// Status that kstatus computes of the object.
    pub kstatus: Option<kstatus::Status>,
    /// A path like `.spec.ports[0].nodePort`, for `equals`, `differsFrom` or `sameAs`; alone: there is something at it.
    pub path: Option<String>,
    /// The whole value at the path.
    pub equals: Option<Value>,
    /// A value that the one at the path differs from; there must be one.
    pub differs_from: Option<Value>,
    /// Place of the same value.
    pub same_as: Option<Place>,
    /// An event about the object.
    pub event: Option<EventCheck>,
}

/// A condition; members that are absent are not looked at.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ConditionCheck {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// `"True"`, `"False"` or `Unknown`; in quotes, because YAML has its own true.
    pub status: Option<String>,
    /// Its reason.
    pub reason: Option<String>,
    /// Part of its message.
    pub message: Option<String>,
}

/// An event; members that are absent are not looked at.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct EventCheck {
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Its reason.
    pub reason: String,
    /// Part of its note.
    pub message: Option<String>,
}

/// Reference to an object.
#[derive(Debug, Clone, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Reference {
    /// `v1` or `group/version`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The name.
    pub name: String,
    /// Namespace; absent: `$NAMESPACE`, where the kind has namespaces.
    pub namespace: Option<String>,
}

impl Reference {
    /// Returns the reference of a manifest; missing parts are empty.
    pub fn of(manifest: &Value) -> Self {
        let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        Self {
            api_version: text("/apiVersion").unwrap_or_default(),
            kind: text("/kind").unwrap_or_default(),
            name: text("/metadata/name").unwrap_or_default(),
            namespace: text("/metadata/namespace"),
        }
    }
}

/// A value within an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Place {
    /// The object.
    pub object: Reference,
    /// A path like `.spec.clusterIP`.
    pub path: String,
}

/// `remember`: from now on, `$NAME` is the value.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Remember {
    /// The object.
    pub object: Reference,
    /// A path like `.spec.clusterIP`; there must be something.
    pub path: String,
    /// The name: capitals, digits and underscores.
    #[serde(rename = "as")]
    pub name: String,
}

/// Action on the host (`host`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HostAction {
    /// Stops it and starts it again; returns when it watches everything again.
    Restart,
    /// Makes it reconcile every object.
    Resync,
    /// Stops it.
    Stop,
    /// Starts it after a stop.
    Start,
    /// Makes it serve webhooks from its next start on.
    ServeWebhooks,
    /// Waits until it asks for nothing more.
    Settle,
}

/// Count of the host's writes (`expectWrites`): once the host has settled, it is triggered, and its writes until it has
/// settled again are counted. Counted are requests in the scenario's namespace and cluster-wide ones, leases aside.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct ExpectWrites {
    /// Maximum count of writes; absent: none.
    #[serde(default)]
    pub at_most: usize,
    /// Trigger before the count; absent: nothing.
    pub after: Option<Trigger>,
    /// The plurals of the kinds of which writes are counted; none: all.
    #[serde(default)]
    pub resources: Vec<String>,
    /// Minimum duration of the count.
    #[serde(default, deserialize_with = "duration")]
    pub during: Duration,
}

/// Trigger of reconciles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Trigger {
    /// Every object is looked at again.
    Resync,
    /// The host is stopped and started.
    Restart,
    /// The host, which was stopped, is started.
    Start,
}

/// Fate of the pods of one object from now on (`workload`).
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct WorkloadStep {
    /// A pod, or a direct or indirect owner of pods, such as a Deployment or a Job.
    pub object: Reference,
    /// Fate of the pods.
    pub becomes: Fate,
}

impl Action {
    pub(super) fn validate(&self) -> Result<(), String> {
        match self {
            Self::Wait(Wait { until: checks, .. }) | Self::Expect(Expect { that: checks, .. }) => {
                if checks.is_empty() {
                    return Err("it has no checks, so it would always hold".to_owned());
                }
                checks.iter().try_for_each(Check::validate)
            }
            Self::Remember(Remember { path, .. }) => Path::parse(path).map(drop),
            Self::Apply(Apply { objects, answered, .. }) | Self::Create(Create { objects, answered, .. }) => {
                answered.iter().try_for_each(matching::validate)?;
                objects.iter().try_for_each(validate_manifest)
            }
            Self::Patch(Patch { answered, .. }) => answered.iter().try_for_each(matching::validate),
            Self::Workload(WorkloadStep { object, becomes }) if *becomes == Fate::Completed => {
                let restarts = ["Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"].contains(&object.kind.as_str());
                let reason = "the pods of a {} restart always, so it never completes; use `available` or `failed`";
                if restarts {
                    return Err(reason.replace("{}", &object.kind));
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

impl Check {
    /// That an object does not exist.
    pub fn absent(object: Reference) -> Self {
        let (matches, condition, kstatus, path, equals, differs_from, same_as, event) = Default::default();
        Self {
            object,
            absent: true,
            matches,
            condition,
            kstatus,
            path,
            equals,
            differs_from,
            same_as,
            event,
        }
    }

    fn validate(&self) -> Result<(), String> {
        let Self {
            object,
            absent,
            matches,
            condition,
            kstatus,
            path,
            equals,
            differs_from,
            same_as,
            event: _,
        } = self;
        let name = &object.name;
        let looks_inside = matches.is_some() || condition.is_some() || kstatus.is_some() || path.is_some();
        if *absent && looks_inside {
            return Err(format!("the check of {name} wants it absent and something in it"));
        }
        match usize::from(equals.is_some()) + usize::from(differs_from.is_some()) + usize::from(same_as.is_some()) {
            0 => {}
            1 if path.is_some() => {}
            1 => {
                return Err(format!(
                    "the check of {name} has equals, differsFrom or sameAs without a path"
                ));
            }
            _ => {
                return Err(format!(
                    "the check of {name} has more than one of equals, differsFrom and sameAs"
                ));
            }
        }
        if let Some(matches) = matches {
            matching::validate(matches)?;
        }
        path.iter()
            .chain(same_as.iter().map(|place| &place.path))
            .try_for_each(|path| Path::parse(path).map(drop))
    }
}

fn validate_manifest(manifest: &Value) -> Result<(), String> {
    for pointer in ["/apiVersion", "/kind", "/metadata/name"] {
        if !manifest.pointer(pointer).is_some_and(Value::is_string) {
            return Err(format!(
                "an object has no {}",
                pointer.trim_start_matches('/').replace('/', ".")
            ));
        }
    }
    Ok(())
}

fn scenario_manager() -> String {
    MANAGER.to_owned()
}

/// Long enough for a loaded machine with a real control plane.
pub(super) fn patience() -> Duration {
    Duration::from_secs(30)
}

/// The longest wait of a step, in milliseconds: a year.
const LONGEST: u64 = 365 * 24 * 3_600_000;

/// The same, or nothing.
fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    duration(deserializer).map(Some)
}

/// `500ms`, `30s`, `2m` or `1h`.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let milliseconds = match &text[digits.len()..] {
        "ms" => Some(1),
        "s" => Some(1000),
        "m" => Some(60_000),
        "h" => Some(3_600_000),
        _ => None,
    };
    let number: Option<u64> = digits.parse().ok();
    let wait = number
        .zip(milliseconds)
        .and_then(|(number, unit)| number.checked_mul(unit));
    match wait {
        Some(wait) if wait <= LONGEST => Ok(Duration::from_millis(wait)),
        Some(_) => Err(de::Error::custom(format!("{text:?} is longer than a year"))),
        None => Err(de::Error::custom(bad_duration(&text))),
    }
}

fn bad_duration(text: &str) -> String {
    format!("{text:?} is no duration: give a whole number with ms, s, m or h")
}
