//! Progress of a plugin towards the wanted version, and the conditions `Reconciling`, `Stalled` and `UpToDate` about it.
//! Makes no request.
//!
//! kstatus, on which Flux and others base "ready", compares generations before it looks at conditions:
//! <https://github.com/kubernetes-sigs/cli-utils/blob/v0.37.2/pkg/kstatus/status/generic.go>. So `observedGeneration` of
//! the status moves with a decision, a refusal included, and that of `Ready` with the version that runs.

use pilothouse_crds::plugin::{PluginCondition, PluginStatus};

use super::state::{ConditionState, PluginFacts, RunningArtifact, StartupProblem, StartupStep};

/// Condition while the wanted version is tried or waited for.
const RECONCILING: &str = "Reconciling";

/// Condition while the wanted version is refused.
const STALLED: &str = "Stalled";

/// Condition of a followed source: the version that it names runs.
const UP_TO_DATE: &str = "UpToDate";

/// Reasons of problems that say nothing about the wanted version: time may end them, so the version is waited for.
const AWAITED: [&str; 7] = [
    "HostFault",
    "RegistryFailed",
    "ReviewFailed",
    "Timeout",
    "TooManyRequests",
    "UnknownHost",
    "Unreachable",
];

/// Progress towards the wanted version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Progress {
    /// The wanted version runs, or nothing is wanted to run.
    #[default]
    Settled,
    /// The wanted version is tried or waited for, for this reason.
    Reconciling(ConditionState),
    /// The wanted version is refused, for this reason, until somebody changes something.
    Stalled(ConditionState),
}

impl Progress {
    /// The progress of a version that is prepared to take over from another one or to be the first.
    pub fn tried(is_update: bool) -> Self {
        let message = if is_update {
            "the wanted version is prepared; the version before goes on until it takes over"
        } else {
            "the wanted version is prepared"
        };
        Self::Reconciling(ConditionState::yes("Progressing", message))
    }

    /// The progress of a version that waits for something outside of the host.
    pub fn awaited(reason: &'static str, message: &str) -> Self {
        Self::Reconciling(ConditionState::yes(reason, message))
    }

    /// The progress of a version that cannot be used now.
    pub fn stopped_by(problem: &StartupProblem) -> Self {
        let StartupProblem {
            step: _,
            reason,
            message,
        } = problem;
        if AWAITED.contains(reason) {
            return Self::awaited(reason, message);
        }
        Self::Stalled(ConditionState::yes(reason, message.clone()))
    }

    /// Returns `true` if the wanted version was refused.
    pub fn is_stalled(&self) -> bool {
        matches!(self, Self::Stalled(_))
    }

    /// Returns the reason why the wanted version does not run: that of `Reconciling` or `Stalled`.
    pub fn obstacle(&self) -> Option<&ConditionState> {
        match self {
            Self::Reconciling(fact) | Self::Stalled(fact) => Some(fact),
            Self::Settled => None,
        }
    }
}

/// A condition about the progress.
pub enum ProgressCondition {
    /// Type and content.
    New(&'static str, ConditionState),
    /// The condition of an earlier process, which stands.
    Recorded(PluginCondition),
}

/// The conditions of an earlier process about the progress, which stand while the artifact that it ran runs and the registry
/// has not been asked yet.
fn recorded<'a>(known: &'a PluginFacts, live: &'a PluginStatus) -> impl Iterator<Item = &'a PluginCondition> {
    let stand = known.is_unasked && known.is_followed && known.progress == Progress::Settled;
    live.conditions.iter().filter(move |condition| {
        stand
            && [RECONCILING, STALLED, UP_TO_DATE].contains(&&*condition.kind)
            && condition.observed_generation == known.generation
    })
}

/// Reports whether what an earlier process recorded about a wanted version that does not run stands.
pub fn is_obstacle_recorded(known: &PluginFacts, live: &PluginStatus) -> bool {
    recorded(known, live).any(|condition| condition.kind != UP_TO_DATE)
}

/// The conditions about the progress, given the present status.
pub fn conditions(known: &PluginFacts, live: &PluginStatus) -> Vec<ProgressCondition> {
    let recorded: Vec<_> = recorded(known, live)
        .cloned()
        .map(ProgressCondition::Recorded)
        .collect();
    if !recorded.is_empty() {
        return recorded;
    }
    let progress = match &known.progress {
        Progress::Reconciling(fact) => Some((RECONCILING, fact.clone())),
        Progress::Stalled(fact) => Some((STALLED, fact.clone())),
        Progress::Settled => None,
    };
    let up_to_date = known.is_followed.then(|| (UP_TO_DATE, up_to_date(known)));
    let new = progress.into_iter().chain(up_to_date);
    new.map(|(kind, fact)| ProgressCondition::New(kind, fact)).collect()
}

/// Condition about a followed source.
fn up_to_date(known: &PluginFacts) -> ConditionState {
    let unknown = |fact: &ConditionState| ConditionState {
        holds: None,
        ..fact.clone()
    };
    if let Some(obstacle) = known.progress.obstacle() {
        return ConditionState {
            holds: Some(false),
            ..obstacle.clone()
        };
    }
    let fetched = known.fact(StartupStep::Fetched);
    match &known.artifact {
        _ if !known.is_loaded() => unknown(known.fact(StartupStep::Ready)),
        // The registry does not say what the source names now.
        _ if fetched.holds != Some(true) => unknown(fetched),
        RunningArtifact::Known(artifact) if !known.is_unasked => ConditionState::yes(
            UP_TO_DATE,
            format!("{} names {}, which runs", artifact.reference, artifact.digest),
        ),
        _ => ConditionState {
            holds: None,
            reason: "Pending",
            message: "the registry has not been asked since the host started".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests;
