//! Passes the plugin's log, and the host's warnings, to the view.

use std::io;

use pilothouse_host::options::log_fields::OneLine;
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Log filter: all lines of the plugin, and the host's warnings.
const FILTER: &str = "off,pilothouse_runtime=warn,pilothouse_cluster=warn,pilothouse::plugin=trace";

/// Writer that sends lines to a channel.
#[derive(Clone)]
struct Lines(mpsc::UnboundedSender<String>);

/// Collects the log of all threads for the rest of the process.
pub(super) fn listen() -> anyhow::Result<mpsc::UnboundedReceiver<String>> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let lines = tracing_subscriber::fmt()
        .fmt_fields(OneLine)
        .with_ansi(false)
        .without_time()
        .with_target(false)
        .with_env_filter(EnvFilter::new(FILTER))
        .with_writer(Lines(sender))
        .finish();
    tracing::subscriber::set_global_default(lines)?;
    Ok(receiver)
}

impl io::Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // At the end there is no receiver.
        let _ = self.0.send(String::from_utf8_lossy(line).trim().to_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
