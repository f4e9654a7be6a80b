//! Owns what a span is, after the data model of OpenTelemetry:
//! <https://opentelemetry.io/docs/specs/otel/trace/api/#span>.

/// Names a span in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace that it belongs to; never all zero.
    pub trace: [u8; 16],
    /// The span; never all zero.
    pub span: [u8; 8],
}

impl SpanContext {
    /// The first span of a new trace.
    pub fn root() -> Self {
        Self {
            trace: (fastrand::u128(1..)).to_be_bytes(),
            span: span_id(),
        }
    }

    /// Another span of the same trace.
    #[must_use]
    pub fn sibling(self) -> Self {
        Self {
            span: span_id(),
            ..self
        }
    }
}

fn span_id() -> [u8; 8] {
    fastrand::u64(1..).to_be_bytes()
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Bool(bool),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

/// A named value.
pub type Attribute = (&'static str, Value);

/// Something that happened at a moment within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Nanoseconds since the epoch.
    pub time: u64,
    /// Its name.
    pub name: String,
    /// More about it.
    pub attributes: Vec<(String, Value)>,
}

/// Another span that led to this one.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanLink {
    /// Which.
    pub to: SpanContext,
    /// How it did.
    pub reason: &'static str,
}

/// How what a span is about ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// Nothing is said about it.
    Unset,
    /// It failed.
    Error(String),
}

/// A span that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// Which.
    pub context: SpanContext,
    /// The span that it is a part of.
    pub parent: Option<[u8; 8]>,
    /// What it is about, from a closed set.
    pub name: &'static str,
    /// Nanoseconds since the epoch.
    pub start: u64,
    /// Nanoseconds since the epoch.
    pub end: u64,
    /// More about it.
    pub attributes: Vec<Attribute>,
    /// What happened within it.
    pub events: Vec<SpanEvent>,
    /// How many more events there were, which are not kept.
    pub dropped_events: u32,
    /// What led to it.
    pub links: Vec<SpanLink>,
    /// How it ended.
    pub outcome: SpanOutcome,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_of_a_trace_share_its_name_and_differ_in_their_own() {
        let root = SpanContext::root();
        let sibling = root.sibling();
        assert_eq!(root.trace, sibling.trace);
        assert_ne!(root.span, sibling.span);
        assert_ne!(root.trace, SpanContext::root().trace);
    }
}
