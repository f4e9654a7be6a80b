//! Data model of a span, after OpenTelemetry's:
//! <https://opentelemetry.io/docs/specs/otel/trace/api/#span>.

/// Globally unique identity of a span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpanContext {
    /// The trace that it belongs to; never all zero.
    pub trace: [u8; 16],
    /// The span; never all zero.
    pub span: [u8; 8],
}

impl SpanContext {
    /// Returns the first span of a new trace.
    pub fn root() -> Self {
        Self {
            trace: (fastrand::u128(1..)).to_be_bytes(),
            span: span_id(),
        }
    }

    /// Returns another span of the same trace.
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

/// An attribute: name and value.
pub type Attribute = (&'static str, Value);

/// Event at a moment within a span.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanEvent {
    /// Nanoseconds since the Unix epoch.
    pub time: u64,
    /// Name.
    pub name: String,
    /// Attributes.
    pub attributes: Vec<(String, Value)>,
}

/// Another span that led to this one.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanLink {
    /// The other span.
    pub to: SpanContext,
    /// Reason of the link.
    pub reason: &'static str,
}

/// Status of a finished span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanOutcome {
    /// No status.
    Unset,
    /// Failure, with its message.
    Error(String),
}

/// A finished span.
#[derive(Clone, Debug, PartialEq)]
pub struct FinishedSpan {
    /// Identity.
    pub context: SpanContext,
    /// Parent span.
    pub parent: Option<[u8; 8]>,
    /// Name of the operation, from a closed set.
    pub name: &'static str,
    /// Start, in nanoseconds since the Unix epoch.
    pub start: u64,
    /// End, in nanoseconds since the Unix epoch.
    pub end: u64,
    /// Attributes.
    pub attributes: Vec<Attribute>,
    /// Events within it.
    pub events: Vec<SpanEvent>,
    /// Number of events that were not kept.
    pub dropped_events: u32,
    /// Spans that led to it.
    pub links: Vec<SpanLink>,
    /// Status.
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
