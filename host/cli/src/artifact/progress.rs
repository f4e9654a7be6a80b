//! Progress bars on a terminal's standard error.

use std::io::IsTerminal as _;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use pilothouse_artifact::Progress;

/// One bar for all blobs of a command. It disappears when it is dropped.
pub struct Bar(ProgressBar);

impl Bar {
    /// Makes a bar, hidden if output is quiet or not a terminal.
    pub fn new(what: &'static str, is_quiet: bool) -> Self {
        if is_quiet || !std::io::stderr().is_terminal() {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}")
            .expect("the template is indicatif's")
            .progress_chars("=> ");
        Self(bar.with_style(style).with_message(what))
    }
}

impl Progress for Bar {
    fn started(&self, total: u64) {
        self.0.inc_length(total);
    }

    fn advanced(&self, bytes: u64) {
        self.0.inc(bytes);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
