//! Collects the log lines of plugins under the hosts of all tests of a process.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, OnceLock};

pub use pilothouse_testhost::Tail;
use tokio::sync::Notify;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Log lines of the plugins of all tests of the process, at the moment at which they are logged: calls run on threads
/// of their own, where the log of no test is followed.
#[derive(Clone, Debug, Default)]
pub struct Guests {
    tail: Tail,
    told: Arc<Notify>,
    counted: Arc<Mutex<HashMap<String, Lines>>>,
}

/// Count of a plugin's lines, and of the dropped ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Lines in the log.
    pub logged: u64,
    /// Lines that the log reports as dropped.
    pub dropped: u64,
}

impl Guests {
    /// The only one of the process; it hears what is said from now on.
    pub fn listen() -> &'static Self {
        static GUESTS: OnceLock<Guests> = OnceLock::new();
        GUESTS.get_or_init(|| {
            let guests = Self::default();
            let lines = tracing_subscriber::fmt().with_ansi(false).with_writer(guests.clone());
            let lines = lines.with_env_filter(EnvFilter::new("off,pilothouse::plugin=info"));
            tracing::subscriber::set_global_default(lines.finish()).expect("nobody else follows all threads");
            guests
        })
    }

    /// Waits until a line has all these words.
    pub async fn say(&self, words: &[&str]) {
        loop {
            let told = self.told.notified();
            let text = self.tail.text();
            if text.lines().any(|line| words.iter().all(|word| line.contains(word))) {
                return;
            }
            told.await;
        }
    }

    /// Returns the counts of one plugin so far.
    pub fn lines_of(&self, plugin: &str) -> Lines {
        let counted = self.counted.lock().expect("no panic happens while it is held");
        counted.get(plugin).copied().unwrap_or_default()
    }

    fn count(&self, line: &str) {
        let member = |name: &str| line.split_once(name).map(|(_, rest)| rest);
        let Some((plugin, _)) = member("plugin=\"").and_then(|rest| rest.split_once('"')) else {
            return;
        };
        let mut counted = self.counted.lock().expect("no panic happens while it is held");
        let lines = counted.entry(plugin.to_owned()).or_default();
        match Self::dropped_in(line) {
            None => lines.logged += 1,
            Some(dropped) => lines.dropped += dropped,
        }
    }

    /// Returns the count of dropped lines, where a log line reports it. The host may report it outside of any call, in
    /// its own log.
    pub fn dropped_in(line: &str) -> Option<u64> {
        let (_, rest) = line.split_once("dropped=")?;
        rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
    }
}

impl io::Write for Guests {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let written = self.tail.write(line)?;
        self.count(&String::from_utf8_lossy(line));
        self.told.notify_waiters();
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Guests {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
