//! Writes the fields of a text log so that one event is one line: foreign texts are escaped.

use std::fmt;

use pilothouse_core::text::printable::printable;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};

/// Standard format of fields, in which no value begins a line or steers a terminal.
#[derive(Clone, Copy, Debug)]
pub struct OneLine;

impl<'writer> FormatFields<'writer> for OneLine {
    fn format_fields<R: RecordFields>(&self, mut writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut text = String::new();
        DefaultFields::new().format_fields(Writer::new(&mut text), fields)?;
        writer.write_str(&printable(&text))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn an_event_is_one_line_whatever_others_put_into_it() {
        let log = Log::default();
        let sink = log.clone();
        let lines = tracing_subscriber::fmt()
            .fmt_fields(OneLine)
            .with_ansi(true)
            .without_time()
            .with_writer(move || sink.clone())
            .finish();
        let forged = "a\r\n2026-01-01T00:00:00Z  INFO pilothouse: all is well\u{1b}[2J\u{9b}1m\u{202e}\u{2028}";
        tracing::subscriber::with_default(lines, || {
            let _span = tracing::info_span!("reconcile", object = %forged).entered();
            tracing::info!(plugin = "p", error = %forged, debugged = ?forged, text = forged, "{forged}");
        });
        let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(
            !text.contains(['\r', '\u{9b}', '\u{202e}', '\u{2028}']) && !text.contains("\u{1b}[2J"),
            "{text:?}"
        );
        assert!(text.contains("a\\r\\n2026"), "{text}");
    }
}
