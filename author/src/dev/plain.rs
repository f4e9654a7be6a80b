//! Prints the lines of `pilothouse dev` without a live view.

use std::io::{self, Write as _};

use super::model::{Line, Tone, Topic};

/// Prints a line. A closed pipe is ignored.
pub(super) fn print(line: &Line, coloured: bool) {
    let _ = writeln!(io::stdout().lock(), "{}", text(line, coloured));
}

fn text(line: &Line, coloured: bool) -> String {
    let Line { at, topic, tone, text } = line;
    let word = match topic {
        Topic::Dev => "dev",
        Topic::Build => "build",
        Topic::Run => "run",
        Topic::Object => "object",
        Topic::Log => "log",
    };
    let text = match (tone, coloured) {
        (Tone::Good, true) => format!("\u{1b}[32m{text}\u{1b}[0m"),
        (Tone::Bad, true) => format!("\u{1b}[31m{text}\u{1b}[0m"),
        _ => text.clone(),
    };
    format!("{:>8.2}s {word:<6} {text}", at.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_line_has_its_time_and_topic_and_colours_on_a_terminal_only() {
        let line = Line {
            at: Duration::from_millis(12_340),
            topic: Topic::Run,
            tone: Tone::Good,
            text: "App n/web: wrote".to_owned(),
        };
        assert_eq!(text(&line, false), "   12.34s run    App n/web: wrote");
        assert_eq!(
            text(&line, true),
            "   12.34s run    \u{1b}[32mApp n/web: wrote\u{1b}[0m"
        );
    }
}
