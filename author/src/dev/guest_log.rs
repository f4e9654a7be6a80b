//! Owns what the plugin logs, and what the host warns of, on its way to whoever shows it.

use std::io;

use pilothouse_host::options::log_fields::OneLine;
use tokio::sync::mpsc;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// All of the plugin, and of the host what somebody has to do something about.
const FILTER: &str = "off,pilothouse_runtime=warn,pilothouse_cluster=warn,pilothouse::plugin=trace";

/// Sends lines on.
#[derive(Clone)]
struct Lines(mpsc::UnboundedSender<String>);

/// Hears the log of all threads for the rest of the process.
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
        // Nobody hears it at the end.
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
