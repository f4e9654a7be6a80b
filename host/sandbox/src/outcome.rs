//! Reasons for which a call ends without an answer.

use pilothouse_core::status::reason::Reason;
use pilothouse_core::{Failure, Limits, Retry};
use pilothouse_metrics::GuestFault;

/// Bytes of a guest's own message in a failure; conditions and events are read by people.
pub(crate) const MAX_GUEST_WORDS: usize = 1024;

/// Reasons why the host ended a call from within an import or a growth of memory.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A limit was reached.
    Limit(Limit),
    /// An import returned a failure.
    Failure(Failure),
    /// The import is not available while the plugin describes itself or converts.
    Unavailable(&'static str),
    /// The inert set of WASI does not have the function.
    Inert(String),
    /// The guest exited with this status.
    Exit(u8),
}

impl std::fmt::Display for Stop {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limit(limit) => write!(formatter, "limit {limit:?}"),
            Self::Failure(failure) => failure.fmt(formatter),
            Self::Unavailable(import) => write!(formatter, "{import} is not available"),
            Self::Inert(function) => write!(formatter, "{function} is not available"),
            Self::Exit(status) => write!(formatter, "exit with status {status}"),
        }
    }
}

impl std::error::Error for Stop {}

/// Limits of [`Limits`], by their names in a limits file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Time,
    Memory,
    Table,
    Stack,
    Transfer,
    OutputBytes,
    OutputObjects,
    Reads,
    ReadBytes,
}

impl Limit {
    /// Returns the failure: what the guest did, and the limit's name and value.
    pub(crate) fn failure(self, limits: &Limits) -> Failure {
        let (what, name, value) = match self {
            Self::Time => ("took too long", "callMilliseconds", limits.call_milliseconds),
            Self::Memory => ("wants too much memory", "memoryBytes", limits.memory_bytes),
            Self::Table => ("wants too large a table", "tableElements", limits.table_elements),
            Self::Stack => ("calls itself too deeply", "stackBytes", limits.stack_bytes),
            Self::Transfer => (
                "passes too much to the host at once",
                "transferBytes",
                limits.transfer_bytes,
            ),
            Self::OutputBytes => ("answers with too much", "outputBytes", limits.output_bytes),
            Self::OutputObjects => ("wants too many objects", "outputObjects", limits.output_objects),
            Self::Reads => ("reads too often", "reads", limits.reads),
            Self::ReadBytes => ("reads too much", "readBytes", limits.read_bytes),
        };
        let failure = Failure::guest(
            Reason::GuestLimit,
            format!("the plugin {what}: limit {name} is {value}; fix the plugin, or raise its limit"),
        );
        // The duration of a call depends on the machine too, so a retry can succeed; with other limits it cannot.
        if self == Self::Time {
            failure.retry(Retry::Backoff)
        } else {
            failure
        }
    }

    /// Returns the metrics' label for it.
    pub(crate) fn fault(self) -> GuestFault {
        match self {
            Self::Time => GuestFault::Time,
            Self::Memory => GuestFault::Memory,
            Self::Table => GuestFault::Table,
            Self::Stack => GuestFault::Stack,
            Self::Transfer => GuestFault::Transfer,
            Self::OutputBytes | Self::OutputObjects => GuestFault::Output,
            Self::Reads => GuestFault::Reads,
            Self::ReadBytes => GuestFault::ReadBytes,
        }
    }
}

/// Returns at most `most` bytes of a text, with a mark where it was cut.
pub(crate) fn shorten(text: &str, most: usize) -> String {
    const MARK: &str = "...";
    if text.len() <= most {
        return text.to_owned();
    }
    let mut end = most.saturating_sub(MARK.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{MARK}", &text[..end])
}
