//! The failure of a reconcile: its blame, retry policy, reason and message.

use std::fmt;
use std::time::Duration;

use crate::status::reason::Reason;

/// The longest delay that a server or a webhook can request (Retry-After). The response may come from anyone, and an
/// object without a retry for longer looks forgotten.
pub const LONGEST_REQUESTED_WAIT: Duration = Duration::from_mins(5);

/// The longest delay for an edited object while a server is busy. API servers request a few seconds.
pub const LONGEST_EDIT_WAIT: Duration = Duration::from_secs(10);

/// The party that can fix a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The plugin: it trapped, broke a limit or its contract, or wants what the server's types refuse.
    Guest,
    /// The author of the object or the configuration.
    User,
    /// The API server or its content: a conflict, a foreign object, a failed connection.
    Cluster,
    /// Pilothouse itself.
    Host,
}

impl fmt::Display for Blame {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Guest => "guest",
            Self::User => "user",
            Self::Cluster => "cluster",
            Self::Host => "host",
        })
    }
}

/// The event that makes a retry worthwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Time passes: retried with back-off per object.
    Backoff,
    /// The object, the configuration or a recorded read changes.
    Change,
}

/// A failed reconcile. It never prunes; it becomes a condition and an event on the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// The party to blame.
    pub blame: Blame,
    /// The retry policy.
    pub retry: Retry,
    /// The shortest delay before a retry, if the cluster requested one.
    pub at_least: Duration,
    /// The condition's reason.
    pub reason: Reason,
    /// The message: what failed on which object, why, and what to do next. Lower case, without a full stop.
    pub message: String,
}

impl Failure {
    /// A fault of the plugin. A retry would fail in the same way.
    pub fn guest(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Guest,
            retry: Retry::Change,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// A fault of the user: retried after a change of the object or the configuration.
    pub fn user(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::User,
            retry: Retry::Change,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// A fault of the cluster, which may pass: retried with back-off.
    pub fn cluster(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Cluster,
            retry: Retry::Backoff,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// A fault in the host: retried with back-off.
    pub fn host(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Host,
            retry: Retry::Backoff,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// Reports whether the call crashed (a trap or a broken limit) instead of returning a failure.
    pub fn is_crash(&self) -> bool {
        self.blame == Blame::Guest && matches!(self.reason, Reason::GuestTrap | Reason::GuestLimit)
    }

    /// Reports whether the object makes no progress until someone changes something.
    ///
    /// A retry on change alone does not prove that: the host repeats a failed contribution without another reconcile,
    /// and an object that is being deleted will be gone without any change. So reasons that time can remove never stall
    /// an object.
    pub fn is_stalled(&self) -> bool {
        let passes = matches!(
            self.reason,
            Reason::ClusterUnavailable | Reason::Forbidden | Reason::NotSynced | Reason::Waiting
        );
        self.retry == Retry::Change && !passes
    }

    /// The delay before the retry of an object that was edited since it failed.
    ///
    /// A busy server gets the delay that it requests, up to [`LONGEST_EDIT_WAIT`]. A denying webhook requests a delay
    /// too, but the edit may be just what makes the next request pass, so it is retried at once.
    pub fn wait_after_edit(&self) -> Duration {
        if self.reason == Reason::ClusterUnavailable {
            self.at_least.min(LONGEST_EDIT_WAIT)
        } else {
            Duration::ZERO
        }
    }

    /// The same failure with another retry policy.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The same failure with a shortest delay before the retry, at most [`LONGEST_REQUESTED_WAIT`].
    #[must_use]
    pub fn at_least(mut self, wait: Duration) -> Self {
        self.at_least = wait.min(LONGEST_REQUESTED_WAIT);
        self
    }
}
