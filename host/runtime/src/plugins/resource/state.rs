//! State of a plugin's startup, and the Plugin's status that is made from it and from the plugin's health. Makes no
//! request.

use std::sync::Arc;

use parking_lot::Mutex;
use pilothouse_crds::plugin::{
    ArtifactStatus, ControllerStatus, HistoryArtifact, HistoryEntry, LastFailure, PluginCondition, PluginStatus,
    PreviewedPrimary, WaitedPrimary,
};
use pilothouse_metrics::ArtifactStep;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::progress::{self, Progress, ProgressCondition};
use crate::lanes::lane::Lane;

/// The longest message of a condition, in bytes; Kubernetes allows 32 KiB.
const LONGEST_MESSAGE: usize = 2048;

/// The most versions that a status remembers.
const LONGEST_HISTORY: usize = 10;

/// Condition about what prevents API servers from accepting the plugin's objects.
const ADMITTING: &str = "Admitting";

/// Condition about the rights that the plugin's account needs.
const GRANTED: &str = "Granted";

/// Content of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionState {
    /// Status of the condition; `None`: unknown.
    pub holds: Option<bool>,
    /// Reason in CamelCase, from a closed set.
    pub reason: &'static str,
    /// Message for people.
    pub message: String,
}

impl ConditionState {
    /// Makes a true condition.
    pub fn yes(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: Some(true),
            reason,
            message: message.into(),
        }
    }

    /// Makes a false condition.
    pub fn no(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            holds: Some(false),
            reason,
            message: message.into(),
        }
    }

    fn unknown() -> Self {
        Self {
            holds: None,
            reason: "Pending",
            message: "an earlier step comes first".to_owned(),
        }
    }
}

/// Steps of a plugin's startup, each with a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartupStep {
    /// The component is available.
    Fetched,
    /// Its signature was verified. Only an artifact has one.
    Verified,
    /// The component is a plugin that this host can run.
    Compiled,
    /// All its kinds are served and listed.
    Established,
    /// The plugin reconciles.
    Ready,
}

/// Reason of `Verified` if the trust policy accepts an artifact without a verified signature.
pub const UNSIGNED: &str = "Unsigned";

/// Reason of a condition while rights are missing.
pub const NOT_GRANTED: &str = "NotGranted";

/// Reason of a problem that ends when an older plugin is removed.
pub const KIND_TAKEN: &str = "KindTaken";

/// Reason why a plugin does not run as desired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartupProblem {
    /// Failed step.
    pub step: StartupStep,
    /// Reason of the condition.
    pub reason: &'static str,
    /// Message with the failed step, the cause and what to do.
    pub message: String,
}

impl StartupProblem {
    /// Makes the problem of a failed step.
    pub fn new(step: StartupStep, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            step,
            reason,
            message: message.into(),
        }
    }
}

/// The running artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunningArtifact {
    /// Not known yet: the record of an earlier process stands.
    Unknown,
    /// The component is not from an artifact.
    None,
    /// An artifact.
    Known(ArtifactStatus),
}

/// A wanted version, whether it runs or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedVersion {
    /// Digest of its component, in hexadecimal digits.
    pub digest: String,
    /// The version that its manifest names.
    pub version: String,
}

/// State of a plugin.
#[derive(Clone)]
pub struct PluginFacts {
    /// Generation of the spec that was examined last.
    pub generation: Option<i64>,
    /// Generation of the spec that was decided on last: it runs, was refused, or wants nothing to run.
    pub decided_generation: Option<i64>,
    /// Progress towards the wanted version.
    pub progress: Progress,
    /// Set if the source is followed: a tag or a range, which may name another artifact at any time.
    pub is_followed: bool,
    /// Set if the artifact of an earlier process runs, and the registry has not been asked yet what the source names.
    pub is_unasked: bool,
    /// The wanted version, as far as it was loaded.
    pub wanted: Option<WantedVersion>,
    /// Conditions by step.
    facts: [ConditionState; 5],
    /// Set if the component comes from an artifact, so that there is a signature to verify.
    pub is_artifact: bool,
    /// The running artifact, as far as known.
    pub artifact: RunningArtifact,
    /// Generation of the spec that runs.
    pub running_generation: Option<i64>,
    /// Digest of the running component.
    pub digest: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// Its file below the plugin directory, if it comes from one.
    pub file: Option<String>,
    /// The CRDs that it brings; `None` before a version has run.
    pub crds: Option<Vec<String>>,
    /// Its lanes.
    pub lanes: Vec<Arc<Lane>>,
    /// Time since which it is changing; `None` while it only waits for events.
    pub busy: Option<Instant>,
    /// Condition `Admitting`, present only if something outside of this host blocks the plugin's objects.
    pub warning: Option<ConditionState>,
    /// Condition `Granted` of the running version, present only if the plugin has an account of its own.
    pub granted: Option<ConditionState>,
    /// Rights that the desired version lacks, so that it does not run.
    pub not_granted: Option<String>,
    /// Rights that the host lacks to act as the account of the running version.
    pub cannot_act: Option<String>,
}

impl PluginFacts {
    /// The condition of a step.
    pub fn fact(&self, step: StartupStep) -> &ConditionState {
        &self.facts[step as usize]
    }

    /// Returns `true` if a version is loaded, whether it is the wanted one or not.
    pub fn is_loaded(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Steps that failed when the artifact was asked for last; `None`: the component comes from no artifact. An artifact that
    /// the trust policy accepts without a signature is no failure.
    pub fn artifact_failures(&self) -> Option<Vec<ArtifactStep>> {
        let failed = |step| self.fact(step).holds == Some(false) && self.fact(step).reason != UNSIGNED;
        let steps = [
            (ArtifactStep::Fetch, StartupStep::Fetched),
            (ArtifactStep::Verify, StartupStep::Verified),
        ];
        let failing = steps.into_iter().filter(|(_, step)| failed(*step));
        self.is_artifact.then(|| failing.map(|(step, _)| step).collect())
    }

    /// Records that the examined spec was decided on: its version runs, or it wants nothing to run.
    pub fn settle(&mut self) {
        self.progress = Progress::Settled;
        self.decided_generation = self.generation;
    }

    /// Sets the condition of a step. If it is not true and no version runs, those of the later steps become unknown.
    pub fn set(&mut self, step: StartupStep, fact: ConditionState) {
        let is_news = self.facts[step as usize] != fact;
        if is_news && fact.holds != Some(true) && self.lanes.is_empty() {
            for later in &mut self.facts[step as usize + 1..] {
                *later = ConditionState::unknown();
            }
        }
        self.facts[step as usize] = fact;
    }
}

/// State of a plugin, shared by its task and the status writer.
pub struct PluginState {
    known: Mutex<PluginFacts>,
    /// Notified whenever it changes.
    pub changed: Notify,
}

impl Default for PluginState {
    fn default() -> Self {
        Self {
            known: Mutex::new(PluginFacts {
                generation: None,
                decided_generation: None,
                progress: Progress::default(),
                is_followed: false,
                is_unasked: false,
                wanted: None,
                facts: std::array::from_fn(|_| ConditionState::unknown()),
                is_artifact: false,
                artifact: RunningArtifact::Unknown,
                running_generation: None,
                digest: None,
                version: None,
                file: None,
                crds: None,
                lanes: Vec::new(),
                busy: Some(Instant::now()),
                warning: None,
                granted: None,
                not_granted: None,
                cannot_act: None,
            }),
            changed: Notify::new(),
        }
    }
}

impl PluginState {
    /// A copy of the state.
    pub fn known(&self) -> PluginFacts {
        self.known.lock().clone()
    }

    /// Changes the state.
    pub fn set(&self, change: impl FnOnce(&mut PluginFacts)) {
        change(&mut self.known.lock());
        self.changed.notify_one();
    }
}

/// Further inputs of the status.
#[derive(Default)]
pub struct StatusFigures {
    /// Status by controller.
    pub controllers: Vec<ControllerStatus>,
    /// Last failure since the host started.
    pub last_failure: Option<Arc<LastFailure>>,
    /// Traps in a row for which the plugin is slowed.
    pub slowed_for: Option<u32>,
    /// Number of objects of primaries that the Plugin does not select.
    pub unselected_objects: u64,
    /// Number of paused primaries.
    pub paused_objects: u64,
    /// Number of primaries that have not been reconciled yet.
    pub unanswered: u64,
    /// The first of them.
    pub waited_for: Vec<WaitedPrimary>,
    /// Reasons why the plugin does not work in full.
    pub warnings: Vec<String>,
    /// Changes that would be made, if the plugin is in preview.
    pub previews: Vec<PreviewedPrimary>,
}

/// The status of a Plugin resource, given the present one.
pub fn status(known: &PluginFacts, figures: StatusFigures, live: &PluginStatus, now: &str) -> PluginStatus {
    let StatusFigures {
        controllers,
        last_failure,
        slowed_for,
        unselected_objects,
        paused_objects,
        unanswered,
        waited_for,
        warnings,
        previews,
    } = figures;
    PluginStatus {
        // What an earlier process decided stands until this one has.
        observed_generation: observed_generation(known, live),
        running_generation: known.running_generation,
        digest: known.digest.clone().map(|digest| format!("sha256:{digest}")),
        version: known.version.clone(),
        history: history(known, live, now),
        crds: known.crds.clone().unwrap_or_else(|| live.crds.clone()),
        artifact: match &known.artifact {
            RunningArtifact::Unknown => live.artifact.clone(),
            RunningArtifact::None => None,
            RunningArtifact::Known(artifact) => Some(artifact.clone()),
        },
        objects: controllers.iter().map(|controller| controller.objects).sum(),
        failing: controllers.iter().map(|controller| controller.failing).sum(),
        controllers,
        last_failure: last_failure_to_tell(last_failure.as_deref(), live.last_failure.as_ref(), now).cloned(),
        unselected_objects,
        paused_objects,
        unanswered,
        waited_for,
        owned_kinds: live.owned_kinds.clone(),
        contributed_kinds: live.contributed_kinds.clone(),
        finalizers: live.finalizers.clone(),
        warnings,
        previews,
        conditions: conditions(known, slowed_for, live, now),
    }
}

fn observed_generation(known: &PluginFacts, live: &PluginStatus) -> Option<i64> {
    known.decided_generation.or(live.observed_generation)
}

/// The conditions of the steps, of the progress, of rights, and of what keeps API servers from accepting objects.
fn conditions(known: &PluginFacts, slowed_for: Option<u32>, live: &PluginStatus, now: &str) -> Vec<PluginCondition> {
    // A version that runs has the generation of its own spec, so that nobody takes its health for that of a newer spec.
    let (of_version, of_source) = if known.is_loaded() {
        (known.running_generation, observed_generation(known, live))
    } else {
        (known.generation, known.generation)
    };
    let condition_of = |fact: ConditionState, name: &str, observed_generation: Option<i64>| {
        let status = match fact.holds {
            Some(true) => "True",
            Some(false) => "False",
            None => "Unknown",
        };
        let before = live.conditions.iter().find(|condition| condition.kind == name);
        let since = before.filter(|before| before.status == status);
        PluginCondition {
            kind: name.to_owned(),
            status: status.to_owned(),
            reason: fact.reason.to_owned(),
            message: pilothouse_core::text::printable::shorten(fact.message, LONGEST_MESSAGE),
            last_transition_time: since.map_or(now, |since| &since.last_transition_time).to_owned(),
            observed_generation,
        }
    };
    let is_obstacle_recorded = progress::is_obstacle_recorded(known, live);
    let condition = |step: StartupStep, name: &str, observed_generation: Option<i64>| {
        let mut fact = known.fact(step).clone();
        if let (StartupStep::Ready, Some(true), Some(traps)) = (step, fact.holds, slowed_for) {
            fact.reason = "Slowed";
            fact.message = format!("the last {traps} calls trapped or broke a limit; calls are throttled");
        }
        // What cannot be fetched is the wanted version, also before that is decided on.
        let is_of_wanted = matches!(step, StartupStep::Fetched) && fact.holds == Some(false);
        let generation = if is_of_wanted {
            known.generation
        } else {
            observed_generation
        };
        // It says that the version before goes on, or why the wanted one is not used.
        let before = live.conditions.iter().find(|before| before.kind == name);
        if let Some(before) = before.filter(|_| is_obstacle_recorded && fact.holds == Some(true))
            && before.observed_generation == generation
        {
            return before.clone();
        }
        condition_of(fact, name, generation)
    };
    let granted = granted(known).map(|fact| {
        let is_of_wanted = known.not_granted.is_some();
        let generation = if is_of_wanted { known.generation } else { of_version };
        condition_of(fact, GRANTED, generation)
    });
    let warning = known
        .warning
        .clone()
        .map(|fact| condition_of(fact, ADMITTING, of_version));
    let verified = known
        .is_artifact
        .then(|| condition(StartupStep::Verified, "Verified", of_source));
    let steps = [
        Some(condition(StartupStep::Fetched, "Fetched", of_source)),
        verified,
        Some(condition(StartupStep::Compiled, "Compiled", of_source)),
        Some(condition(StartupStep::Established, "Established", of_version)),
        Some(condition(StartupStep::Ready, "Ready", of_version)),
    ];
    let progress = progress::conditions(known, live).into_iter().map(|found| match found {
        ProgressCondition::New(name, fact) => condition_of(fact, name, known.generation),
        ProgressCondition::Recorded(condition) => condition,
    });
    steps
        .into_iter()
        .flatten()
        .chain(progress)
        .chain(granted)
        .chain(warning)
        .collect()
}

/// The versions that have run, with the running one. A host that has not loaded a version yet leaves them as they are.
fn history(known: &PluginFacts, live: &PluginStatus, now: &str) -> Vec<HistoryEntry> {
    let mut history = live.history.clone();
    let (Some(digest), Some(version)) = (&known.digest, &known.version) else {
        return history;
    };
    let digest = format!("sha256:{digest}");
    let artifact = match &known.artifact {
        RunningArtifact::Unknown => return history,
        RunningArtifact::None => None,
        RunningArtifact::Known(artifact) => Some(HistoryArtifact {
            reference: artifact.reference.clone(),
            digest: artifact.digest.clone(),
        }),
    };
    if let Some(before) = history.first_mut() {
        // The artifact is known before its component has taken over.
        if before.digest == digest {
            return history;
        }
        before.until = Some(now.to_owned());
    }
    let reason = if history.is_empty() {
        "Installed"
    } else if history.iter().any(|entry| entry.digest == digest) {
        "RolledBack"
    } else if known.running_generation == live.running_generation {
        "Followed"
    } else {
        "Changed"
    };
    let entry = HistoryEntry {
        digest,
        version: version.clone(),
        file: known.file.clone().filter(|_| artifact.is_none()),
        artifact,
        since: now.to_owned(),
        until: None,
        reason: reason.to_owned(),
    };
    history.insert(0, entry);
    history.truncate(LONGEST_HISTORY);
    history
}

/// The condition about the rights of a plugin's account, and of the host to act as it, for the running version and for a
/// desired one that lacks rights.
fn granted(known: &PluginFacts) -> Option<ConditionState> {
    let of_account = known.granted.clone().filter(|fact| fact.holds != Some(true));
    let of_running = match (&known.cannot_act, of_account) {
        (Some(lacking), Some(fact)) if fact.holds == Some(false) => {
            Some(ConditionState::no(NOT_GRANTED, format!("{lacking}; {}", fact.message)))
        }
        (Some(lacking), _) => Some(ConditionState::no(NOT_GRANTED, lacking.clone())),
        (None, fact) => fact,
    };
    let Some(lacking) = &known.not_granted else {
        return of_running.or_else(|| known.granted.clone());
    };
    let message = match of_running {
        Some(fact) => format!("{lacking}; the version that runs: {}", fact.message),
        None => lacking.clone(),
    };
    Some(ConditionState::no("NewVersionNotGranted", message))
}

/// Selects the failure to report. A failure that an earlier process saw stays until another one occurs. The same
/// failure again is not reported: its time alone would cost a request for every attempt. Of two hosts, the one with the
/// later failure reports; a time after `now` is of another clock, and does not count as later.
fn last_failure_to_tell<'a>(
    seen: Option<&'a LastFailure>,
    told: Option<&'a LastFailure>,
    now: &str,
) -> Option<&'a LastFailure> {
    let is_news = |seen: &&LastFailure| {
        told.is_none_or(|told| {
            let is_same = (&seen.blame, &seen.object, &seen.message) == (&told.blame, &told.object, &told.message);
            let is_later = told.time >= seen.time && *told.time <= *now;
            !is_same && !is_later
        })
    };
    seen.filter(is_news).or(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-02T03:04:05Z";
    const BEFORE: &str = "2020-01-01T00:00:00Z";

    fn figures() -> StatusFigures {
        StatusFigures {
            controllers: vec![ControllerStatus {
                name: "c".to_owned(),
                objects: 3,
                queued: 1,
                failing: 2,
            }],
            last_failure: None,
            slowed_for: None,
            unselected_objects: 0,
            paused_objects: 0,
            unanswered: 0,
            waited_for: Vec::new(),
            warnings: Vec::new(),
            previews: Vec::new(),
        }
    }

    fn known() -> PluginFacts {
        let plugin_state = PluginState::default();
        plugin_state.set(|known| {
            known.generation = Some(2);
            known.settle();
            known.set(StartupStep::Fetched, ConditionState::yes("Fetched", "it is there"));
            known.set(StartupStep::Compiled, ConditionState::yes("Compiled", "it compiles"));
        });
        plugin_state.known()
    }

    fn of<'a>(status: &'a PluginStatus, name: &str) -> &'a PluginCondition {
        status
            .conditions
            .iter()
            .find(|condition| condition.kind == name)
            .unwrap()
    }

    #[test]
    fn the_transition_time_moves_only_with_the_status() {
        let first = status(&known(), figures(), &PluginStatus::default(), BEFORE);
        let mut changed = known();
        changed.set(
            StartupStep::Fetched,
            ConditionState::yes("Fetched", "another one is there"),
        );
        changed.set(StartupStep::Compiled, ConditionState::no("Refused", "it is no plugin"));
        let second = status(&changed, figures(), &first, NOW);
        assert_eq!(of(&second, "Fetched").last_transition_time, BEFORE);
        assert_eq!(of(&second, "Fetched").message, "another one is there");
        assert_eq!(of(&second, "Compiled").last_transition_time, NOW);
        assert_eq!(of(&second, "Ready").status, "Unknown");
        assert_eq!(
            (second.objects, second.failing, second.observed_generation),
            (3, 2, Some(2))
        );
    }

    #[test]
    fn only_an_artifact_has_a_signature_to_verify() {
        let file = status(&known(), figures(), &PluginStatus::default(), NOW);
        assert!(file.conditions.iter().all(|condition| condition.kind != "Verified"));
        let mut artifact = known();
        artifact.is_artifact = true;
        let artifact = status(&artifact, figures(), &PluginStatus::default(), NOW);
        assert_eq!(of(&artifact, "Verified").status, "Unknown");
    }

    #[test]
    fn the_recorded_artifact_stands_until_another_one_runs() {
        let artifact = |digest: &str| ArtifactStatus {
            reference: "example.com/a:1".to_owned(),
            tag: Some("1".to_owned()),
            digest: digest.to_owned(),
            size: 1,
            signer: None,
        };
        let live = PluginStatus {
            artifact: Some(artifact("old")),
            ..PluginStatus::default()
        };
        let mut known = known();
        let told = |known: &PluginFacts| status(known, figures(), &live, NOW).artifact.map(|it| it.digest);
        assert_eq!(told(&known).as_deref(), Some("old"));
        known.artifact = RunningArtifact::Known(artifact("new"));
        assert_eq!(told(&known).as_deref(), Some("new"));
        known.artifact = RunningArtifact::None;
        assert_eq!(told(&known), None);
    }

    #[test]
    fn the_history_begins_with_the_running_version() {
        let artifact = |version: &str| ArtifactStatus {
            reference: "example.com/a".to_owned(),
            tag: Some(version.to_owned()),
            digest: format!("artifact-{version}"),
            size: 1,
            signer: None,
        };
        let mut live = PluginStatus::default();
        let mut known = known();
        assert_eq!(status(&known, figures(), &live, NOW).history, [], "nothing has run");
        let mut runs = |version: &str, generation: i64, now: &str| {
            known.digest = Some(version.to_owned());
            known.version = Some(version.to_owned());
            known.running_generation = Some(generation);
            known.artifact = RunningArtifact::Known(artifact(version));
            live = status(&known, figures(), &live, now);
            live.history.clone()
        };
        let first = runs("1", 1, BEFORE);
        assert_eq!(first.len(), 1);
        assert_eq!(
            (&*first[0].reason, &*first[0].since, &first[0].until),
            ("Installed", BEFORE, &None)
        );
        assert_eq!(runs("1", 2, NOW), first, "another configuration is no other version");
        let second = runs("2", 2, NOW);
        assert_eq!((&*second[0].digest, &*second[0].reason), ("sha256:2", "Followed"));
        assert_eq!((&*second[1].since, second[1].until.as_deref()), (BEFORE, Some(NOW)));
        assert_eq!(second[0].artifact.as_ref().unwrap().digest, "artifact-2");
        assert_eq!(runs("3", 3, NOW)[0].reason, "Changed");
        assert_eq!(runs("1", 4, NOW)[0].reason, "RolledBack");
        for version in 4..20 {
            runs(&version.to_string(), version, NOW);
        }
        assert_eq!(live.history.len(), 10);
        known.digest = None;
        assert_eq!(
            status(&known, figures(), &live, NOW).history,
            live.history,
            "a host that starts"
        );
    }

    #[test]
    fn a_plugin_that_is_slowed_says_so_while_it_is_ready() {
        let mut known = known();
        known.set(
            StartupStep::Ready,
            ConditionState::yes("Running", "the host reconciles its objects"),
        );
        let slowed = StatusFigures {
            slowed_for: Some(7),
            ..figures()
        };
        let status = status(&known, slowed, &PluginStatus::default(), NOW);
        assert_eq!(
            (&*of(&status, "Ready").status, &*of(&status, "Ready").reason),
            ("True", "Slowed")
        );
        assert!(of(&status, "Ready").message.contains("the last 7 calls"));
    }

    #[test]
    fn the_last_failure_survives_a_restart_until_the_next_one() {
        let failure = |message: &str| LastFailure {
            blame: "guest".to_owned(),
            object: None,
            message: message.to_owned(),
            time: BEFORE.to_owned(),
        };
        let live = PluginStatus {
            last_failure: Some(failure("old")),
            ..PluginStatus::default()
        };
        assert_eq!(
            status(&known(), figures(), &live, NOW).last_failure.unwrap().message,
            "old"
        );
        let newer = StatusFigures {
            last_failure: Some(Arc::new(LastFailure {
                time: NOW.to_owned(),
                ..failure("new")
            })),
            ..figures()
        };
        assert_eq!(status(&known(), newer, &live, NOW).last_failure.unwrap().message, "new");
        let other = StatusFigures {
            last_failure: Some(Arc::new(failure("of another host at the same time"))),
            ..figures()
        };
        assert_eq!(status(&known(), other, &live, NOW).last_failure.unwrap().message, "old");
        let again = StatusFigures {
            last_failure: Some(Arc::new(LastFailure {
                time: NOW.to_owned(),
                ..failure("old")
            })),
            ..figures()
        };
        let told = status(&known(), again, &live, NOW).last_failure;
        assert_eq!(told.unwrap().time, BEFORE, "the same once more is no news");
    }
}
