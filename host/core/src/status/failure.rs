//! Owns the failure of a reconcile: its blame, when to retry, its reason and its message.

use std::fmt;
use std::time::Duration;

use crate::status::reason::Reason;

/// The longest that the host waits because a server or a webhook asks it to: anybody may have written the answer, and an
/// object that is left for longer looks as if it had been forgotten.
pub const LONGEST_REQUESTED_WAIT: Duration = Duration::from_mins(5);

/// The longest that an edited object waits for a server that is busy. API servers ask for a few seconds.
pub const LONGEST_EDIT_WAIT: Duration = Duration::from_secs(10);

/// Who can fix a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blame {
    /// The plugin: it trapped, broke a limit or its contract, or wants what the server's types refuse.
    Guest,
    /// Whoever wrote the object or the configuration.
    User,
    /// The API server, or what it holds: a conflict, a foreign object, trouble on the way to it.
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

/// What makes it worth trying again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Time: with back-off per object.
    Backoff,
    /// A change of the object, of the configuration or of something that was read.
    Change,
}

/// A reconcile that did not succeed. It never prunes; it becomes a condition and an event on the object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// Whose matter it is.
    pub blame: Blame,
    /// When to try again.
    pub retry: Retry,
    /// The least wait before another try, where the cluster asked for one.
    pub at_least: Duration,
    /// The condition's reason.
    pub reason: Reason,
    /// What failed, on which object, why, and what to do next. Lower case, without a full stop.
    pub message: String,
}

impl Failure {
    /// A fault of the plugin; a retry would fail in the same way.
    pub fn guest(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Guest,
            retry: Retry::Change,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// The user's matter: it waits for a change of the object or the configuration.
    pub fn user(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::User,
            retry: Retry::Change,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// The cluster's matter, and it may pass.
    pub fn cluster(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Cluster,
            retry: Retry::Backoff,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// A fault in the host; tried again with back-off.
    pub fn host(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            blame: Blame::Host,
            retry: Retry::Backoff,
            at_least: Duration::ZERO,
            reason,
            message: message.into(),
        }
    }

    /// Whether the call crashed (a trap or a broken limit) instead of returning a failure.
    pub fn is_crash(&self) -> bool {
        self.blame == Blame::Guest && matches!(self.reason, Reason::GuestTrap | Reason::GuestLimit)
    }

    /// Whether the object makes no progress until somebody changes something.
    ///
    /// That another reconcile waits for a change does not prove it: the host repeats a contribution that failed without
    /// reconciling the object again, and an object that is being deleted will be gone without anybody's help. So the
    /// reasons that time can remove never stall an object.
    pub fn is_stalled(&self) -> bool {
        let passes = matches!(
            self.reason,
            Reason::ClusterUnavailable | Reason::Forbidden | Reason::NotSynced | Reason::Waiting
        );
        self.retry == Retry::Change && !passes
    }

    /// How long an object waits that somebody has edited since it failed.
    ///
    /// A server that is busy gets the time that it asks for, up to [`LONGEST_EDIT_WAIT`]. Who denies a request asks for
    /// time too, but an edit may be just what lets the next request pass, so it is tried at once.
    pub fn wait_after_edit(&self) -> Duration {
        if self.reason == Reason::ClusterUnavailable {
            self.at_least.min(LONGEST_EDIT_WAIT)
        } else {
            Duration::ZERO
        }
    }

    /// The same failure with another answer to when it is tried again.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = retry;
        self
    }

    /// The same failure, not to be tried again before this much time has passed, or [`LONGEST_REQUESTED_WAIT`].
    #[must_use]
    pub fn at_least(mut self, wait: Duration) -> Self {
        self.at_least = wait.min(LONGEST_REQUESTED_WAIT);
        self
    }
}
