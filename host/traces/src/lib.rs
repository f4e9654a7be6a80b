//! Traces: what a span is ([`span`]), how spans are written in the protobuf of OTLP ([`mod@encode`]), and their way to a
//! collector ([`export`]). What is traced is left to host/runtime. Written for this host alone, because the crates of
//! OpenTelemetry bring a second HTTP stack and a code generator's runtime for a message of eight fields.
#![forbid(unsafe_code)]

pub mod encode;
pub mod export;
pub mod span;

pub use export::{ExportOptions, Exporter, SpanSink};
pub use span::{FinishedSpan, SpanContext, SpanEvent, SpanLink, SpanOutcome, Value};
