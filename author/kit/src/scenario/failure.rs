//! Failures of a scenario, with the step and the state that was seen.

use std::{fmt, path::PathBuf, time::Duration};

use serde_json::Value;
use thiserror::Error;

use super::{
    checks::{Unmet, describe},
    form::Reference,
    objects::words,
    quiet::QuietError,
};
use crate::{cluster::ClusterError, documents::quoting_hint, host::HostError};

/// Failure of a scenario: step, cause, and the end of the host's log.
#[derive(Debug)]
pub struct ScenarioError {
    /// The file.
    pub file: PathBuf,
    /// The step and its line; none before the first and after the last.
    pub step: Option<(u64, String)>,
    /// The kind of the cluster.
    pub cluster: &'static str,
    /// The reason.
    pub cause: StepError,
    /// Explanations of the step's objects by the host's API: their dependencies, and the last runs with their triggers.
    pub explained: Vec<Value>,
    /// The host's last lines.
    pub host_log: String,
}

/// Errors of a step.
#[derive(Debug, Error)]
pub enum StepError {
    /// A wait that timed out.
    #[error("after {} s this does not hold:\n{}", .after.as_secs(), list(.unmet))]
    TimeOut {
        /// Time that was waited.
        after: Duration,
        /// Checks that do not hold.
        unmet: Vec<Unmet>,
    },
    /// Objects of the scenario that are not deleted at its end.
    #[error(
        "at the end of a scenario, what it has made is deleted; after {} s finalizers still hold:\n{}If a finalizer is not the \
         plugin's, nobody takes it away: do so in a last step, as its owner would, with `patch: {{object: ..., type: merge, body: \
         {{metadata: {{finalizers: null}}}}}}`", .after.as_secs(), finalizers(.held)
    )]
    Held {
        /// Time that was waited.
        after: Duration,
        /// The objects, each with its finalizers.
        held: Vec<(String, Vec<String>)>,
    },
    /// An expectation does not hold.
    #[error("this does not hold{}:\n{}", later(*.after), list(.unmet))]
    Unmet {
        /// Time after which it failed; zero: at once.
        after: Duration,
        /// Checks that do not hold.
        unmet: Vec<Unmet>,
    },
    /// The server refused.
    #[error("{action} {object}: {words}")]
    Refused {
        /// The attempted action.
        action: &'static str,
        /// Its object.
        object: String,
        /// The server's words.
        words: String,
    },
    /// The server did not refuse, or for another reason.
    #[error("{action} {object}: expected a refusal with {expected:?}, but {found}")]
    NotRefused {
        /// The attempted action.
        action: &'static str,
        /// Its object.
        object: String,
        /// Part of the expected words.
        expected: String,
        /// The actual outcome.
        found: String,
    },
    /// The server took it, but answered something else.
    #[error("{action} {object}: {problem}")]
    Answered {
        /// The attempted action.
        action: &'static str,
        /// Its object.
        object: String,
        /// The error in the answer.
        problem: String,
    },
    /// A variable or a path is wrong.
    #[error("{0}")]
    Wording(String),
    /// The host failed.
    #[error("{0}")]
    Host(HostError),
    /// The host ended by itself.
    #[error("{0}")]
    HostEnded(String),
    /// The host did not end as it should.
    #[error("the host did not end in order: {}", .0.join("; "))]
    Left(Vec<String>),
    /// The cluster failed.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The host wrote too much, or did not settle.
    #[error(transparent)]
    Quiet(#[from] QuietError),
}

impl fmt::Display for ScenarioError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            step,
            cluster,
            cause,
            // For those who have a form for it.
            explained: _,
            host_log,
        } = self;
        write!(formatter, "{}", file.display())?;
        if let Some((line, step)) = step {
            write!(formatter, ":{line}: {step}")?;
        }
        writeln!(formatter, " on the {cluster} cluster: {}", cause.to_string().trim_end())?;
        if host_log.is_empty() {
            return write!(formatter, "The host has logged nothing.");
        }
        write!(formatter, "The host's last lines:\n{}", host_log.trim_end())
    }
}

impl std::error::Error for ScenarioError {}

impl StepError {
    /// The objects that it is about.
    pub(super) fn objects(&self) -> Vec<&Reference> {
        match self {
            Self::TimeOut { unmet, .. } | Self::Unmet { unmet, .. } => unmet.iter().map(Unmet::reference).collect(),
            _ => Vec::new(),
        }
    }

    /// A request that was to succeed.
    pub(super) fn refused(action: &'static str, reference: &Reference, error: &kube::Error) -> Self {
        Self::Refused {
            action,
            object: describe(reference),
            words: {
                let words = words(error);
                let hint = quoting_hint(&words);
                words + hint
            },
        }
    }
}

fn finalizers(held: &[(String, Vec<String>)]) -> String {
    let lines = held
        .iter()
        .map(|(object, names)| format!("  {object}: {}\n", names.join(", ")));
    lines.collect()
}

fn list(unmet: &[Unmet]) -> String {
    unmet.iter().map(ToString::to_string).collect::<Vec<_>>().concat()
}

fn later(after: Duration) -> String {
    if after.is_zero() {
        String::new()
    } else {
        format!(" after {} ms", after.as_millis())
    }
}
