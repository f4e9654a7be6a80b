//! Traces: the data model of spans ([`span`]), their protobuf encoding in OTLP ([`mod@encode`]), and their export to a
//! collector ([`export`]). The choice of spans is left to host/runtime. Written for this host alone, because the crates
//! of OpenTelemetry bring a second HTTP stack and a code generator's runtime for a message of eight fields.
#![forbid(unsafe_code)]

pub mod encode;
pub mod export;
pub mod span;

pub use export::{ExportOptions, Exporter, SpanSink};
pub use span::{FinishedSpan, SpanContext, SpanEvent, SpanLink, SpanOutcome, Value};
