//! Encodes spans in the protobuf encoding of OTLP 1.x: `ExportTraceServiceRequest` in
//! <https://github.com/open-telemetry/opentelemetry-proto/blob/v1.7.0/opentelemetry/proto/collector/trace/v1/trace_service.proto>
//! with `Span` in `opentelemetry/proto/trace/v1/trace.proto`. Only the fields that the host fills in are written.

use crate::span::{FinishedSpan, SpanEvent, SpanLink, SpanOutcome, Value};

/// `SPAN_KIND_INTERNAL`.
const INTERNAL: u64 = 1;

/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// A message that is being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    /// Writes the key of a field: its number and wire type
    /// (<https://protobuf.dev/programming-guides/encoding/#structure>).
    fn key(&mut self, field: u32, wire_type: u32) {
        self.varint(u64::from(field << 3 | wire_type));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value.to_le_bytes()[0] | 0x80);
            value >>= 7;
        }
        self.0.push(value.to_le_bytes()[0]);
    }

    fn number(&mut self, field: u32, value: u64) {
        if value != 0 {
            self.key(field, 0);
            self.varint(value);
        }
    }

    fn fixed64(&mut self, field: u32, value: u64) {
        self.key(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u32, name: &str, value: &Value) {
        self.message(field, |pair| {
            pair.bytes(1, name.as_bytes());
            pair.message(2, |any| match value {
                Value::Text(text) => any.bytes(1, text.as_bytes()),
                // A oneof is written even if it has the default of its type.
                Value::Bool(value) => {
                    any.key(2, 0);
                    any.varint(u64::from(*value));
                }
                Value::Number(number) => {
                    any.key(3, 0);
                    any.varint(number.cast_unsigned());
                }
            });
        });
    }
}

/// Writes a request with spans of one process, which has these attributes.
pub fn request(resource: &[(&str, Value)], version: &str, spans: &[FinishedSpan]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |message| {
            for (name, value) in resource {
                message.attribute(1, name, value);
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"pilothouse");
                scope.bytes(2, version.as_bytes());
            });
            for span in spans {
                of_scope.message(2, |message| write_span(message, span));
            }
        });
    });
    request.0
}

fn write_span(message: &mut Message, span: &FinishedSpan) {
    let FinishedSpan {
        context,
        parent,
        name,
        start,
        end,
        attributes,
        events,
        dropped_events,
        links,
        outcome,
    } = span;
    message.bytes(1, &context.trace);
    message.bytes(2, &context.span);
    if let Some(parent) = parent {
        message.bytes(4, parent);
    }
    message.bytes(5, name.as_bytes());
    message.number(6, INTERNAL);
    message.fixed64(7, *start);
    message.fixed64(8, *end);
    for (name, value) in attributes {
        message.attribute(9, name, value);
    }
    for SpanEvent { time, name, attributes } in events {
        message.message(11, |event| {
            event.fixed64(1, *time);
            event.bytes(2, name.as_bytes());
            for (name, value) in attributes {
                event.attribute(3, name, value);
            }
        });
    }
    message.number(12, u64::from(*dropped_events));
    for SpanLink { to, reason } in links {
        message.message(13, |link| {
            link.bytes(1, &to.trace);
            link.bytes(2, &to.span);
            link.attribute(4, "pilothouse.link", &Value::from(*reason));
        });
    }
    if let SpanOutcome::Error(problem) = outcome {
        message.message(15, |status| {
            status.bytes(2, problem.as_bytes());
            status.number(3, ERROR);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::span::SpanContext;

    #[test]
    fn a_request_has_the_bytes_that_protobuf_says() {
        let span = FinishedSpan {
            context: SpanContext {
                trace: [1; 16],
                span: [2; 8],
            },
            parent: None,
            name: "a",
            start: 1,
            end: 2,
            attributes: vec![("b", Value::Bool(false)), ("n", Value::Number(300))],
            events: Vec::new(),
            dropped_events: 0,
            links: Vec::new(),
            outcome: SpanOutcome::Unset,
        };
        let mut expected = vec![0x0a, 16];
        expected.extend([1; 16]);
        expected.extend([0x12, 8]);
        expected.extend([2; 8]);
        expected.extend([0x2a, 1, b'a', 0x30, 1]);
        expected.extend([0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x41, 2, 0, 0, 0, 0, 0, 0, 0]);
        expected.extend([0x4a, 7, 0x0a, 1, b'b', 0x12, 2, 0x10, 0]);
        // 300 is 0xac 0x02.
        expected.extend([0x4a, 8, 0x0a, 1, b'n', 0x12, 3, 0x18, 0xac, 0x02]);
        let mut message = Message::default();
        write_span(&mut message, &span);
        assert_eq!(message.0, expected);
        let request = request(&[], "1", &[span]);
        let scope = [&[0x0a, 15, 0x0a, 10][..], b"pilothouse", &[0x12, 1, b'1']].concat();
        let length = |bytes: &[u8]| u8::try_from(bytes.len()).unwrap();
        let scope_spans = [&scope[..], &[0x12, length(&expected)], &expected].concat();
        let resource_spans = [&[0x0a, 0, 0x12, length(&scope_spans)][..], &scope_spans].concat();
        assert_eq!(
            request,
            [&[0x0a, length(&resource_spans)][..], &resource_spans].concat()
        );
    }
}
