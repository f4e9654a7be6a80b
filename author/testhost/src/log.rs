//! Log of a host that runs inside another process: the last lines, to be shown with a failure.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use tracing::subscriber::DefaultGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Number of lines that are kept.
const KEPT: usize = 400;

/// The last lines of a log.
#[derive(Clone, Debug, Default)]
pub struct Tail(Arc<Mutex<VecDeque<String>>>);

impl Tail {
    /// Returns the lines.
    pub fn text(&self) -> String {
        let lines = self.0.lock().expect("no panic happens while it is held");
        lines.iter().map(String::as_str).collect::<Vec<_>>().join("")
    }

    /// Forgets all lines.
    pub fn clear(&self) {
        self.0.lock().expect("no panic happens while it is held").clear();
    }

    /// Collects this thread's log, for as long as the guard lives.
    pub fn follow(&self) -> DefaultGuard {
        tracing::subscriber::set_default(self.subscriber())
    }

    /// Collects the log of all threads, for the rest of the process. Plugins' calls run on threads of their own.
    pub fn follow_all(&self) {
        tracing::subscriber::set_global_default(self.subscriber()).expect("nobody else follows all threads");
    }

    fn subscriber(&self) -> impl tracing::Subscriber + Send + Sync + use<> {
        let filter = EnvFilter::new("warn,pilothouse=debug,pilothouse_runtime=debug,pilothouse_cluster=debug");
        let lines = tracing_subscriber::fmt().with_ansi(false).with_env_filter(filter);
        lines.with_writer(self.clone()).finish()
    }
}

impl io::Write for Tail {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut lines = self.0.lock().expect("no panic happens while it is held");
        if lines.len() == KEPT {
            lines.pop_front();
        }
        lines.push_back(String::from_utf8_lossy(line).into_owned());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Tail {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
